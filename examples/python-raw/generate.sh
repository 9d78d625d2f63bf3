#!/bin/sh
# Makes .venv with grpcio and writes the stubs of the contract into gen/. Does nothing when both are up to date.
set -eu
cd "$(dirname "$0")"
proto=../../proto
stamp=gen/.stamp

# Several may come at once: all but the first find it done, where the system has locks for scripts.
exec 9< generate.sh
if command -v flock > /dev/null; then flock 9; fi

if [ -f "$stamp" ] && [ -x .venv/bin/python ] &&
    [ -z "$(find "$proto/hookgate" requirements.txt generate.sh -newer "$stamp" -type f)" ]; then
    exit 0
fi
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
rm -rf gen
mkdir gen
# Under a folder of their own, so that the package `hookgate` can't meet a module of yours.
.venv/bin/python -m grpc_tools.protoc --proto_path="$proto" --python_out=gen --pyi_out=gen --grpc_python_out=gen \
    "$proto"/hookgate/types/v1/types.proto "$proto"/hookgate/plugin/v1/plugin.proto
touch "$stamp"
