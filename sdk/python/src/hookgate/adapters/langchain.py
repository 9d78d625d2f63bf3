"""Puts agents of LangChain (`create_agent` of the package `langchain`) behind the gateway.

    from hookgate.adapters.langchain import guard
    from langchain.agents import create_agent

    agent = create_agent("openai:gpt-5", tools, middleware=[guard(gateway)])
    result = await agent.ainvoke({"messages": [{"role": "user", "content": "hi"}]})

With an agent of `hookgate.agent` only `ainvoke` and `astream` are guarded, and `invoke` raises a TypeError. With one of
`hookgate.agent.sync` all are.

In a graph of LangGraph's own, use such an agent as a node. Tools alone are guarded with
`ToolNode(tools, wrap_tool_call=guarded.wrap_tool_call, awrap_tool_call=guarded.awrap_tool_call)`, where `guarded` is
the middleware, unless `handle_tool_errors` catches all errors: then the graph goes on after a missing decision, and the
model reads that there was none. Models that a graph's nodes call themselves aren't guarded, and neither are those of
`create_react_agent`.

Where it doesn't reach: tools that a provider runs itself, what a tool writes with a stream writer, updates of the state
in a `Command` of a tool, and what other middleware does without the agent's model. Callback handlers and tracers get
what the model and the tools said before it is judged. The result of a tool with `return_direct` is the answer without
`before_response`. `HumanInTheLoopMiddleware` shows the arguments before the gateway is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.structured_output import StructuredOutputError
from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from pydantic import TypeAdapter, ValidationError

from hookgate._json import JsonValue
from hookgate.adapters import _answer_parts, _guard, _langchain_messages
from hookgate.adapters._guard import (
    BlockedTool,
    FailedTool,
    Gateway,
    ModelCall,
    OwnResult,
    PatchError,
    Points,
    ReplacedResult,
    ToolOutput,
    async_points,
    blocking_points,
    check_gateway,
    find_gateway_error,
    guard_model_request,
    guard_model_response,
    guard_tool_run,
    patch_messages,
    run_blocking,
)
from hookgate.adapters._langchain_answer import answer_parts, patch_answer
from hookgate.adapters._langchain_messages import (
    encode_message,
    is_text_only,
    media_of,
    question_in,
    text_of,
)
from hookgate.adapters._values import to_json, to_text

__all__ = ["HookgateMiddleware", "PatchError", "find_gateway_error", "guard"]

Tool: TypeAlias = BaseTool | dict[str, Any]
ToolAnswer: TypeAlias = ToolMessage | Command[Any]
"""What a tool gives. In spite of LangChain's types, it may be a list of both."""


