"""The gateway's rules for manifests and tools (docs/protocol.md, sections 2 and 10)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hookgate._json import loads
from hookgate._proto import plugin_pb2, types_pb2
from hookgate.point import CAPABILITIES, POINTS
from hookgate.testing._call_error import rejected
from hookgate.testing._glob import compile_glob

_HOOK_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_MAX_ENTRIES: Final = 64
"""How many hooks, globs of tools' names, or tools a plugin may have."""
_MAX_GLOB_BYTES: Final = 128
_MAX_DESCRIPTION_BYTES: Final = 4 << 10
_MAX_TITLE_BYTES: Final = 256
_MAX_TOOLS_BYTES: Final = 256 << 10
_MAX_SCHEMA_BYTES: Final = 64 << 10


def check_manifest(manifest: plugin_pb2.DescribeResponse) -> None:
    """Checks what a plugin says of itself. `Plugin` has checked its name and version.

    :raises CallError: If every gateway would reject it.
    """
    for capability in manifest.capabilities:
        is_known = capability in CAPABILITIES
        _ensure(is_known, f"`capabilities` has `{capability}`, which gateways don't have")
    _check_offers(manifest)
    _check_schemas(manifest)


def _check_offers(manifest: plugin_pb2.DescribeResponse) -> None:
    points, hooks, globs = manifest.points, manifest.hooks, manifest.tools
    _ensure(points or hooks or globs, "the plugin offers no point, no hook and no tool")
    _ensure(len(hooks) <= _MAX_ENTRIES, f"`hooks` has {len(hooks)} hooks: keep it within {_MAX_ENTRIES}")
    for hook in [offer.hook for offer in hooks]:
        form = "the name of a hook is a lower-case letter, then up to 63 lower-case letters, digits and `_`"
        _ensure(_HOOK_NAME.fullmatch(hook), f"`hooks` has `{hook}`: {form}")
        _ensure(hook not in POINTS, f"`hooks` has `{hook}`: this is the name of a point, which no hook may have")
    _ensure(len(globs) <= _MAX_ENTRIES, f"`tool_names` has {len(globs)} globs: keep it within {_MAX_ENTRIES}")
    for glob in globs:
        is_short = len(glob.encode()) <= _MAX_GLOB_BYTES
        _ensure(is_short, f"`tool_names` has a glob of more than {_MAX_GLOB_BYTES} bytes")
        only_wildcards = f"`tool_names` has `{glob}`, which has only wildcards: begin it with the plugin's name"
        _ensure(not glob or re.search(r"[^*?]", glob), only_wildcards)
        _compile(glob)


def _check_schemas(manifest: plugin_pb2.DescribeResponse) -> None:
    schemas = {"config": manifest.config_schema, "tenant_config": manifest.tenant_config_schema}
    for name, schema in schemas.items():
        _ensure(len(schema) <= _MAX_SCHEMA_BYTES, f"the JSON Schema of `{name}` is over 64 KiB")
    own, of_tenants = map(_properties_of, schemas.values())
    shared = next((name for name in of_tenants if name in own), None)
    _ensure(shared is None, f"`config` and `tenant_config` both have `{shared}`: rename one")


def _properties_of(schema: bytes) -> Sequence[str]:
    read = loads(schema) if schema else {}
    properties = read.get("properties") if isinstance(read, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def check_tools(globs: Sequence[str], tools: Sequence[types_pb2.Tool]) -> None:
    """Checks the tools of a plugin whose manifest has these globs.

    :raises CallError: If every gateway would reject them.
    """
    _ensure(len(tools) <= _MAX_ENTRIES, f"`tools` has {len(tools)} tools: keep it within {_MAX_ENTRIES}")
    size = sum(tool.ByteSize() for tool in tools)
    _ensure(size <= _MAX_TOOLS_BYTES, f"`tools` has {size} bytes: keep it within 256 KiB")
    names = [tool.name for tool in tools]
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    _ensure(twice is None, f"`tools` names `{twice}` twice: name each tool once")
    patterns = [_compile(glob) for glob in globs]
    for tool in tools:
        _check_tool(tool)
        is_covered = any(pattern.match(tool.name) for pattern in patterns)
        _ensure(is_covered, f"no glob in `tool_names` covers the tool `{tool.name}`")


def _check_tool(tool: types_pb2.Tool) -> None:
    name = tool.name
    form = "a name must be 1 to 128 letters, digits, `_`, `.` and `-`"
    _ensure(_TOOL_NAME.fullmatch(name), f"a tool is named `{name}`: {form}")
    is_described = 1 <= len(tool.description.encode()) <= _MAX_DESCRIPTION_BYTES
    _ensure(is_described, f"`{name}` needs a `description` of 1 byte to 4 KiB")
    has_short_title = len(tool.annotations.title.encode()) <= _MAX_TITLE_BYTES
    _ensure(has_short_title, f"the `title` of `{name}` is longer than {_MAX_TITLE_BYTES} bytes")
    _ensure(len(tool.input_schema) <= _MAX_SCHEMA_BYTES, f"the input of `{name}` is over 64 KiB as a JSON Schema")
    schema = loads(tool.input_schema)
    is_object = isinstance(schema, dict) and schema.get("type") == "object"
    _ensure(is_object, f"the input of `{name}` must be an object")


def _compile(glob: str) -> re.Pattern[str]:
    try:
        return compile_glob(glob)
    except ValueError as error:
        raise rejected(f"`tool_names` has `{glob}`: {error}") from None


def _ensure(is_right: object, fault: str) -> None:
    if not is_right:
        raise rejected(fault)
