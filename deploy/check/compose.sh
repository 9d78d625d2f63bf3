#!/usr/bin/env bash
# Checks docker-compose.yml by the compose schema, and what its containers read by their own programs where Debian has them (promtool),
# else for what refers to what. What the file says of the gateway is compared with the gateway in tests/tests/it/deploy_compose.rs.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly CHECK_JSONSCHEMA=0.39.0
readonly TOOLS=$PWD/target/tools

[ -x "$TOOLS/deploy/bin/python" ] || python3 -m venv "$TOOLS/deploy"
"$TOOLS/deploy/bin/python" -m pip install --quiet --disable-pip-version-check "check-jsonschema==$CHECK_JSONSCHEMA"

# The package would start a server on the port of the gateway's operators, so only its program is taken.
promtool=$(command -v promtool || true)
if [ -z "$promtool" ]; then
    promtool=$TOOLS/prometheus/usr/bin/promtool
    if [ ! -x "$promtool" ]; then
        rm -rf "$TOOLS/prometheus"
        mkdir -p "$TOOLS/prometheus"
        (cd "$TOOLS/prometheus" && apt-get download -q prometheus && dpkg -x prometheus_*.deb . && rm -rf prometheus_*.deb usr/bin/prometheus usr/share etc)
    fi
fi

"$TOOLS/deploy/bin/check-jsonschema" --builtin-schema vendor.compose-spec docker-compose.yml
"$promtool" check config deploy/compose/prometheus.yml
"$TOOLS/deploy/bin/python" - <<'PYTHON'
import sys
from ruamel.yaml import YAML

def read(path):
    with open(path) as file:
        return YAML(typ="safe").load(file)

collector = read("deploy/compose/collector.yaml")
for name, pipeline in collector["service"]["pipelines"].items():
    for kind, used in pipeline.items():
        unknown = set(used) - collector[kind].keys()
        if unknown:
            sys.exit(f"collector.yaml: the pipeline {name} uses {kind} that aren't there: {unknown}")
sources = read("deploy/compose/grafana/datasources.yaml")["datasources"]
if sum(source.get("isDefault", False) for source in sources) != 1:
    sys.exit("datasources.yaml: one source is the default")
print("collector.yaml, datasources.yaml: what they refer to is there")
PYTHON
