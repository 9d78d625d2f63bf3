#!/usr/bin/env bash
# Checks docker-compose.yml by the compose schema, and what its containers read by their own programs where Debian has them (promtool),
# else for what refers to what. What the file says of the gateway is compared with the gateway in tests/tests/it/deploy/compose.rs.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly TOOLS=$PWD/target/tools

deploy/check/tools.sh

"$TOOLS/deploy/bin/check-jsonschema" --builtin-schema vendor.compose-spec docker-compose.yml
"$TOOLS/prometheus/usr/bin/promtool" check config deploy/compose/prometheus.yml
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
