#!/usr/bin/env bash
# Renders a chart (deploy/check/render.go), and builds the renderer first where that is due.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
binary=$here/../../target/tools/render

if [ ! -x "$binary" ] || [ "$here/render.go" -nt "$binary" ]; then
    mkdir -p "$(dirname "$binary")"
    # Several tests may come at once: each builds its own, and the last one moves it into its place.
    built=$(mktemp "$binary.XXXXXX")
    trap 'rm -f "$built"' EXIT
    GO111MODULE=off GOPATH=/usr/share/gocode GOFLAGS='' go build -o "$built" "$here/render.go"
    mv "$built" "$binary"
fi
exec "$binary" "$@"
