#!/usr/bin/env bash
# Writes the reference to build/reference, after installing what package-lock.json says, where that isn't done yet. Fails where the doc
# comments lack something. A package of its own: TypeDoc needs TypeScript 6, and the SDK is built with 7.
set -euo pipefail
cd "$(dirname "$0")"

readonly INSTALLED=node_modules/.hookgate-installed
if ! cmp -s package-lock.json $INSTALLED; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
    cp package-lock.json $INSTALLED
fi
# It keeps files of modules that there are no more.
rm -rf ../build/reference
node_modules/.bin/typedoc --logLevel Warn
