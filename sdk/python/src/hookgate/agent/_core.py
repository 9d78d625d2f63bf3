"""An agent's calls without their sending, which the async and the blocking agent do each in their way.

It implements most of a caller's duties (docs/protocol.md, section 4): context, token, deadline, trace, and what
follows from an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar, cast

from google.protobuf.message import DecodeError, Message
from opentelemetry import propagate

from hookgate._json import dumps, well_formed
from hookgate._proto import gateway_pb2
from hookgate.agent import _answers, _payloads
from hookgate.agent._context import CallContext, check_context, current_context, encode_context, merge_contexts
from hookgate.agent._errors import Blocked, CallError, CallFailure, NoDecision, malformed
from hookgate.agent._options import (
    Caller,
    CallOptions,
    HookCallOptions,
    OnNoDecision,
    PointCallOptions,
    check_caller,
    check_flag,
    check_names,
    check_on_no_decision,
    check_timeout,
    on_no_decision_by_point,
)
from hookgate.agent._payloads import P, PayloadCodec
from hookgate.agent._types import Continue, HookAnswer, ToolList, ToolResult
from hookgate.point import PointName

_CALL_OPTIONS: Final = tuple(CallOptions.__annotations__)
_POINT_OPTIONS: Final = tuple(PointCallOptions.__annotations__)
_HOOK_OPTIONS: Final = tuple(HookCallOptions.__annotations__)
_TRACE_HEADERS: Final = ("traceparent", "tracestate")
"""The headers of a trace (W3C Trace Context). Propagators may write others, which are not for the gateway."""
_HOOK_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True)
class Request:
    """A call that is ready to be sent, once."""

    path: str
    """The method's path, as in HTTP/2."""
    body: bytes
    """The encoded message."""
    headers: tuple[tuple[str, str], ...]
    """All but the token's."""
    timeout: float
    """Seconds, of which getting the token takes some; 0 or less if the time is already over."""
    context: CallContext
    """For the token source."""


@dataclass(frozen=True, slots=True)
class PointMethod(Generic[P]):
    """How a point is called."""

    name: PointName
    path: str
    codec: PayloadCodec[P]
    request: Callable[[], Message]
    answer: type[Message]


_POINT_SERVICE: Final = "/hookgate.gateway.v1.ExtensionPointService/"

BEFORE_LLM_REQUEST: Final = PointMethod(
    "before_llm_request",
    _POINT_SERVICE + "BeforeLlmRequest",
    _payloads.BEFORE_LLM_REQUEST,
    gateway_pb2.BeforeLlmRequestRequest,
    gateway_pb2.BeforeLlmRequestResponse,
)
BEFORE_TOOL_CALL: Final = PointMethod(
    "before_tool_call",
    _POINT_SERVICE + "BeforeToolCall",
    _payloads.BEFORE_TOOL_CALL,
    gateway_pb2.BeforeToolCallRequest,
    gateway_pb2.BeforeToolCallResponse,
)
AFTER_TOOL_RESULT: Final = PointMethod(
    "after_tool_result",
    _POINT_SERVICE + "AfterToolResult",
    _payloads.AFTER_TOOL_RESULT,
    gateway_pb2.AfterToolResultRequest,
    gateway_pb2.AfterToolResultResponse,
)
BEFORE_RESPONSE: Final = PointMethod(
    "before_response",
    _POINT_SERVICE + "BeforeResponse",
    _payloads.BEFORE_RESPONSE,
    gateway_pb2.BeforeResponseRequest,
    gateway_pb2.BeforeResponseResponse,
)

_PointRequest = (
    gateway_pb2.BeforeLlmRequestRequest
    | gateway_pb2.BeforeToolCallRequest
    | gateway_pb2.AfterToolResultRequest
    | gateway_pb2.BeforeResponseRequest
)


