#!/bin/sh
# Tests plugin.sh: a call in, its reply out.
set -eu
cd "$(dirname "$0")"

expect() {
  call=$(printf '{"context":{"request_id":"1"},"payload":{"tool_name":"%s"},"tenant_config":{"refused_tools":["shell.exec"]}}' "$1")
  reply=$(echo "$call" | sh ./plugin.sh)
  if [ "$reply" != "$2" ]; then
    echo "$1: expected $2, got $reply" >&2
    exit 1
  fi
}

expect shell.exec '{"cancel":{"code":"TOOL_NOT_ALLOWED","message":"Agents may not use shell.exec."},"request_id":"1"}'
expect fs.read '{"continue":{},"request_id":"1"}'
echo "2 tests passed"