def guard(gateway: Gateway) -> HookgateMiddleware:
    """Middleware for `create_agent`: `before_llm_request` and `before_response` around each call of the model,
    `before_tool_call` and `after_tool_result` around each tool.

    - Plugins see the last user message as `text`, with its images and files, the system message as `system_prompt` (if
      it is only text), the other messages as `messages`, and `tools` in OpenAI's form. They may change texts and
      messages, and leave tools, images and files out. Other changes of those three raise a `PatchError`.
    - Each text and each thought of an answer is judged for itself: the first call of `before_response` has the first
      text and the first thought, the second call has the second ones, and so on. A change goes back to its own place.
      Only the first call has the token usage. A block of any part stops the whole answer.
    - Adjacent text blocks are one text if the provider cut them apart to cite, also with Mistral's `reference` blocks
      between them.
    - A refusal and the transcript of audio are texts of their own. A changed transcript becomes text without sound.
    - A signed thought that a plugin changes is left out, because the provider would refuse it.
    - An answer without text and reasoning that calls tools isn't judged as one: its tools are.
    - A `StructuredOutputError` holds the answer that LangChain couldn't read, which is judged before it is raised. It
      can't be changed: a plugin that does ends the run with a `PatchError`.
    - Nothing that the model or a tool says is streamed before it is judged. An answer comes in one piece, and models
      and agents within a tool aren't streamed; but with `subgraphs=True` the updates of graphs within tools are.
    - A block before the model is asked, a block with the scope `run`, and a missing decision end the run: `invoke`
      raises the `Blocked` or `NoDecision`. So does a block of an answer that has a `response_format`, and of one from
      which LangChain tried to read it. Otherwise the message of a block before the response is all that remains of it.
    - A block of a tool is a `ToolMessage` with the status `error`. A tool that raises ends the run, as without the
      middleware.
    - If a `PatchError`, a missing decision or a block with the scope `run` ends a run within a tool, it also ends this
      run, whatever the tool or other middleware makes of it.
    - A plugin may change the name of the tool that is called, if LangGraph's `ToolRuntime` has `tools`. Older versions
      end the run with a `PatchError` then.
    - A result that a plugin changed or blocked has no `artifact`, and updates no state.
    - The gateway is asked again about a tool that interrupts the run, when the run is resumed.

    Put it after middleware that changes requests, so that it judges what they made of them, and before middleware that
    retries, falls back to another model, or catches errors: they would ask again after a block, and make an answer of
    what ended the run. What is in the list before it can change an answer after it was judged.

    :param gateway: An agent of `hookgate.agent` or `hookgate.agent.sync`.
    :raises TypeError: It is none of them.
    """
    return HookgateMiddleware(gateway)


class HookgateMiddleware(AgentMiddleware[Any, Any]):
    """The middleware that `guard` makes."""

    def __init__(self, gateway: Gateway) -> None:
        """:raises TypeError: It is no agent of `hookgate`."""
        super().__init__()
        check_gateway(gateway)
        self._gateway = gateway

    @property
    def name(self) -> str:
        """Its name in traces."""
        return "Hookgate"

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Called by LangChain."""

        async def ask(changed: ModelRequest[Any]) -> ModelResponse[Any]:
            return handler(changed)

        return run_blocking(_guard_model(blocking_points(self._gateway), request, ask))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Called by LangChain."""
        return await _guard_model(async_points(self._gateway), request, handler)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolAnswer]) -> ToolAnswer:
        """Called by LangChain."""

        async def run(changed: ToolCallRequest) -> ToolAnswer:
            return handler(changed)

        return run_blocking(_guard_tool(blocking_points(self._gateway), request, run))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolAnswer]]
    ) -> ToolAnswer:
        """Called by LangChain."""
        return await _guard_tool(async_points(self._gateway), request, handler)


async def _guard_model(
    points: Points, request: ModelRequest[Any], ask: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
) -> ModelResponse[Any]:
    call = _model_call(request.model)
    request = await _guard_request(points, request, call)
    unread = None
    try:
        with _model_unstreamed():
            response = await ask(request)
    except StructuredOutputError as error:
        unread = error
    # Outside of the `except`, so that what ends the run doesn't have the answer as its context.
    if unread is not None:
        await _guard_unread(points, unread.ai_message, call)
        raise unread
    return await _guard_response(points, response, call)


def _model_call(model: object) -> ModelCall:
    if not isinstance(model, BaseChatModel):  # A model may be chosen only when it is called.
        return ModelCall()
    params = model._get_ls_params()
    return ModelCall(provider=params.get("ls_provider"), model=params.get("ls_model_name"))


async def _guard_request(points: Points, request: ModelRequest[Any], call: ModelCall) -> ModelRequest[Any]:
    """Asks the gateway before a model is asked."""
    system = request.system_message
    messages: list[BaseMessage] = [*request.messages]
    if system is not None and not is_text_only(system):
        # LangChain itself puts the system message before the others.
        messages = [system, *messages]
        system = None
    question = question_in(messages)
    tools: list[Tool] = list(request.tools)
    view = _guard.ModelRequest(
        text=text_of(question),
        system_prompt=None if system is None else str(system.text) or None,
        messages=[encode_message(message) for message in messages],
        tools=[tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in tools],
        media=media_of(question),
    )
    patch = await guard_model_request(points, view, call)
    if patch.is_empty:
        return request
    patched = patch_messages(messages, patch, _langchain_messages)
    return request.override(
        system_message=system if patch.system_prompt is None else SystemMessage(patch.system_prompt),
        messages=cast("list[AnyMessage]", list(patched)),
        tools=tools if patch.tools is None else patch.tools.apply(tools, _refuse_tool),
    )