@dataclass(frozen=True, slots=True)
class PointCall(Generic[P]):
    """A call at a point."""

    method: PointMethod[P]
    request: Request
    sent: Message
    """Its payload."""
    takes_results: bool
    on_no_decision: OnNoDecision

    def conclude(self, outcome: bytes | CallFailure) -> Continue[P] | ToolResult:
        """What follows from the gateway's answer, or from the lack of one.

        :raises Blocked: A plugin stopped the action.
        :raises NoDecision: There is no decision, and the agent may not go on.
        """
        meaning = outcome if isinstance(outcome, CallFailure) else self._read(outcome)
        if isinstance(meaning, Blocked):
            raise meaning
        if not isinstance(meaning, CallFailure):
            return meaning
        no_decision = NoDecision(self.method.name, meaning)
        # An error that the request can cause stops: who ignores an outage must not be brought to ignore a rule.
        if not no_decision.is_transient or self.on_no_decision != "go_on":
            raise no_decision
        return Continue(payload=self.method.codec.wrap(self.sent), modified=False, no_decision=no_decision)

    def _read(self, data: bytes) -> Continue[P] | ToolResult | Blocked | CallFailure:
        request_id = None
        try:
            answer = self.method.answer.FromString(data)
            request_id = cast("_PointResponse", answer).request_id or None
            return _answers.read_decision(
                self.method.name, self.method.codec, answer, sent=self.sent, takes_results=self.takes_results
            )
        except (DecodeError, ValueError) as cause:
            return malformed(str(cause), request_id, cause)


_PointResponse = (
    gateway_pb2.BeforeLlmRequestResponse
    | gateway_pb2.BeforeToolCallResponse
    | gateway_pb2.AfterToolResultResponse
    | gateway_pb2.BeforeResponseResponse
)


@dataclass(frozen=True, slots=True)
class HookCall:
    """A call at a lifecycle hook."""

    request: Request
    hook: str

    def conclude(self, outcome: bytes | CallFailure) -> HookAnswer:
        """:raises CallError: There is no answer."""
        what = f"no answer at the hook {self.hook}"
        return _answer_of(what, outcome, gateway_pb2.RunHookResponse, _answers.read_hook_answer)


@dataclass(frozen=True, slots=True)
class ToolsCall:
    """A call for the list of tools."""

    request: Request

    def conclude(self, outcome: bytes | CallFailure) -> ToolList:
        """:raises CallError: There is no answer."""
        return _answer_of("no list of tools", outcome, gateway_pb2.ListToolsResponse, _answers.read_tool_list)


_Answer = TypeVar("_Answer")


def _answer_of(what: str, outcome: bytes | CallFailure, message: type[_M], read: Callable[[_M], _Answer]) -> _Answer:
    if isinstance(outcome, CallFailure):
        raise CallError(what, outcome)
    try:
        return read(message.FromString(outcome))
    except (DecodeError, ValueError) as cause:
        raise CallError(what, malformed(str(cause), cause=cause)) from cause


