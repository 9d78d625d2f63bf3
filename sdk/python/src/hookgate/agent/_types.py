"""What an agent gets back from a gateway. Names are those of the protos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

from hookgate._json import JsonObject, JsonValue
from hookgate.payload import AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall
from hookgate.tool import ToolAnnotations

if TYPE_CHECKING:
    from hookgate.agent._errors import NoDecision

Payload: TypeAlias = BeforeLlmRequest | BeforeToolCall | AfterToolResult | BeforeResponse
"""A payload of any point."""

P_co = TypeVar("P_co", bound=Payload, covariant=True)

StepOutcome: TypeAlias = Literal[
    "continued",
    "modified",
    "cancelled",
    "would_block",
    "failed",
    "failed_open",
    "skipped_condition",
    "skipped_budget",
    "observed",
    "cancelled_by_caller",
    "answered",
    "contributed",
    "unknown",
]
"""How one step of the chain ended. `unknown` is an outcome that this version of the SDK doesn't know."""

StepReason: TypeAlias = Literal[
    "timeout",
    "budget",
    "unreachable",
    "breaker_open",
    "bulkhead_full",
    "not_ready",
    "rpc_error",
    "bad_reply",
    "forbidden_patch",
    "too_large",
    "point_not_offered",
    "unknown_plugin",
    "condition_error",
    "unknown",
]
"""Why a step failed or was skipped. `unknown` is a reason that this version of the SDK doesn't know."""

NoticeKind: TypeAlias = Literal["allow", "block", "warn", "info", "unknown"]
"""Severity of a notice. `unknown` is one that this version of the SDK doesn't know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the chain."""

    plugin: str
    """The plugin."""
    binding: str
    """The binding that put it into the chain."""
    outcome: StepOutcome
    """How it ended."""
    reason: StepReason | None = None
    """Why it failed, or was skipped for lack of time."""
    duration_us: int
    """Time spent in it, in microseconds; 0 for observers and steps that were not called."""
    changes: JsonObject | None = None
    """The members of the payload that it changed, with their new values and named as over HTTP; only with `trace`."""
    code: str | None = None
    """The code with which the plugin would have blocked; only with the outcome `would_block`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginNotice:
    """A notice with the plugin that gave it."""

    plugin: str | None = None
    """The plugin, if the gateway reveals it."""
    kind: NoticeKind
    """Severity."""
    code: str | None = None
    """For programs."""
    message: str
    """For people."""
    details: JsonObject | None = None
    """Facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFacts:
    """Facts about an answer, for logs and for `expect_plan_digest`."""

    notices: tuple[PluginNotice, ...] = ()
    """The plugins' notices, in the order of the chain."""
    steps: tuple[Step, ...] = ()
    """What happened at each step; empty if the gateway doesn't reveal it."""
    plan_digest: str = ""
    """Digest of the plan that ran: lower-case hex SHA-256."""
    revision: int = 0
    """Revision of the gateway's routing table."""
    request_id: str = ""
    """The gateway's id of this invocation (UUIDv7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue(AnswerFacts, Generic[P_co]):
    """Go on, with this payload."""

    decision: Literal["continue"] = "continue"
    """Tells it from a `ToolResult`."""
    payload: P_co
    """The payload as the chain left it: use it, not your own."""
    modified: bool
    """Whether a plugin changed it."""
    no_decision: NoDecision | None = None
    """Why there was no decision, if the agent was told to go on without one. The payload is then the agent's own, and
    the facts are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(AnswerFacts):
    """Don't run the tool: a plugin gave its result. Go on as if the tool had run: `after_tool_result` follows."""

    decision: Literal["answer"] = "answer"
    """Tells it from a `Continue`."""
    result: JsonValue
    """The tool's result, any JSON value."""
    payload: BeforeToolCall
    """The payload as the chain left it."""
    modified: bool
    """Whether a plugin changed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContribution:
    """What one plugin contributed at a hook."""

    plugin: str | None = None
    """The plugin, if the gateway reveals it."""
    kind: str
    """What it is, such as `memory`."""
    value: JsonValue
    """Any JSON value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer(AnswerFacts):
    """What the plugins contributed at a hook."""

    contributions: tuple[PluginContribution, ...]
    """In the order of the chain; those of one plugin in its own order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool with the plugin that provides it."""

    name: str
    """The `tool_name` of its calls: `[A-Za-z0-9_.-]{1,128}`."""
    description: str
    """What the tool does, for the model."""
    input_schema: JsonObject
    """JSON Schema of the arguments, whose `type` is `object`."""
    annotations: ToolAnnotations | None = None
    """What to expect of the tool."""
    plugin: str | None = None
    """The plugin, if the gateway reveals it."""
    binding: str | None = None
    """The binding that puts it into the chain, if the gateway reveals it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolList:
    """The tools of the tenant's plugins."""

    tools: tuple[ListedTool, ...]
    """In the order of their names."""
    plan_digest: str
    """That of `before_tool_call`: if an answer there has another one, list the tools again."""
    revision: int
    """Revision of the gateway's routing table."""
