"""The one mechanism of all adapters: what an agent owes at the four points (docs/protocol.md, section 4).

It knows no agent library. An adapter translates its library's values, and does what comes back.

Whatever these functions raise must end the run: a `Blocked` with the scope `run` or before a model is asked, a
`NoDecision`, a `PatchError`, and the errors of requests that can't be sent.

Everything is written once, as coroutines. Those of `blocking_points` never wait for an event loop, so `run_blocking`
runs code that isn't async.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from typing_extensions import Unpack

from hookgate._json import JsonObject, JsonValue
from hookgate.adapters._answer_parts import ModelResponse, ModelResponsePatch
from hookgate.adapters._media import is_image
from hookgate.adapters._run_end import PatchError as PatchError
from hookgate.adapters._run_end import ends_run, note_run_end, raise_nested_run_end
from hookgate.adapters._run_end import find_gateway_error as find_gateway_error
from hookgate.adapters._values import is_same_json, merge_list, message_of, to_json, to_json_list
from hookgate.agent import Agent, Blocked, Continue, NoDecision, PointCallOptions, ToolResult
from hookgate.agent import sync as blocking
from hookgate.media import Media
from hookgate.payload import AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, TokenUsage

T = TypeVar("T")
MessageT = TypeVar("MessageT")

Gateway: TypeAlias = Agent | blocking.Agent
"""An agent of `hookgate.agent`, or of `hookgate.agent.sync`, which async code calls in threads."""


class Points(Protocol):
    """The points, for coroutines."""

    async def before_llm_request(
        self, payload: BeforeLlmRequest, /, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeLlmRequest]: ...

    async def before_tool_call(
        self, payload: BeforeToolCall, /, *, takes_results: bool, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeToolCall] | ToolResult: ...

    async def after_tool_result(
        self, payload: AfterToolResult, /, **options: Unpack[PointCallOptions]
    ) -> Continue[AfterToolResult]: ...

    async def before_response(
        self, payload: BeforeResponse, /, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeResponse]: ...


def check_gateway(gateway: object) -> None:
    """:raises TypeError: It is no agent."""
    if not isinstance(gateway, (Agent, blocking.Agent)):
        raise TypeError(f"gateway must be an Agent of hookgate.agent, is of the type {type(gateway).__name__}")


def async_points(gateway: Gateway) -> Points:
    """For code that is async. A blocking agent is called in threads, with the caller's context."""
    check_gateway(gateway)
    return gateway if isinstance(gateway, Agent) else _BlockingPoints(gateway, asyncio.to_thread)


def blocking_points(gateway: Gateway) -> Points:
    """For code that isn't async, within `run_blocking`.

    :raises TypeError: The agent is async, so this code can't wait for it.
    """
    check_gateway(gateway)
    if isinstance(gateway, blocking.Agent):
        return _BlockingPoints(gateway, _call)
    raise TypeError("code that isn't async can't be guarded with hookgate.agent.Agent: use hookgate.agent.sync.Agent")


