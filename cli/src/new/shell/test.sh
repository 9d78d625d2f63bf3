#!/bin/sh
# Tests plugin.sh: a call in, its reply out.
set -eu
cd "$(dirname "$0")"

expect() {
  call=$(printf '{"payload":{"tool_name":"%s"},"tenant_config":{"refused_tools":["shell.exec"]}}' "$1")
  reply=$(echo "$call" | sh ./plugin.sh)
  if [ "$reply" != "$2" ]; then
    echo "$1: expected $2, got $reply" >&2
    exit 1
  fi
}

expect shell.exec '{"cancel":{"code":"TOOL_NOT_ALLOWED","message":"Agents may not use shell.exec."}}'
expect fs.read '{"continue":{}}'
echo "2 tests passed"