def _refuse_tool(_: JsonValue, __: Tool | None) -> Tool:
    raise PatchError("a plugin added or changed a tool, which LangChain can't do: it can only be left out")


@contextmanager
def _model_unstreamed() -> Iterator[None]:
    """Models that are asked within it show nothing to streams. The message that comes of it is streamed afterwards."""
    config = var_child_runnable_config.get()
    if config is None:  # Then models know of no stream.
        yield
        return
    token = var_child_runnable_config.set(_without_streams(config))
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


@contextmanager
def _tool_unstreamed(config: RunnableConfig | None) -> Iterator[None]:
    """A tool that runs within it with this config, which is its own, shows nothing to streams."""
    if config is None or config.get("callbacks") is None:
        yield
        return
    callbacks = config["callbacks"]
    config["callbacks"] = _without_streams(config)["callbacks"]
    try:
        yield
    finally:
        config["callbacks"] = callbacks


def _without_streams(config: RunnableConfig) -> RunnableConfig:
    callbacks = config.get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        quiet = callbacks.copy()
        quiet.handlers = _not_streaming(quiet.handlers)
        quiet.inheritable_handlers = _not_streaming(quiet.inheritable_handlers)
        return {**config, "callbacks": quiet}
    return {**config, "callbacks": None if callbacks is None else _not_streaming(callbacks)}


def _not_streaming(handlers: list[BaseCallbackHandler]) -> list[BaseCallbackHandler]:
    return [handler for handler in handlers if not isinstance(handler, _StreamingCallbackHandler)]


async def _guard_response(points: Points, response: ModelResponse[Any], call: ModelCall) -> ModelResponse[Any]:
    """Asks the gateway before an answer is shown."""
    # Other middleware may answer with more or less than one message.
    answers = [message for message in response.result if isinstance(message, AIMessage)]
    read = {message.tool_call_id for message in response.result if isinstance(message, ToolMessage)}
    if response.structured_response is not None or read:
        return await _guard_formatted(points, response, answers, read, call)
    result = list(response.result)
    for answer in answers:
        patch = await guard_model_response(points, _view(answer, answer_parts(answer)[0]), call)
        if patch is None:
            continue
        patched = patch_answer(answer, patch)
        if patch.blocked is not None:
            return ModelResponse(result=[patched])
        result = [patched if message is answer else message for message in result]
    return ModelResponse(result=result)


async def _guard_formatted(
    points: Points, response: ModelResponse[Any], answers: list[AIMessage], read: set[str], call: ModelCall
) -> ModelResponse[Any]:
    """Judges an answer in a format, or calls of a tool for the format that LangChain couldn't read."""
    answer = answers[0] if answers else AIMessage("")
    structured = response.structured_response
    calls = [call["args"] for message in answers for call in message.tool_calls if call["id"] in read]
    values = calls if structured is None else [to_json(structured, "structured_response")]
    # With a tool for the format, the model may also have said something.
    spoken = [text for message in answers if message.tool_calls for text in answer_parts(message)[0]]
    texts = [*spoken, *map(to_text, cast("list[JsonValue]", values))]
    patch = await guard_model_response(points, _view(answer, texts, is_structured=True), call)
    if patch is None:
        return response
    content = patch.texts[0]
    if structured is None or spoken or content is None or any(thought is not None for thought in patch.thoughts):
        raise PatchError("a plugin changed more of an answer in a format than its value")
    changed = _read_format(type(structured), content)
    return ModelResponse(result=[AIMessage(content, id=answer.id, name=answer.name)], structured_response=changed)


