"""The agent for code that isn't async.

    from hookgate.agent.sync import Agent

    with Agent("http://127.0.0.1:8080", token=os.environ["HOOKGATE_TOKEN"]) as gateway:
        decision = gateway.before_tool_call(tool_name="shell.exec", args={"cmd": "ls"})

It uses the blocking client of gRPC, so it needs no event loop, and works in every thread.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, cast, overload

import grpc
from typing_extensions import Self, Unpack

from hookgate._channel import TlsFiles
from hookgate.agent import _core
from hookgate.agent._blocking import BlockingConnection
from hookgate.agent._context import CallContext
from hookgate.agent._core import Core, PointMethod, Request
from hookgate.agent._errors import CallFailure
from hookgate.agent._failure import failure_of, in_time, overdue, token_failure
from hookgate.agent._options import (
    DEFAULT_TIMEOUT,
    CallOptions,
    HookCallOptions,
    OnNoDecisionByPoint,
    PointCallOptions,
    SyncTokenSource,
    check_endpoint,
)
from hookgate.agent._payloads import P
from hookgate.agent._token import authorization, check_token
from hookgate.agent._types import Continue, HookAnswer, ToolList, ToolResult
from hookgate.media import Media
from hookgate.payload import AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, TokenUsage

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Agent"]


class Agent:
    """Calls a gateway as `hookgate.agent.Agent` does, and blocks the thread meanwhile.

    Threads may share an agent, and its connection. In an event loop, use `hookgate.agent.Agent`, which doesn't block
    it.

    The context of `call_context` isn't inherited by new threads; run those in `contextvars.copy_context()`.

    A process that was forked makes a connection of its own. gRPC doesn't support a fork while another thread is
    calling.
    """

    def __init__(
        self,
        gateway: str,
        *,
        token: SyncTokenSource | None = None,
        context: CallContext | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        trace: bool = False,
        on_no_decision: OnNoDecisionByPoint = "fail",
        ca: str | bytes | None = None,
        certificate: str | bytes | None = None,
        key: str | bytes | None = None,
    ) -> None:
        """The options are those of `hookgate.agent.Agent`, but for a token source, which may not be async.

        :raises TypeError: An option has another type.
        :raises ValueError: The address or an option is wrong, or the certificates can't be used.
        """
        check_token(token, may_await=False)
        address, files = check_endpoint(gateway, TlsFiles(ca, certificate, key))
        self._core = Core(context=context, timeout=timeout, trace=trace, on_no_decision=on_no_decision)
        self._token = token
        self._connection = BlockingConnection(address, files)

    @overload
    def before_llm_request(
        self, payload: BeforeLlmRequest, /, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeLlmRequest]: ...

    @overload
    def before_llm_request(
        self,
        /,
        *,
        text: str,
        images: Sequence[Media] | None = None,
        files: Sequence[Media] | None = None,
        system_prompt: str | None = None,
        messages: Sequence[object] | None = None,
        tools: Sequence[object] | None = None,
        extra: Mapping[str, object] | None = None,
        **options: Unpack[PointCallOptions],
    ) -> Continue[BeforeLlmRequest]: ...

    def before_llm_request(
        self, payload: BeforeLlmRequest | None = None, /, **arguments: object
    ) -> Continue[BeforeLlmRequest]:
        """Call it before a model is asked.

        :raises Blocked: A plugin stopped the request.
        :raises NoDecision: No decision could be made.
        """
        return self._continue(_core.BEFORE_LLM_REQUEST, payload, arguments)

    @overload
    def before_tool_call(
        self,
        payload: BeforeToolCall,
        /,
        *,
        takes_results: Literal[False] = False,
        **options: Unpack[PointCallOptions],
    ) -> Continue[BeforeToolCall]: ...

    @overload
    def before_tool_call(
        self, payload: BeforeToolCall, /, *, takes_results: bool, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeToolCall] | ToolResult: ...

    @overload
    def before_tool_call(
        self,
        /,
        *,
        tool_name: str,
        args: object,
        call_id: str | None = None,
        extra: Mapping[str, object] | None = None,
        takes_results: Literal[False] = False,
        **options: Unpack[PointCallOptions],
    ) -> Continue[BeforeToolCall]: ...

    @overload
    def before_tool_call(
        self,
        /,
        *,
        tool_name: str,
        args: object,
        call_id: str | None = None,
        extra: Mapping[str, object] | None = None,
        takes_results: bool,
        **options: Unpack[PointCallOptions],
    ) -> Continue[BeforeToolCall] | ToolResult: ...

    def before_tool_call(
        self, payload: BeforeToolCall | None = None, /, **arguments: object
    ) -> Continue[BeforeToolCall] | ToolResult:
        """Call it before a tool runs.

        With `takes_results` a plugin may give the tool's result: the `decision` is then `answer`. Without it, such a
        result is a block with the code TOOL_ANSWERED.

        :raises Blocked: A plugin stopped the call of the tool.
        :raises NoDecision: No decision could be made.
        """
        return self._decide(_core.BEFORE_TOOL_CALL, payload, arguments)

    @overload
    def after_tool_result(
        self, payload: AfterToolResult, /, **options: Unpack[PointCallOptions]
    ) -> Continue[AfterToolResult]: ...

    @overload
    def after_tool_result(
        self,
        /,
        *,
        tool_name: str,
        result: object,
        success: bool,
        args: object = None,
        call_id: str | None = None,
        duration_ms: float | None = None,
        extra: Mapping[str, object] | None = None,
        **options: Unpack[PointCallOptions],
    ) -> Continue[AfterToolResult]: ...

    def after_tool_result(
        self, payload: AfterToolResult | None = None, /, **arguments: object
    ) -> Continue[AfterToolResult]:
        """Call it after a tool ran, on success and on failure; not for a tool whose call was blocked.

        `args` are the arguments as executed. `duration_ms` is sent in whole milliseconds.

        :raises Blocked: A plugin stopped the result.
        :raises NoDecision: No decision could be made.
        """
        return self._continue(_core.AFTER_TOOL_RESULT, payload, arguments)

    @overload
    def before_response(
        self, payload: BeforeResponse, /, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeResponse]: ...

    @overload
    def before_response(
        self,
        /,
        *,
        content: str,
        reasoning: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        router: str | None = None,
        token_usage: TokenUsage | None = None,
        stop_reason: str | None = None,
        extra: Mapping[str, object] | None = None,
        **options: Unpack[PointCallOptions],
    ) -> Continue[BeforeResponse]: ...

    def before_response(
        self, payload: BeforeResponse | None = None, /, **arguments: object
    ) -> Continue[BeforeResponse]:
        """Call it before the answer is shown.

        :raises Blocked: A plugin stopped the answer.
        :raises NoDecision: No decision could be made.
        """
        return self._continue(_core.BEFORE_RESPONSE, payload, arguments)

    def run_hook(self, hook: str, body: Mapping[str, object], **options: Unpack[HookCallOptions]) -> HookAnswer:
        """Tells the tenant's plugins that something happened in the agent's life, such as `session_start`.

        It gathers what they contribute. A hook decides nothing: an agent that may go on without contributions goes on
        after an error as if nobody had contributed. If the error names a plugin, an operator requires that plugin
        (`on_error: fail`).

        :param hook: `[a-z][a-z0-9_]{0,63}`.
        :param body: What happened; docs/protocol.md, section 9, has the form for known hooks.
        :raises CallError: The gateway doesn't answer, or answers with an error.
        """
        call = self._core.hook_call(hook, body, cast("Mapping[str, object]", options))
        return call.conclude(self._send(call.request))

    def list_tools(self, **options: Unpack[CallOptions]) -> ToolList:
        """The tools that the tenant's plugins provide.

        Offer them to the model beside your own, and pass a call of one to `before_tool_call` with `takes_results`,
        which has the plugin run it.

        :raises CallError: The gateway doesn't answer, or answers with an error.
        """
        call = self._core.tools_call(cast("Mapping[str, object]", options))
        return call.conclude(self._send(call.request))

    def close(self) -> None:
        """Closes the connection. Calls of other threads that are in flight finish; later ones raise a RuntimeError."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _continue(self, method: PointMethod[P], payload: P | None, arguments: Mapping[str, object]) -> Continue[P]:
        """Calls a point where no plugin can give a result."""
        return cast("Continue[P]", self._decide(method, payload, arguments))

    def _decide(
        self, method: PointMethod[P], payload: P | None, arguments: Mapping[str, object]
    ) -> Continue[P] | ToolResult:
        call = self._core.point_call(method, payload, arguments)
        return call.conclude(self._send(call.request))

    def _send(self, request: Request) -> bytes | CallFailure:
        """Sends a call, once."""
        with self._connection.call() as channel:
            if request.timeout <= 0:
                return overdue(request.timeout)
            end = time.monotonic() + request.timeout
            authorized = self._authorize(request)
            left = end - time.monotonic()
            if isinstance(authorized, CallFailure):
                return authorized
            if left <= 0:
                return overdue(request.timeout)
            # Bytes, because gRPC makes an INTERNAL error of an answer that it can't decode.
            method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(request.path)
            try:
                return method(request.body, timeout=left, metadata=authorized)
            except grpc.RpcError as error:
                return in_time(failure_of(error), request.timeout, is_over=time.monotonic() >= end)

    def _authorize(self, request: Request) -> tuple[tuple[str, str], ...] | CallFailure:
        """The headers with the token."""
        if self._token is None:
            return request.headers
        try:
            token: object = self._token(request.context) if callable(self._token) else self._token
            if not inspect.isawaitable(token):
                return (*request.headers, ("authorization", authorization(token)))
        except Exception as cause:
            return token_failure(cause)
        if inspect.iscoroutine(token):
            token.close()
        raise TypeError("the token source is async: the blocking agent needs one that isn't")
