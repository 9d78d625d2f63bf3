"""The async agent."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NoReturn, cast, overload

import grpc
from typing_extensions import Self, Unpack

from hookgate._channel import TlsFiles
from hookgate.agent import _core
from hookgate.agent._connection import Connections
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
    TokenSource,
    check_endpoint,
)
from hookgate.agent._payloads import P
from hookgate.agent._token import authorization, check_token
from hookgate.agent._types import Continue, HookAnswer, ToolList, ToolResult
from hookgate.media import Media
from hookgate.payload import AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, TokenUsage

if TYPE_CHECKING:
    from types import TracebackType


class Agent:
    """Calls a gateway at the extension points and the lifecycle hooks of an agent.

    What to do after a call at a point:

    - It returns: go on **with the returned payload**, not with your own. If a person must approve the action, show them
      this one.
    - It raises `Blocked`: stop the action, and never retry it. Before a tool call: don't run the tool, give the model
      the message as a tool error, and don't call `after_tool_result`. After a tool result: the message replaces the
      result; the tool is not run again, and your own error still applies. Before the response: the message replaces
      the content.
    - It raises `NoDecision`: stop. If an outage may be ignored at a point, say so with `on_no_decision`. The call then
      returns your own payload, with the reason in `no_decision`.
    - It raises a TypeError or a ValueError: the request can't be sent, and the message names the argument.
    - It is cancelled: so is the gateway's work on it.

    The members of a payload are keyword arguments, beside the options of the call; or a payload is passed as a whole.

    Calls may be made at the same time. They share one connection, which begins with the first call and is made again
    after a loss. An agent may be used in several event loops; each has a connection of its own. A process that was
    forked after the first call needs an agent of its own. A call is never sent twice.
    """

    def __init__(
        self,
        gateway: str,
        *,
        token: TokenSource | None = None,
        context: CallContext | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        trace: bool = False,
        on_no_decision: OnNoDecisionByPoint = "fail",
        ca: str | bytes | None = None,
        certificate: str | bytes | None = None,
        key: str | bytes | None = None,
    ) -> None:
        """Nothing is sent before the first call.

        :param gateway: Where the gateway listens: `http://host:port`, `https://host:port` or `unix:///path`.
        :param token: Without it, no token is sent, and the gateway answers TOKEN_MISSING.
        :param context: Sent with each call.
        :param timeout: How long a call waits for an answer, in seconds, more than 0 and at most 2^31.
        :param trace: Asks for `steps[].changes` at each point.
        :param on_no_decision: What to do when no decision could be made, at every point or at those named.
        :param ca: The CAs to trust at an `https://` address, in PEM form. Without it, those of the machine.
        :param certificate: The client certificate in PEM form, for a gateway that asks for one. Needs `key`.
        :param key: The private key of the client certificate in PEM form, not encrypted.
        :raises TypeError: An option has another type.
        :raises ValueError: The address or an option is wrong, or the certificates can't be used.
        """
        check_token(token, may_await=True)
        address, files = check_endpoint(gateway, TlsFiles(ca, certificate, key))
        self._core = Core(context=context, timeout=timeout, trace=trace, on_no_decision=on_no_decision)
        self._token = token
        self._connections = Connections(address, files)

    def __reduce__(self) -> NoReturn:
        raise TypeError("an agent can't be pickled, because it has a token: make one in each process")

    @overload
    async def before_llm_request(
        self, payload: BeforeLlmRequest, /, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeLlmRequest]: ...

    @overload
    async def before_llm_request(
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

    async def before_llm_request(
        self, payload: BeforeLlmRequest | None = None, /, **arguments: object
    ) -> Continue[BeforeLlmRequest]:
        """Call it before a model is asked.

        :raises Blocked: A plugin stopped the request.
        :raises NoDecision: No decision could be made.
        """
        return await self._continue(_core.BEFORE_LLM_REQUEST, payload, arguments)

    @overload
    async def before_tool_call(
        self,
        payload: BeforeToolCall,
        /,
        *,
        takes_results: Literal[False] = False,
        **options: Unpack[PointCallOptions],
    ) -> Continue[BeforeToolCall]: ...

    @overload
    async def before_tool_call(
        self, payload: BeforeToolCall, /, *, takes_results: bool, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeToolCall] | ToolResult: ...

    @overload
    async def before_tool_call(
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
    async def before_tool_call(
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

    async def before_tool_call(
        self, payload: BeforeToolCall | None = None, /, **arguments: object
    ) -> Continue[BeforeToolCall] | ToolResult:
        """Call it before a tool runs.

        With `takes_results` a plugin may give the tool's result: the `decision` is then `answer`. Without it, such a
        result is a block with the code TOOL_ANSWERED.

        :raises Blocked: A plugin stopped the call of the tool.
        :raises NoDecision: No decision could be made.
        """
        return await self._decide(_core.BEFORE_TOOL_CALL, payload, arguments)

    @overload
    async def after_tool_result(
        self, payload: AfterToolResult, /, **options: Unpack[PointCallOptions]
    ) -> Continue[AfterToolResult]: ...

    @overload
    async def after_tool_result(
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

    async def after_tool_result(
        self, payload: AfterToolResult | None = None, /, **arguments: object
    ) -> Continue[AfterToolResult]:
        """Call it after a tool ran, on success and on failure; not for a tool whose call was blocked.

        `args` are the arguments as executed. `duration_ms` is sent in whole milliseconds.

        :raises Blocked: A plugin stopped the result.
        :raises NoDecision: No decision could be made.
        """
        return await self._continue(_core.AFTER_TOOL_RESULT, payload, arguments)

    @overload
    async def before_response(
        self, payload: BeforeResponse, /, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeResponse]: ...

    @overload
    async def before_response(
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

    async def before_response(
        self, payload: BeforeResponse | None = None, /, **arguments: object
    ) -> Continue[BeforeResponse]:
        """Call it before the answer is shown.

        :raises Blocked: A plugin stopped the answer.
        :raises NoDecision: No decision could be made.
        """
        return await self._continue(_core.BEFORE_RESPONSE, payload, arguments)

    async def run_hook(self, hook: str, body: Mapping[str, object], **options: Unpack[HookCallOptions]) -> HookAnswer:
        """Tells the tenant's plugins that something happened in the agent's life, such as `session_start`.

        It gathers what they contribute. A hook decides nothing: an agent that may go on without contributions goes on
        after an error as if nobody had contributed. If the error names a plugin, an operator requires that plugin
        (`on_error: fail`).

        :param hook: `[a-z][a-z0-9_]{0,63}`.
        :param body: What happened; docs/protocol.md, section 9, has the form for known hooks.
        :raises CallError: The gateway doesn't answer, or answers with an error.
        """
        call = self._core.hook_call(hook, body, cast("Mapping[str, object]", options))
        return call.conclude(await self._send(call.request))

    async def list_tools(self, **options: Unpack[CallOptions]) -> ToolList:
        """The tools that the tenant's plugins provide.

        Offer them to the model beside your own, and pass a call of one to `before_tool_call` with `takes_results`,
        which has the plugin run it.

        :raises CallError: The gateway doesn't answer, or answers with an error.
        """
        call = self._core.tools_call(cast("Mapping[str, object]", options))
        return call.conclude(await self._send(call.request))

    async def close(self) -> None:
        """Closes the connection after the calls in flight in this event loop. Later calls raise a RuntimeError."""
        await self._connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _continue(
        self, method: PointMethod[P], payload: P | None, arguments: Mapping[str, object]
    ) -> Continue[P]:
        """Calls a point where no plugin can give a result."""
        return cast("Continue[P]", await self._decide(method, payload, arguments))

    async def _decide(
        self, method: PointMethod[P], payload: P | None, arguments: Mapping[str, object]
    ) -> Continue[P] | ToolResult:
        call = self._core.point_call(method, payload, arguments)
        return call.conclude(await self._send(call.request))

    async def _send(self, request: Request) -> bytes | CallFailure:
        """Sends a call, once."""
        connection = self._connections.current()
        if request.timeout <= 0:
            return overdue(request.timeout)
        end = time.monotonic() + request.timeout
        with connection.call():
            authorized = await self._authorize(request, end)
            left = end - time.monotonic()
            if isinstance(authorized, CallFailure):
                return authorized
            if left <= 0:
                return overdue(request.timeout)
            # Bytes, because gRPC makes `None` of an answer that it can't decode.
            method = connection.method(request.path)
            try:
                return await method(request.body, timeout=left, metadata=authorized)
            except grpc.RpcError as error:
                return in_time(failure_of(error), request.timeout, is_over=time.monotonic() >= end)
            except asyncio.CancelledError as error:
                if _is_being_cancelled():
                    raise
                return CallFailure(kind="unreachable", detail="the call was cancelled", cause=error)

    async def _authorize(self, request: Request, end: float) -> tuple[tuple[str, str], ...] | CallFailure:
        """The headers with the token."""
        if self._token is None:
            return request.headers
        try:
            token: object = self._token
            if callable(self._token):
                token = self._token(request.context)
                if inspect.isawaitable(token):
                    # A future that isn't made here may be what other calls wait for too.
                    token = await _within(asyncio.ensure_future(token), end, may_cancel=not asyncio.isfuture(token))
            return (*request.headers, ("authorization", authorization(token)))
        except _LateTokenError as cause:
            return overdue(request.timeout, cause)
        except Exception as cause:
            return token_failure(cause)


def _is_being_cancelled() -> bool:
    """Whether somebody cancels the running task. If not, gRPC itself has cancelled a call, as it does when its channel
    closes, and libraries could take that for a failure of what they run. Python 3.10 can't tell.
    """
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is None or cancelling() > 0


_CANCELLED: Final = "it was cancelled"


class _LateTokenError(Exception):
    """A token source gave no token in time."""


async def _within(future: asyncio.Future[object], end: float, *, may_cancel: bool) -> object:
    """What a future comes to by the end of a time.

    `asyncio.wait_for` would wait for one that ignores its cancellation, and in Python 3.10 and 3.11 may lose the
    caller's.
    """
    try:
        done, _ = await asyncio.wait({future}, timeout=max(0.0, end - time.monotonic()))
        if done:
            if future.cancelled():  # by others: it isn't the caller who is cancelled
                raise RuntimeError(_CANCELLED)
            return future.result()
    finally:
        if may_cancel and not future.done():
            future.add_done_callback(_ignore_outcome)
            future.cancel()
    raise _LateTokenError


def _ignore_outcome(future: asyncio.Future[object]) -> None:
    """Nobody waits for it, so asyncio would log its error."""
    if not future.cancelled():
        future.exception()
