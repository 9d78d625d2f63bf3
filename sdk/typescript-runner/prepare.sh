#!/usr/bin/env bash
# Installs the packages of package-lock.json, links the SDK, and builds dist, where that isn't done yet; in the SDK too. May run
# twice at the same time.
set -euo pipefail
cd "$(dirname "$0")"
../typescript/prepare.sh
mkdir -p ../../target
exec 9>../../target/sdk-typescript-runner.lock
flock 9

readonly INSTALLED=node_modules/.hookgate-installed BUILT=dist/.built SDK=node_modules/@hookgate/sdk
if ! cmp -s package-lock.json $INSTALLED; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
    cp package-lock.json $INSTALLED
fi
if [ "$(readlink $SDK)" != ../../../typescript ]; then
    mkdir -p "$(dirname $SDK)"
    rm -rf $SDK
    ln -s ../../../typescript $SDK
fi
# The SDK's build is a source too.
SOURCES=(src tsconfig.json tsconfig.build.json package.json $INSTALLED ../typescript/dist/.built)
if [ ! -e $BUILT ] || [ -n "$(find "${SOURCES[@]}" -newer $BUILT -print -quit)" ]; then
    rm -rf dist
    npm run --silent build
    touch $BUILT
fi
