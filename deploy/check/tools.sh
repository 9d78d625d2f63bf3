#!/usr/bin/env bash
# What the checks of deploy/ need beside Debian's packages, into target/tools: validators and linters from PyPI, and the programs of
# Prometheus.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly WANTED=$PWD/deploy/check/requirements.txt TOOLS=$PWD/target/tools

if ! cmp -s "$WANTED" "$TOOLS/deploy/installed"; then
    python3 -m venv --clear "$TOOLS/deploy"
    "$TOOLS/deploy/bin/pip" install --quiet --disable-pip-version-check --requirement "$WANTED"
    cp "$WANTED" "$TOOLS/deploy/installed"
fi

# Unpacked, because installing the package starts a server on the port of the gateway's operators.
if [ ! -x "$TOOLS/prometheus/usr/bin/promtool" ]; then
    rm -rf "$TOOLS/prometheus"
    mkdir -p "$TOOLS/prometheus"
    cd "$TOOLS/prometheus"
    if ! apt-get download -q prometheus; then
        if [ "$(id -u)" -eq 0 ]; then
            apt-get update -q
        elif command -v sudo >/dev/null; then
            sudo apt-get update -q
        else
            echo "the Debian package prometheus can't be downloaded: let root run apt-get update first" >&2
            exit 1
        fi
        apt-get download -q prometheus
    fi
    dpkg-deb -x prometheus_*.deb .
    rm -rf prometheus_*.deb etc usr/share
fi