class Core:
    """What holds for every call of an agent. Makes calls that are ready to be sent."""

    def __init__(self, *, context: object, timeout: object, trace: object, on_no_decision: object) -> None:
        """:raises TypeError: An option has another type.
        :raises ValueError: An option has a value that it can't have.
        """
        self._context: CallContext = {} if context is None else check_context(context)
        self._timeout = check_timeout(timeout)
        self._trace = check_flag("trace", trace)
        self._on_no_decision = on_no_decision_by_point(on_no_decision)

    def point_call(self, method: PointMethod[P], payload: object, arguments: Mapping[str, object]) -> PointCall[P]:
        """:raises TypeError: An argument isn't known, is missing or has another type. The message names it.
        :raises ValueError: An argument has a value that can't be sent.
        """
        codec = method.codec
        options = (*_POINT_OPTIONS, "takes_results") if method.name == "before_tool_call" else _POINT_OPTIONS
        check_names(method.name, arguments, (*codec.names, *options))
        members = {name: value for name, value in arguments.items() if name in codec.names}
        on_no_decision = self._on_no_decision[method.name]
        if "on_no_decision" in arguments:
            on_no_decision = check_on_no_decision(arguments["on_no_decision"])
        takes_results = check_flag("takes_results", arguments.get("takes_results", False))
        context = self._merged(arguments)
        message = cast("_PointRequest", method.request())
        message.context.CopyFrom(encode_context(context))
        codec.encode(message.payload, method.name, payload, members)
        message.trace = check_flag("trace", arguments.get("trace", self._trace))
        if isinstance(message, gateway_pb2.BeforeToolCallRequest):
            message.takes_results = takes_results
        _expect_plan(message, arguments)
        request = self._request(method.path, message, context, arguments)
        return PointCall(method, request, message.payload, takes_results, on_no_decision)

    def hook_call(self, hook: object, body: object, arguments: Mapping[str, object]) -> HookCall:
        """:raises TypeError: An argument isn't known or has another type. The message names it.
        :raises ValueError: An argument has a value that can't be sent.
        """
        check_names("run_hook", arguments, _HOOK_OPTIONS)
        if not isinstance(hook, str):
            raise TypeError(f"hook must be a str, is of the type {type(hook).__name__}")
        if not _HOOK_NAME.fullmatch(hook):
            raise ValueError(f"the hook's name must match {_HOOK_NAME.pattern}")
        data = dumps(body, "body")
        if not data.startswith(b"{"):
            raise TypeError(f"body must be a mapping, is of the type {type(body).__name__}")
        context = self._merged(arguments)
        message = gateway_pb2.RunHookRequest(context=encode_context(context), hook=hook, body=data)
        _expect_plan(message, arguments)
        path = "/hookgate.gateway.v1.HookService/RunHook"
        return HookCall(self._request(path, message, context, arguments), hook)

    def tools_call(self, arguments: Mapping[str, object]) -> ToolsCall:
        """:raises TypeError: An argument isn't known or has another type. The message names it.
        :raises ValueError: An argument has a value that can't be sent.
        """
        check_names("list_tools", arguments, _CALL_OPTIONS)
        path = "/hookgate.gateway.v1.ToolService/ListTools"
        return ToolsCall(self._request(path, gateway_pb2.ListToolsRequest(), self._merged(arguments), arguments))

    def _merged(self, arguments: Mapping[str, object]) -> CallContext:
        """The context of a call."""
        if "context" not in arguments:
            return merge_contexts(self._context, current_context())
        return merge_contexts(self._context, current_context(), check_context(arguments["context"]))

    def _request(self, path: str, message: Message, context: CallContext, arguments: Mapping[str, object]) -> Request:
        timeout = check_timeout(arguments["timeout"]) if "timeout" in arguments else self._timeout
        caller = cast("Caller | None", arguments.get("caller"))
        if caller is not None:
            check_caller(caller)
            left_ms = caller.time_left_ms
            timeout = timeout if left_ms is None else min(timeout, left_ms / 1000)
        headers = _headers(context.get("correlation_id"), caller)
        return Request(path, message.SerializeToString(), headers, timeout, context)


class _WithPlanDigest(Protocol):
    expect_plan_digest: str


def _expect_plan(message: _WithPlanDigest, arguments: Mapping[str, object]) -> None:
    digest = arguments.get("expect_plan_digest")
    if digest is None:
        return
    if not isinstance(digest, str):
        raise TypeError(f"expect_plan_digest must be a str, is of the type {type(digest).__name__}")
    message.expect_plan_digest = well_formed(digest)


def _headers(correlation_id: str | None, caller: Caller | None) -> tuple[tuple[str, str], ...]:
    headers = _trace_headers(caller)
    if correlation_id is not None:
        headers.append(("x-request-id", correlation_id))
    if caller is not None and caller.depth > 0:
        headers.append(("hookgate-depth", str(caller.depth)))
    return tuple(headers)


def _trace_headers(caller: Caller | None) -> list[tuple[str, str]]:
    """Those of the active span if there is one, otherwise those of the caller."""
    active: dict[str, str] = {}
    propagate.inject(active)
    if "traceparent" in active:
        return [(name, active[name]) for name in _TRACE_HEADERS if active.get(name)]
    if caller is None:
        return []
    of_caller = (("traceparent", caller.traceparent), ("tracestate", caller.tracestate))
    return [(name, value) for name, value in of_caller if value]
