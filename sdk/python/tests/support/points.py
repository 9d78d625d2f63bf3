"""A fake gateway that answers each point as a test says, and echoes the others. Payloads are seen as plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

import grpc
from google.protobuf.message import Message

from hookgate._json import JsonValue, dumps, loads
from hookgate._proto import gateway_pb2, types_pb2
from hookgate.agent import Agent
from support.fake_gateway import Failure, FakeGateway, Hang, ReceivedCall, Reply, echo

Values: TypeAlias = dict[str, JsonValue]
"""The members of a payload that are there, without images and files."""

PointReply: TypeAlias = Callable[[Message, Values], Reply]
"""Gets the response of a gateway that changes nothing, and the values of its payload."""

_RESPONSES: Mapping[str, Callable[..., Message]] = {
    "BeforeLlmRequest": gateway_pb2.BeforeLlmRequestResponse,
    "BeforeToolCall": gateway_pb2.BeforeToolCallResponse,
    "AfterToolResult": gateway_pb2.AfterToolResultResponse,
    "BeforeResponse": gateway_pb2.BeforeResponseResponse,
}


class Points:
    """A gateway with an agent."""

    def __init__(self, gateway: FakeGateway, **replies: PointReply) -> None:
        """`replies` are named like the points."""
        self._gateway = gateway
        self._replies = {name.title().replace("_", ""): reply for name, reply in replies.items()}
        assert set(self._replies) <= set(_RESPONSES)
        gateway.script = self._answer
        self.agent = Agent(gateway.url, token="token")

    @property
    def names(self) -> list[str]:
        """The points that were called, in order."""
        return [call.method for call in self._gateway.calls]

    def payloads(self, point: str) -> list[Values]:
        """The payloads at a point, in order."""
        return [_values(_payload(call)) for call in self._gateway.calls if call.method == point]

    def media(self, point: str) -> list[types_pb2.Media]:
        """All images and files at a point."""
        payloads = [_payload(call) for call in self._gateway.calls if call.method == point]
        return [medium for payload in payloads for name in ("images", "files") for medium in getattr(payload, name)]

    def sessions(self) -> list[str]:
        """The sessions of all calls, in order."""
        return [getattr(call.message, "context").session_id for call in self._gateway.calls]  # noqa: B009

    def _answer(self, call: ReceivedCall) -> Reply:
        reply = self._replies.get(call.method)
        unchanged = echo(call)
        return unchanged if reply is None else reply(cast("Message", unchanged), _values(_payload(call)))


def patch(change: Callable[[Values], Values] | None = None, **members: JsonValue) -> PointReply:
    """Changes members of the payload."""

    def reply(response: Message, values: Values) -> Reply:
        changed = change(values) if change else members
        payload: Message = getattr(response, "payload")  # noqa: B009
        for name, value in changed.items():
            is_bytes = isinstance(getattr(payload, name), bytes)
            setattr(payload, name, dumps(value) if is_bytes else value)
        setattr(response, "modified", True)  # noqa: B010
        return response

    return reply


def block(message: str, scope: str = "step") -> PointReply:
    """Stops the action."""

    def reply(response: Message, _: Values) -> Reply:
        scopes = {"step": types_pb2.CANCEL_SCOPE_STEP, "run": types_pb2.CANCEL_SCOPE_RUN}
        setattr(response, "decision", types_pb2.DECISION_BLOCK)  # noqa: B010
        getattr(response, "block").CopyFrom(  # noqa: B009
            gateway_pb2.Block(code="BLOCKED", message=message, scope=scopes[scope])
        )
        return response

    return reply


def answer(result: JsonValue) -> PointReply:
    """Gives the tool's result."""

    def reply(response: Message, _: Values) -> Reply:
        assert isinstance(response, gateway_pb2.BeforeToolCallResponse)
        response.decision = types_pb2.DECISION_ANSWER
        response.result = dumps(result)
        return response

    return reply


def outage(_: Message, __: Values) -> Reply:
    """Makes no decision."""
    detail = "plugin p failed: cannot connect to unix:///p"
    return Failure(grpc.StatusCode.UNAVAILABLE, detail, code="PLUGIN_UNAVAILABLE")


def for_tool(name: str, before: PointReply) -> PointReply:
    """Answers so before this tool, and changes nothing before others."""
    return lambda response, values: before(response, values) if values["tool_name"] == name else response


def hang(_: Message, __: Values) -> Reply:
    """Doesn't answer."""
    return Hang()


def replace_text(old: str, new: str) -> PointReply:
    """Replaces a text everywhere in a payload."""
    return patch(lambda values: {name: _replace(value, old, new) for name, value in values.items()})


def redacted(text: str) -> str:
    """A text without the numbers of cards and the addresses that stand alone in it."""
    return re.sub(r"[\w.]+@[\w.]+", "[EMAIL]", re.sub(r"\b\d{16}\b", "[CARD]", text))


def redact(response: Message, values: Values) -> Reply:
    """Redacts an answer."""
    changed: Values = {name: redacted(str(values[name])) for name in ("content", "reasoning") if name in values}
    return patch(lambda _: changed)(response, values)


CARD: Final = ("Card 4111111111111111", "2 cards found")
"""Two texts. The number of the card ends with the first one."""

CARD_REDACTED: Final = ("Card [CARD]", "2 cards found")

EMAIL: Final = ("I write to ada@example.com", "Next I read.")
"""A text before a call of a tool, and one after it."""

EMAIL_REDACTED: Final = ("I write to [EMAIL]", "Next I read.")


def _replace(value: JsonValue, old: str, new: str) -> JsonValue:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [_replace(item, old, new) for item in value]
    if isinstance(value, dict):
        return {name: _replace(member, old, new) for name, member in value.items()}
    return value


def _payload(call: ReceivedCall) -> Message:
    return cast("Message", getattr(call.message, "payload"))  # noqa: B009


def _values(payload: Message) -> Values:
    values: Values = {}
    for descriptor, value in payload.ListFields():
        if isinstance(value, bytes):
            values[descriptor.name] = loads(value)
        elif isinstance(value, (str, bool, int)):
            values[descriptor.name] = value
    return values


RUN_ENDS: dict[str, tuple[str, PointReply]] = {
    "a block of the request": ("before_llm_request", block("stop")),
    "a block of the run before the request": ("before_llm_request", block("stop", "run")),
    "a block of the run before a tool": ("before_tool_call", block("stop", "run")),
    "a block of the run after a tool": ("after_tool_result", block("stop", "run")),
    "a block of the run before the response": ("before_response", block("stop", "run")),
    "no decision before the request": ("before_llm_request", outage),
    "no decision before a tool": ("before_tool_call", outage),
    "no decision after a tool": ("after_tool_result", outage),
    "no decision before the response": ("before_response", outage),
}
"""What ends a run of an agent with tools: the point and its reply."""