async def _guard_unread(points: Points, answer: AIMessage, call: ModelCall) -> None:
    """Judges an answer that is shown only by an error, because LangChain couldn't read its format."""
    args = [to_text(cast("JsonValue", call["args"])) for call in answer.tool_calls]
    view = _view(answer, [*answer_parts(answer)[0], *args], is_structured=True)
    if await guard_model_response(points, view, call) is not None:
        raise PatchError("a plugin changed an answer that LangChain can't read, and can only raise as it is")


def _read_format(kind: type[object], content: str) -> object:
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError:
        raise PatchError(f"a plugin changed an answer in a format to what is no {kind.__name__}") from None


def _view(answer: AIMessage, texts: list[str], *, is_structured: bool = False) -> _answer_parts.ModelResponse:
    usage = answer.usage_metadata
    metadata = answer.response_metadata
    return _answer_parts.ModelResponse(
        texts=texts,
        thoughts=answer_parts(answer)[1],
        input_tokens=usage and usage["input_tokens"],
        output_tokens=usage and usage["output_tokens"],
        stop_reason=metadata.get("finish_reason") or metadata.get("stop_reason"),
        has_tool_calls=bool(answer.tool_calls) and not is_structured,
        is_structured=is_structured,
    )


async def _guard_tool(
    points: Points, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolAnswer]]
) -> ToolAnswer:
    tool_call = request.tool_call
    has_blocks = False

    async def run(name: str, args: object) -> ToolOutput[ToolAnswer]:
        nonlocal has_blocks
        with _tool_unstreamed(request.runtime.config):
            value = await handler(_changed(request, name, args))
        message = _message_in(value, tool_call["id"])
        content = None if message is None else message.content
        has_blocks = isinstance(content, list)
        return ToolOutput(value=value, result=content, success=message is None or message.status != "error")

    call = _guard.ToolCall(tool_name=tool_call["name"], args=tool_call["args"], call_id=tool_call["id"])
    outcome = await guard_tool_run(points, call, run, lambda error: isinstance(error, GraphBubbleUp))
    match outcome:
        case OwnResult(value):
            return value
        case FailedTool(error):
            raise error
        case BlockedTool(blocked):
            return _tool_message(tool_call, blocked.message, success=False)
        case ReplacedResult(result, success):
            is_content = has_blocks and isinstance(result, list)
            return _tool_message(tool_call, result if is_content else to_text(result), success=success)


def _changed(request: ToolCallRequest, name: str, args: object) -> ToolCallRequest:
    tool_call = request.tool_call
    if name == tool_call["name"] and args is tool_call["args"]:
        return request
    if not isinstance(args, dict):
        raise PatchError("a plugin changed a tool's arguments to what is no object")
    changed = request.override(tool_call=ToolCall(**{**tool_call, "name": name, "args": args}))
    if name == tool_call["name"]:
        return changed
    tools: list[BaseTool] | None = getattr(request.runtime, "tools", None)
    if tools is None:
        raise PatchError("a plugin changed a tool's name, which needs a newer version of LangGraph")
    # A tool that isn't found stays out, and LangChain tells the model.
    tool = next((tool for tool in tools if tool.name == name), None)
    return changed.override(tool=cast("BaseTool", tool))


def _message_in(value: object, call_id: str | None) -> ToolMessage | None:
    """The message for this call, also if a command adds it to the state."""
    if isinstance(value, ToolMessage):
        return value if value.tool_call_id == call_id else None
    if isinstance(value, Command):
        update = value.update
        return _message_in(update.get("messages") if isinstance(update, dict) else update, call_id)
    if not isinstance(value, (list, tuple)):
        return None
    found = (_message_in(item, call_id) for item in value)
    return next((message for message in found if message is not None), None)


def _tool_message(tool_call: ToolCall, content: JsonValue, *, success: bool) -> ToolMessage:
    return ToolMessage(
        content=cast("str", content),
        name=tool_call["name"],
        tool_call_id=tool_call["id"] or "",
        status="success" if success else "error",
    )
