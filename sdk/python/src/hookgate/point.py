"""The extension points, and what a plugin offers at a point or a hook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from hookgate._proto import types_pb2

PointName: TypeAlias = Literal["before_llm_request", "before_tool_call", "after_tool_result", "before_response"]
"""The four places of an agent's loop at which plugins run."""

Access: TypeAlias = Literal["read", "modify"]
"""`read`: the plugin may look and cancel. `modify`: it may also patch the payload."""

SideEffects: TypeAlias = Literal["none", "some"]
"""Whether a call counts, stores or sends something."""

LlmRequestField: TypeAlias = Literal["text", "images", "files", "system_prompt", "messages", "tools", "extra"]
"""A member of `BeforeLlmRequest` that can be large."""

ToolCallField: TypeAlias = Literal["args", "extra"]
"""A member of `BeforeToolCall` that can be large."""

ToolResultField: TypeAlias = Literal["result", "args", "extra"]
"""A member of `AfterToolResult` that can be large."""

ResponseField: TypeAlias = Literal["content", "reasoning", "extra"]
"""A member of `BeforeResponse` that can be large."""

PayloadField: TypeAlias = LlmRequestField | ToolCallField | ToolResultField | ResponseField
"""A member of a payload that can be large."""

Capability: TypeAlias = Literal["storage:read", "storage:write", "log", "emit"]
"""What a plugin may ask of a gateway. The gateway's operator grants it."""

POINTS: Final[dict[PointName, types_pb2.ExtensionPoint.ValueType]] = {
    "before_llm_request": types_pb2.EXTENSION_POINT_BEFORE_LLM_REQUEST,
    "before_tool_call": types_pb2.EXTENSION_POINT_BEFORE_TOOL_CALL,
    "after_tool_result": types_pb2.EXTENSION_POINT_AFTER_TOOL_RESULT,
    "before_response": types_pb2.EXTENSION_POINT_BEFORE_RESPONSE,
}
"""All of them, in the order of an agent's loop."""

FIELDS: Final[dict[PointName, tuple[str, ...]]] = {
    "before_llm_request": get_args(LlmRequestField),
    "before_tool_call": get_args(ToolCallField),
    "after_tool_result": get_args(ToolResultField),
    "before_response": get_args(ResponseField),
}
"""The members of each point's payload that can be large."""

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
    reads: Sequence[PayloadField] | None = None
    """The large members of the payload that the handler reads. The gateway sends no others: they are as if absent.

    With `()` it sends none of them, and by default all. Small members, such as `tool_name`, are always sent. A patch
    may replace a member that isn't read. Counts only at points.
    """
    windows: bool = False
    """Only at `before_response`: whether the handler also judges an answer in parts, while the model still writes it.

    A call about a part has `call.window`, and the handler answers with `proceed(consumed=...)`. What it has let pass
    goes to the user at once. It needs the member `content`. Whole answers come too, as without windows.
    """

    def __post_init__(self) -> None:
        # A misspelt word in code without a type checker must not become the default.
        if self.access not in get_args(Access):
            raise ValueError(f'`access` must be "read" or "modify", not {self.access!r}')
        if self.side_effects not in get_args(SideEffects):
            raise ValueError(f'`side_effects` must be "none" or "some", not {self.side_effects!r}')
        if isinstance(self.reads, str):
            raise ValueError(f"`reads` must be a list of names, not {self.reads!r}")
        if not isinstance(self.windows, bool):
            raise ValueError(f"`windows` must be True or False, not {self.windows!r}")


def check_offer(point: PointName, offer: Offer) -> None:
    """Checks what is offered at a point, as far as that depends on the point.

    :raises ValueError: If the point's payload has no large member of a name in `reads`, if one is named twice, or if
        there can be no windows.
    """
    _check_reads(point, offer)
    check_windows(point, offer)


def check_windows(site: str, offer: Offer) -> None:
    """Checks `windows` of what is offered at a point or a hook.

    :raises ValueError: If there can be no windows.
    """
    if offer.windows and site != "before_response":
        raise ValueError(f"`windows` is only for before_response, not for {site}")
    if offer.windows and offer.reads is not None and "content" not in offer.reads:
        raise ValueError("`windows` of before_response needs `content`: add it to `reads`")


def _check_reads(point: PointName, offer: Offer) -> None:
    fields, reads = FIELDS[point], tuple(offer.reads or ())
    unknown = next((name for name in reads if name not in fields), None)
    if unknown is not None:
        raise ValueError(f"`reads` of {point} names {unknown!r}: choose from {', '.join(fields)}")
    twice = next((name for index, name in enumerate(reads) if name in reads[:index]), None)
    if twice is not None:
        raise ValueError(f"`reads` of {point} names {twice!r} twice")
