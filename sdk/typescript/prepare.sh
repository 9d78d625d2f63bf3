#!/usr/bin/env bash
# Installs the packages of package-lock.json and builds dist, where that isn't done yet. Links them for the examples too. May run
# twice at the same time.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p ../../target
exec 9>../../target/sdk-typescript.lock
flock 9

readonly INSTALLED=node_modules/.hookgate-installed BUILT=dist/.built
if ! cmp -s package-lock.json $INSTALLED; then
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
    node node_modules/bun/install.js
    cp package-lock.json $INSTALLED
fi
if [ ! -e $BUILT ] || [ -n "$(find src tsconfig.json tsconfig.build.json package.json $INSTALLED -newer $BUILT -print -quit)" ]; then
    rm -rf dist
    npm run --silent build
    touch $BUILT
fi

readonly EXAMPLES=../../examples/typescript/node_modules
mkdir -p $EXAMPLES/@hookgate $EXAMPLES/@types
[ -e $EXAMPLES/@hookgate/sdk ] || ln -sfn ../../../../sdk/typescript $EXAMPLES/@hookgate/sdk
[ -e $EXAMPLES/@types/node ] || ln -sfn ../../../../sdk/typescript/node_modules/@types/node $EXAMPLES/@types/node
for package in tsx typescript zod; do
    [ -e $EXAMPLES/$package ] || ln -sfn ../../../sdk/typescript/node_modules/$package $EXAMPLES/$package
done
