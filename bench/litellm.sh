#!/usr/bin/env bash
# Compares the LLM proxy with LiteLLM in one run (bench/README.md, "LiteLLM"). Installs LiteLLM's Python package into target/tools.
# Takes the options of hookgate-bench.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly WANTED='litellm[proxy]==1.108.7' TOOLS=$PWD/target/tools/litellm
readonly BUILT=${CARGO_TARGET_DIR:-target}/release

if ! echo "$WANTED" | cmp -s - "$TOOLS/installed"; then
    python3 -m venv --clear "$TOOLS"
    "$TOOLS/bin/pip" install --quiet --disable-pip-version-check "$WANTED"
    echo "$WANTED" >"$TOOLS/installed"
fi

cargo build --release --locked -p hookgate-cli -p hookgate-bench
mkdir -p target
"$BUILT/hookgate-bench" --litellm "$TOOLS/bin/litellm" --only litellm --json target/bench-litellm.json "$@"