def run_blocking(coroutine: Coroutine[object, object, T]) -> T:
    """Runs a coroutine that waits for nothing but `blocking_points`.

    :raises RuntimeError: It waits for something else.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("code that isn't async waited for an event loop")


async def _call(function: Callable[..., T], /, *args: object, **options: object) -> T:
    return function(*args, **options)


class _Caller(Protocol):
    """Calls a blocking function."""

    def __call__(self, function: Callable[..., T], /, *args: object, **options: object) -> Coroutine[object, object, T]:
        """With these arguments."""


class _BlockingPoints:
    def __init__(self, gateway: blocking.Agent, call: _Caller) -> None:
        self._gateway = gateway
        self._call = call

    async def before_llm_request(
        self, payload: BeforeLlmRequest, /, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeLlmRequest]:
        answer: Continue[BeforeLlmRequest] = await self._call(self._gateway.before_llm_request, payload, **options)
        return answer

    async def before_tool_call(
        self, payload: BeforeToolCall, /, *, takes_results: bool, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeToolCall] | ToolResult:
        answer: Continue[BeforeToolCall] | ToolResult = await self._call(
            self._gateway.before_tool_call, payload, takes_results=takes_results, **options
        )
        return answer

    async def after_tool_result(
        self, payload: AfterToolResult, /, **options: Unpack[PointCallOptions]
    ) -> Continue[AfterToolResult]:
        answer: Continue[AfterToolResult] = await self._call(self._gateway.after_tool_result, payload, **options)
        return answer

    async def before_response(
        self, payload: BeforeResponse, /, **options: Unpack[PointCallOptions]
    ) -> Continue[BeforeResponse]:
        answer: Continue[BeforeResponse] = await self._call(self._gateway.before_response, payload, **options)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """Which model is asked."""

    provider: str | None = None
    model: str | None = None

    def options(self) -> PointCallOptions:
        """For calls about this one."""
        return {"context": {"provider": self.provider, "model": self.model}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What a model is about to be asked. Its values are any that `to_json` takes."""

    text: str
    """Text of the last user message."""
    system_prompt: str | None = None
    messages: Sequence[object]
    """The conversation without the system prompt, in a form that plugins can read."""
    tools: Sequence[object] | None = None
    """The tools offered to the model."""
    media: Sequence[Media] = ()
    """Images and files of the last user message."""
    extra: Mapping[str, object] | None = None
    """What else the model gets to read."""


@dataclass(frozen=True, slots=True)
class ListPatch:
    """A list that plugins changed."""

    sent: list[JsonValue]
    returned: list[JsonValue]

    def apply(self, originals: Sequence[T], decode: Callable[[JsonValue, T | None], T]) -> list[T]:
        """The list as plugins left it; see `merge_list`."""
        return merge_list(originals, self.sent, self.returned, decode)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequestPatch:
    """What plugins changed in a `ModelRequest`, for `patch_messages`. What is `None` stays."""

    messages: ListPatch | None = None
    text: str | None = None
    system_prompt: str | None = None
    tools: ListPatch | None = None
    dropped_media: tuple[Media, ...] = ()
    """Those of the request's media that plugins left out."""
    extra: JsonObject | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return self == ModelRequestPatch()


async def guard_model_request(points: Points, request: ModelRequest, call: ModelCall) -> ModelRequestPatch:
    """Asks the gateway before a model is asked.

    :raises Blocked: A plugin stopped the request, with either scope.
    :raises NoDecision: No decision could be made.
    :raises PatchError: A plugin added or changed an image or a file.
    """
    extra = None if request.extra is None else _to_object(request.extra)
    sent = BeforeLlmRequest(
        text=request.text,
        system_prompt=request.system_prompt,
        messages=to_json_list(request.messages, "messages"),
        tools=None if request.tools is None else to_json_list(request.tools, "tools"),
        images=tuple(medium for medium in request.media if is_image(medium)),
        files=tuple(medium for medium in request.media if not is_image(medium)),
        extra=extra,
    )
    answer = await _decision(points.before_llm_request(sent, **call.options()))
    if not answer.modified:
        return ModelRequestPatch()
    payload = answer.payload
    system_prompt = payload.system_prompt or ""
    return ModelRequestPatch(
        messages=_list_patch(sent.messages, payload.messages),
        text=None if payload.text == sent.text else payload.text,
        system_prompt=None if system_prompt == (sent.system_prompt or "") else system_prompt,
        tools=_list_patch(sent.tools, payload.tools),
        dropped_media=_dropped_media(request.media, payload),
        extra=None if is_same_json(extra or {}, payload.extra or {}) else payload.extra or {},
    )


class MessageEditor(Protocol[MessageT]):
    """How one library's messages are changed. A module can be one."""

    def decode_message(self, json: JsonValue, original: MessageT | None) -> MessageT:
        """Makes a message of one that a plugin left; see `merge_list`."""

    def with_text(self, messages: Sequence[MessageT], text: str) -> list[MessageT]:
        """The messages with this text in the last one of the user, or in a new one."""

    def without_media(self, messages: Sequence[MessageT], dropped: Sequence[Media]) -> list[MessageT]:
        """The messages without these images and files in the last one of the user."""


