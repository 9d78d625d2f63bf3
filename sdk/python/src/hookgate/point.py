"""The extension points, and what a plugin offers at a point or a hook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from hookgate._proto import types_pb2

PointName: TypeAlias = Literal["before_llm_request", "before_tool_call", "after_tool_result", "before_response"]
"""The four places of an agent's loop at which plugins run."""

Access: TypeAlias = Literal["read", "modify"]
"""`read`: the plugin may look and cancel. `modify`: it may also patch the payload."""

SideEffects: TypeAlias = Literal["none", "some"]
"""Whether a call counts, stores or sends something."""

Capability: TypeAlias = Literal["storage:read", "storage:write", "log", "emit"]
"""What a plugin may ask of a gateway. The gateway's operator grants it."""

POINTS: Final[dict[PointName, types_pb2.ExtensionPoint.ValueType]] = {
    "before_llm_request": types_pb2.EXTENSION_POINT_BEFORE_LLM_REQUEST,
    "before_tool_call": types_pb2.EXTENSION_POINT_BEFORE_TOOL_CALL,
    "after_tool_result": types_pb2.EXTENSION_POINT_AFTER_TOOL_RESULT,
    "before_response": types_pb2.EXTENSION_POINT_BEFORE_RESPONSE,
}
"""All of them, in the order of an agent's loop."""

CAPABILITIES: Final[tuple[str, ...]] = get_args(Capability)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a plugin offers at a point or a hook. Say less than the default where you can: operators consent to it.

    :raises ValueError: If a member has another value than its type says.
    """

    access: Access = "modify"
    """Counts only at points."""
    side_effects: SideEffects = "some"
    """With `read` and `none` the gateway calls the plugin at the same time as its neighbours."""

    def __post_init__(self) -> None:
        # A misspelt word in code without a type checker must not become the default.
        if self.access not in get_args(Access):
            raise ValueError(f'`access` must be "read" or "modify", not {self.access!r}')
        if self.side_effects not in get_args(SideEffects):
            raise ValueError(f'`side_effects` must be "none" or "some", not {self.side_effects!r}')
