#!/usr/bin/env bash
# Makes .venv with the packages of requirements-dev.txt and this one, where that isn't done yet. May run twice at the same time.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p ../../target
exec 9>../../target/sdk-python.lock
flock 9

readonly INSTALLED=.venv/.hookgate-installed
if ! cat requirements-dev.txt pyproject.toml | cmp -s - $INSTALLED; then
    rm -rf .venv
    python3 -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.txt
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
    cat requirements-dev.txt pyproject.toml >$INSTALLED
fi