def patch_messages(
    messages: Sequence[MessageT], patch: ModelRequestPatch, editor: MessageEditor[MessageT]
) -> Sequence[MessageT]:
    """The messages of a request as plugins left them. If nobody changed them, they are the same list."""
    if patch.messages is not None:
        messages = patch.messages.apply(messages, editor.decode_message)
    if patch.text is not None:
        messages = editor.with_text(messages, patch.text)
    if patch.dropped_media:
        messages = editor.without_media(messages, patch.dropped_media)
    return messages


async def guard_model_response(points: Points, response: ModelResponse, call: ModelCall) -> ModelResponsePatch | None:
    """Asks the gateway before an answer is shown: about the first text and the first thought, then about the second
    ones, and so on.

    :returns: What to change; `None` if nothing.
    :raises Blocked: A plugin stopped the run, or an answer in which no message can stand.
    :raises NoDecision: No decision could be made.
    """
    if not response.is_judged:
        return None
    texts: list[str | None] = []
    thoughts: list[str | None] = []
    for index, (text, thought) in enumerate(zip_longest(response.texts or [""], response.thoughts)):
        sent = BeforeResponse(
            content=text or "",
            reasoning=thought,
            provider=call.provider,
            model=call.model,
            # Plugins that count tokens must count them once.
            token_usage=_token_usage(response) if index == 0 else None,
            stop_reason=response.stop_reason if isinstance(response.stop_reason, str) else None,
        )
        answer = await _or_block(points.before_response(sent, **call.options()))
        if isinstance(answer, Blocked):
            if response.is_structured:
                raise answer
            return ModelResponsePatch(blocked=answer)
        payload = answer.payload if answer.modified else sent
        texts.append(_changed_part(text, payload.content, index))
        thoughts.append(_changed_part(thought, payload.reasoning, index))
    is_changed = any(change is not None for change in (*texts, *thoughts))
    return ModelResponsePatch(texts=texts, thoughts=thoughts) if is_changed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool that is about to run."""

    tool_name: str
    args: object
    """The arguments, any value that `to_json` takes."""
    call_id: str | None = None
    """The model's id of this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput(Generic[T]):
    """What a tool gave."""

    value: T
    """For the agent library."""
    result: object
    """What the model gets to read of it, any value that `to_json` takes."""
    success: bool = True
    """Whether the tool succeeded."""


@dataclass(frozen=True, slots=True)
class OwnResult(Generic[T]):
    """The tool ran, and nobody changed its result. Go on with the value."""

    value: T
    kind: Literal["own"] = "own"


@dataclass(frozen=True, slots=True)
class FailedTool:
    """The tool raised, and nobody changed that. Do what the library does with such an error."""

    error: Exception
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class ReplacedResult:
    """A plugin gave or changed the result. Without `success`, it is the tool's error."""

    result: JsonValue
    success: bool
    kind: Literal["replaced"] = "replaced"


@dataclass(frozen=True, slots=True)
class BlockedTool:
    """A plugin stopped the call or its result. Give the model the message as the tool's error."""

    blocked: Blocked
    kind: Literal["blocked"] = "blocked"


ToolOutcome: TypeAlias = OwnResult[T] | FailedTool | ReplacedResult | BlockedTool
"""How a guarded tool run ended."""


