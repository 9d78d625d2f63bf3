"""The manifest of a plugin as Describe answers it."""

from __future__ import annotations

from typing import Final

from hookgate._proto import plugin_pb2
from hookgate.plugin import Manifest
from hookgate.point import POINTS

_PROTOCOL_VERSIONS: Final = (1,)
"""The versions of the contract that the SDK speaks."""

_ACCESS: Final = {"read": plugin_pb2.ACCESS_READ, "modify": plugin_pb2.ACCESS_MODIFY}
_SIDE_EFFECTS: Final = {"none": plugin_pb2.SIDE_EFFECTS_NONE, "some": plugin_pb2.SIDE_EFFECTS_SOME}


def describe(manifest: Manifest) -> plugin_pb2.DescribeResponse:
    return plugin_pb2.DescribeResponse(
        name=manifest.name,
        version=manifest.version,
        protocol_versions=_PROTOCOL_VERSIONS,
        points=[
            plugin_pb2.PointOffer(
                point=POINTS[point],
                access=_ACCESS[offer.access],
                side_effects=_SIDE_EFFECTS[offer.side_effects],
                reads=None if offer.reads is None else plugin_pb2.PayloadFields(names=offer.reads),
                windows=offer.windows,
            )
            for point, offer in manifest.points.items()
        ],
        capabilities=manifest.capabilities,
        config_schema=manifest.config_schema,
        tenant_config_schema=manifest.tenant_config_schema,
        hooks=[
            plugin_pb2.HookOffer(hook=hook, side_effects=_SIDE_EFFECTS[offer.side_effects])
            for hook, offer in manifest.hooks.items()
        ],
        tools=manifest.tool_names,
    )
