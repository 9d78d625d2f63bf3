"""The bodies of the lifecycle hooks that the gateway knows (docs/protocol.md, section 9). The gateway has checked them.

`async def recall(call: HookPayload[RecallBody], ctx: Context) -> HookReply` makes `call.body["message"]` a text for a
type checker.
"""

from __future__ import annotations

from typing_extensions import NotRequired, TypedDict

from hookgate._json import JsonObject, JsonValue


class RecallBody(TypedDict):
    """`recall`: a message came, and memories are wanted."""

    message: str


class TurnEndBody(TypedDict):
    """`turn_end`: the agent finished its answer."""

    messages: list[JsonObject]
    outcome: NotRequired[str]


class SessionBody(TypedDict):
    """`session_start`, `session_idle` and `session_end`: a conversation began, rests, ended."""

    messages: NotRequired[list[JsonObject]]


class RunBody(TypedDict):
    """`run_start` and `run_end`: a run began, ended."""

    outcome: NotRequired[str]


class SubagentBody(TypedDict):
    """`subagent_start` and `subagent_end`: a run within a run began, ended."""

    child: str
    outcome: NotRequired[str]


class CompactBody(TypedDict):
    """`before_compact`, `after_compact` and `assemble`: the context is shortened, or put together for a request."""

    messages: list[JsonObject]
    strategy: NotRequired[str]
    trigger: NotRequired[str]


class AgentBody(TypedDict):
    """`agent_start` and `agent_end`: the agent's process began, ends."""

    tools: NotRequired[list[JsonObject]]
    reason: NotRequired[str]


class EventBody(TypedDict):
    """`event`: anything else."""

    kind: str
    data: NotRequired[JsonValue]
