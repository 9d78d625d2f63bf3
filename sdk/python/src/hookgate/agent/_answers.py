"""Reads a gateway's answers. An answer that isn't exactly one decision is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Protocol, TypedDict, TypeVar, cast, get_args

from google.protobuf.message import Message

from hookgate._json import JsonObject, JsonValue, loads
from hookgate._proto import gateway_pb2, types_pb2
from hookgate.agent._errors import Blocked, BlockFacts
from hookgate.agent._payloads import P, PayloadCodec
from hookgate.agent._types import (
    Continue,
    HookAnswer,
    ListedTool,
    NoticeKind,
    PluginContribution,
    PluginNotice,
    Step,
    StepOutcome,
    StepReason,
    ToolList,
    ToolResult,
)
from hookgate.payload import BeforeToolCall
from hookgate.point import PointName
from hookgate.tool import ToolAnnotations

_Name = TypeVar("_Name", bound=str)

# Their numbers in the protos begin at 1. The last one is for numbers of a later version.
_OUTCOMES: Final[tuple[StepOutcome, ...]] = get_args(StepOutcome)
_REASONS: Final[tuple[StepReason, ...]] = get_args(StepReason)
_NOTICE_KINDS: Final[tuple[NoticeKind, ...]] = get_args(NoticeKind)


def _named(number: int, names: tuple[_Name, ...]) -> _Name:
    return names[number - 1] if 1 <= number < len(names) else names[-1]


class _Answer(Protocol):
    """What answers at points and at hooks have in common."""

    plan_digest: str
    revision: int
    request_id: str

    @property
    def notices(self) -> Iterable[gateway_pb2.PluginNotice]: ...
    @property
    def steps(self) -> Iterable[gateway_pb2.Step]: ...


class _PointAnswer(_Answer, Protocol):
    """The answer at any point, whose messages have the same fields."""

    decision: types_pb2.Decision.ValueType
    modified: bool

    @property
    def payload(self) -> Message: ...
    @property
    def block(self) -> gateway_pb2.Block: ...


class _Facts(TypedDict):
    notices: tuple[PluginNotice, ...]
    steps: tuple[Step, ...]
    plan_digest: str
    revision: int
    request_id: str


def read_decision(
    point: PointName, codec: PayloadCodec[P], answer: Message, *, sent: Message, takes_results: bool
) -> Continue[P] | ToolResult | Blocked:
    """What an answer at a point means.

    :param sent: The payload of the call.
    :param takes_results: Whether the agent takes a tool's result from a plugin.
    :raises ValueError: The answer is malformed.
    """
    fields = cast("_PointAnswer", answer)
    has_block = answer.HasField("block")
    result = answer.result if isinstance(answer, gateway_pb2.BeforeToolCallResponse) else b""
    if fields.decision not in (types_pb2.DECISION_CONTINUE, types_pb2.DECISION_BLOCK, types_pb2.DECISION_ANSWER):
        raise ValueError("it has no decision that this version of the SDK knows")
    if (fields.decision == types_pb2.DECISION_BLOCK) != has_block:
        raise ValueError("its decision and its block contradict each other")
    if (fields.decision == types_pb2.DECISION_ANSWER) != bool(result):
        raise ValueError("its decision and its result contradict each other")
    if not answer.HasField("payload"):
        raise ValueError("it has no payload")
    payload = codec.decode(fields.payload, sent)
    facts = _read_facts(fields)
    if has_block:
        return _blocked(point, fields.block, payload, facts)
    modified = fields.modified
    if not result:
        return Continue(payload=payload, modified=modified, **facts)
    if not takes_results:
        raise ValueError("it is a result that was not asked for")
    # Only answers at `before_tool_call` have a result.
    called = cast("BeforeToolCall", payload)
    return ToolResult(result=loads(result, "result"), payload=called, modified=modified, **facts)


def _blocked(point: PointName, block: gateway_pb2.Block, payload: P, facts: _Facts) -> Blocked:
    scope: Literal["step", "run"] = "run" if block.scope == types_pb2.CANCEL_SCOPE_RUN else "step"
    return Blocked(
        BlockFacts(
            point=point,
            code=block.code,
            message=block.message,
            scope=scope,
            retry_after_ms=block.retry_after_ms if block.HasField("retry_after_ms") else None,
            plugin=block.plugin if block.HasField("plugin") else None,
            binding=block.binding if block.HasField("binding") else None,
            payload=payload,
            **facts,
        )
    )


def _read_facts(answer: _Answer) -> _Facts:
    return {
        "notices": tuple(map(_read_notice, answer.notices)),
        "steps": read_steps(answer.steps),
        "plan_digest": answer.plan_digest,
        "revision": answer.revision,
        "request_id": answer.request_id,
    }


def _read_notice(notice: gateway_pb2.PluginNotice) -> PluginNotice:
    return PluginNotice(
        plugin=notice.plugin if notice.HasField("plugin") else None,
        kind=_named(notice.kind, _NOTICE_KINDS),
        code=notice.code if notice.HasField("code") else None,
        message=notice.message,
        details=_read_object(notice.details, "details"),
    )


def read_steps(steps: Iterable[gateway_pb2.Step]) -> tuple[Step, ...]:
    """The steps of a chain.

    :raises ValueError: The changes of a step are malformed.
    """
    return tuple(map(_read_step, steps))


def _read_step(step: gateway_pb2.Step) -> Step:
    return Step(
        plugin=step.plugin,
        binding=step.binding,
        outcome=_named(step.outcome, _OUTCOMES),
        reason=None if step.reason == 0 else _named(step.reason, _REASONS),
        duration_us=step.duration_us,
        changes=_read_object(step.changes, "changes"),
        code=step.code if step.HasField("code") else None,
    )


def read_step_reason(name: str | None) -> StepReason | None:
    """The reason of a step by its name, as it is in the details of an error."""
    return None if name is None else next((reason for reason in _REASONS if reason == name), "unknown")


def _read_object(data: bytes, name: str) -> JsonObject | None:
    """:raises ValueError: It is no JSON object."""
    if not data:
        return None
    value = loads(data, name)
    if isinstance(value, dict):
        return value
    raise ValueError(f"{name} is no object")


def _read_required(data: bytes, name: str) -> JsonValue:
    """:raises ValueError: It is no JSON, or missing."""
    if data:
        return loads(data, name)
    raise ValueError(f"{name} is missing")


def read_hook_answer(answer: gateway_pb2.RunHookResponse) -> HookAnswer:
    """What plugins contributed.

    :raises ValueError: The answer is malformed.
    """
    contributions = tuple(
        PluginContribution(
            plugin=contribution.plugin if contribution.HasField("plugin") else None,
            kind=contribution.kind,
            value=_read_required(contribution.value, f"contributions[{index}].value"),
        )
        for index, contribution in enumerate(answer.contributions)
    )
    return HookAnswer(contributions=contributions, **_read_facts(answer))


def read_tool_list(answer: gateway_pb2.ListToolsResponse) -> ToolList:
    """The tools of plugins.

    :raises ValueError: The answer is malformed.
    """
    tools = tuple(_read_tool(tool, f"tools[{index}]") for index, tool in enumerate(answer.tools))
    return ToolList(tools=tools, plan_digest=answer.plan_digest, revision=answer.revision)


def _read_tool(tool: gateway_pb2.ListedTool, path: str) -> ListedTool:
    schema = _read_object(tool.input_schema, f"{path}.input_schema")
    if schema is None:
        raise ValueError(f"{path}.input_schema is missing")
    return ListedTool(
        name=tool.name,
        description=tool.description,
        input_schema=schema,
        annotations=_read_annotations(tool.annotations) if tool.HasField("annotations") else None,
        plugin=tool.plugin if tool.HasField("plugin") else None,
        binding=tool.binding if tool.HasField("binding") else None,
    )


def _read_annotations(annotations: types_pb2.ToolAnnotations) -> ToolAnnotations:
    return ToolAnnotations(
        title=annotations.title if annotations.HasField("title") else None,
        read_only_hint=annotations.read_only_hint if annotations.HasField("read_only_hint") else None,
        destructive_hint=annotations.destructive_hint if annotations.HasField("destructive_hint") else None,
        idempotent_hint=annotations.idempotent_hint if annotations.HasField("idempotent_hint") else None,
        open_world_hint=annotations.open_world_hint if annotations.HasField("open_world_hint") else None,
    )
