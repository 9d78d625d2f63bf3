#!/usr/bin/env bash
# Installs the packages of package-lock.json, where that isn't done yet. May run twice at the same time.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p ../../target
exec 9>../../target/test-clients.lock
flock 9

readonly INSTALLED=node_modules/.hookgate-installed
if ! cmp -s package-lock.json $INSTALLED; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
    cp package-lock.json $INSTALLED
fi