async def guard_tool_run(
    points: Points,
    call: ToolCall,
    run: Callable[[str, object], Awaitable[ToolOutput[T]]],
    is_control_flow: Callable[[Exception], bool] = lambda _: False,
) -> ToolOutcome[T]:
    """Runs a tool between `before_tool_call` and `after_tool_result`. Takes results of plugins instead of running it.

    :param run: Runs the tool of this name, which a plugin may have changed, with these arguments. They are the call's
        own object if no plugin changed them, and JSON otherwise.
    :param is_control_flow: Whether an error that `run` raises is no failure of the tool but the library's way to leave
        it. It is raised on, and no `after_tool_result` follows. So are the errors below, if `run` raises them.
    :raises Blocked: A plugin ended the run, or one within the tool.
    :raises NoDecision: No decision could be made, here or within the tool. If that is after the tool ran, its result
        must not be used.
    :raises PatchError: A plugin changed something that the agent library can't take, here or within the tool.
    """
    sent = BeforeToolCall(tool_name=call.tool_name, args=to_json(call.args, "args"), call_id=call.call_id)
    before = await _or_block(points.before_tool_call(sent, takes_results=True))
    if isinstance(before, Blocked):
        return BlockedTool(before)
    tool_name, args = before.payload.tool_name, before.payload.args
    duration_ms = None
    output: ToolOutput[T] | Exception | None = None
    if isinstance(before, ToolResult):
        result, success = before.result, True
    else:
        start = time.perf_counter()
        output = await _settle(run, tool_name, call.args if is_same_json(sent.args, args) else args, is_control_flow)
        duration_ms = round((time.perf_counter() - start) * 1000)
        success = isinstance(output, ToolOutput) and output.success
        result = to_json(output.result if isinstance(output, ToolOutput) else message_of(output), "result")
    ran = AfterToolResult(
        tool_name=tool_name, args=args, result=result, success=success, call_id=call.call_id, duration_ms=duration_ms
    )
    after = await _or_block(points.after_tool_result(ran))
    if isinstance(after, Blocked):
        return BlockedTool(after)
    if output is None or (after.modified and not is_same_json(result, after.payload.result)):
        return ReplacedResult(after.payload.result, success)
    return FailedTool(output) if isinstance(output, Exception) else OwnResult(output.value)


async def _settle(
    run: Callable[[str, object], Awaitable[ToolOutput[T]]],
    tool_name: str,
    args: object,
    is_control_flow: Callable[[Exception], bool],
) -> ToolOutput[T] | Exception:
    """A tool's output, or what it raises. The end of a run within the tool is no failure of the tool: it also ends this
    run, whatever the tool, the library or plugins would make of it as a result.
    """
    try:
        with raise_nested_run_end():
            output = await run(tool_name, args)
    except Exception as error:
        if is_control_flow(error) or ends_run(error):
            raise
        return error
    return output


async def _or_block(answer: Awaitable[T]) -> T | Blocked:
    """What a call at a point gives, or the block that stops this one action."""
    try:
        return await _decision(answer)
    except Blocked as block:
        if block.scope == "step":
            return block
        raise


async def _decision(answer: Awaitable[T]) -> T:
    """What a call at a point gives. Outer tools hear of what ends the run."""
    try:
        return await answer
    except (Blocked, NoDecision) as error:
        note_run_end(error)
        raise


def _to_object(value: Mapping[str, object]) -> JsonObject:
    return {name: to_json(member, f"extra.{name}") for name, member in value.items()}


def _changed_part(part: str | None, returned: str | None, index: int) -> str | None:
    """What a part becomes; `None` if it stays. Only an answer without any has a place for an added one."""
    before, after = part or "", returned or ""
    return None if after == before or (before == "" and index > 0) else after


def _token_usage(response: ModelResponse) -> TokenUsage | None:
    counts = (response.input_tokens, response.output_tokens)
    taken, given = (count if type(count) is int and count >= 0 else None for count in counts)
    return None if taken is None or given is None else TokenUsage(taken, given)


def _list_patch(sent: list[JsonValue] | None, returned: list[JsonValue] | None) -> ListPatch | None:
    before, after = sent or [], returned or []
    return None if is_same_json(before, after) else ListPatch(before, after)


def _dropped_media(media: Sequence[Media], payload: BeforeLlmRequest) -> tuple[Media, ...]:
    dropped = list(media)
    for returned in (*payload.images, *payload.files):
        if returned not in dropped:
            raise PatchError("a plugin added or changed an image or a file: this adapter can only leave them out")
        dropped.remove(returned)
    return tuple(dropped)
