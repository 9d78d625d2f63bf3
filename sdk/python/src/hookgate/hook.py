"""The bodies of the lifecycle hooks that the gateway knows (docs/protocol.md, section 9). The gateway has checked them.

`async def recall(call: HookPayload[RecallBody], ctx: Context) -> HookReply` makes `call.body["message"]` a text for a
type checker.
"""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict

from hookgate._json import JsonObject, JsonValue

__all__ = [
    "AgentBody",
    "CompactBody",
    "EventBody",
    "RecallBody",
    "RunBody",
    "SessionBody",
    "SubagentBody",
    "TurnEndBody",
]


class RecallBody(TypedDict):
    """`recall`: a message came, and memories are wanted."""

    message: str
    """The message, such as the user's question."""


class TurnEndBody(TypedDict):
    """`turn_end`: the agent finished its answer."""

    messages: list[JsonObject]
    """The messages of the turn, in the agent's own format."""
    outcome: NotRequired[str]
    """How it ended, in the agent's own words."""


class SessionBody(TypedDict):
    """`session_start`, `session_idle` and `session_end`: a conversation began, rests, ended."""

    messages: NotRequired[list[JsonObject]]
    """The messages, in the agent's own format."""


class RunBody(TypedDict):
    """`run_start` and `run_end`: a run began, ended."""

    outcome: NotRequired[str]
    """How it ended, in the agent's own words."""


class SubagentBody(TypedDict):
    """`subagent_start` and `subagent_end`: a run within a run began, ended."""

    child: str
    """The inner run or its agent, in the agent's own words."""
    outcome: NotRequired[str]
    """How it ended, in the agent's own words."""


class CompactBody(TypedDict):
    """`before_compact`, `after_compact` and `assemble`: the context is shortened, or put together for a request."""

    messages: list[JsonObject]
    """The messages, in the agent's own format."""
    strategy: NotRequired[str]
    """How the context becomes shorter, in the agent's own words."""
    trigger: NotRequired[str]
    """Why it becomes shorter, in the agent's own words."""


class AgentBody(TypedDict):
    """`agent_start` and `agent_end`: the agent's process began, ends."""

    tools: NotRequired[list[JsonObject]]
    """The agent's tools, in its own format."""
    reason: NotRequired[str]
    """Why the process began or ends, in the agent's own words."""


class EventBody(TypedDict):
    """`event`: anything else."""

    kind: str
    """What happened."""
    data: NotRequired[JsonValue]
    """Facts about it: any JSON value."""
