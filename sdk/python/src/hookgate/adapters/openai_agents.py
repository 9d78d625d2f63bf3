"""Puts models and tools of the OpenAI Agents SDK (package `openai-agents`) behind the gateway.

Guardrails of that SDK can only stop a run, and run beside the model, so this wraps the models and the tools, where
plugins can also change things.

    from agents import Agent, OpenAIProvider, RunConfig, Runner
    from hookgate.adapters.openai_agents import guard_model_provider, guard_tools

    agent = Agent(name="assistant", tools=guard_tools(gateway, tools))
    config = RunConfig(model_provider=guard_model_provider(gateway, OpenAIProvider()))
    result = await Runner.run(agent, "hi", run_config=config)

Where it doesn't reach:

- An agent whose `model` is an object and not a name doesn't ask the provider, and each agent has its own tools. So give
  each one, also those of handoffs and `as_tool`, a model of `guard_model` and tools of `guard_tools`; or set
  `RunConfig(model=guard_model(...))`, which every agent of the run asks, but not those of `as_tool`.
- Tools of `mcp_servers`: guard the client (`hookgate.adapters.mcp`), or pass the tools of
  `MCPUtil.get_all_function_tools` to `guard_tools`.
- Tools that the provider runs, the shell, the computer, patches and custom tools, code that hooks and handoffs run,
  realtime and voice agents, and images and audio in answers.
- Traces get what the model and the tools said before it is judged.
- With a `tool_use_behavior` that ends the run, the result of a tool is the answer without `before_response`.
- `needs_approval` and guardrails of tools get the arguments before the gateway is asked.
- A retry policy that retries after the error of a block or of a missing decision asks the model and the gateway again.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import agents.tool
from agents import (
    AgentOutputSchemaBase,
    FunctionTool,
    Handoff,
    Model,
    ModelBehaviorError,
    ModelProvider,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    RunContextWrapper,
    Tool,
    TResponseInputItem,
)
from agents.items import TResponseStreamEvent
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.tool_context import ToolContext
from openai.types.responses import ResponseCompletedEvent, ResponseOutputItem
from pydantic import BaseModel

from hookgate._json import JsonError, JsonObject, JsonValue, dumps, loads
from hookgate.adapters import _answer_parts, _guard, _openai_items
from hookgate.adapters._answer_parts import ModelResponsePatch, find_parts
from hookgate.adapters._guard import (
    BlockedTool,
    FailedTool,
    Gateway,
    ModelCall,
    ModelRequest,
    OwnResult,
    PatchError,
    Points,
    ReplacedResult,
    ToolOutput,
    async_points,
    find_gateway_error,
    guard_model_request,
    guard_model_response,
    guard_tool_run,
    patch_messages,
)
from hookgate.adapters._openai_items import (
    edit_output,
    encode_item,
    has_tool_calls,
    input_items,
    media_of,
    patch_output,
    question_in,
    text_of,
)
from hookgate.adapters._openai_stream import is_honest, patched_events, stream_end, streamed_output
from hookgate.adapters._values import to_text

__all__ = ["GuardedModel", "PatchError", "find_gateway_error", "guard_model", "guard_model_provider", "guard_tools"]

Offer: TypeAlias = Tool | Handoff[Any, Any]
"""What the model may call."""

T = TypeVar("T")
ToolT = TypeVar("ToolT", bound=Tool)


def guard_model(gateway: Gateway, model: Model, name: str | None = None) -> GuardedModel:
    """A model behind the gateway: `before_llm_request` before it is asked, `before_response` before its answer goes on.

    - Plugins see the last user message as `text`, with its images and files, the instructions as `system_prompt`, all
      items as `messages`, tools and handoffs as `tools`, and a prompt template as `extra.prompt`. They may change
      texts, messages and the template, change the description and the parameters of functions and handoffs, and leave
      tools, images and files out. Other changes raise a `PatchError`.
    - Each text and each thought of an answer is judged for itself: the first call of `before_response` has the first
      text and the first thought, the second call has the second ones, and so on. A change goes back to its own place.
      Only the first call has the token usage. A block of any part stops the whole answer.
    - An answer without text and reasoning that calls tools isn't judged here: its tools are, with `guard_tools`.
    - A stream is held until it is judged. So nothing is shown before the model has finished. One that breaks off ends
      the run with a ModelBehaviorError.
    - A block before the model is asked ends the run with the `Blocked`. A block before the response puts its message in
      place of the whole answer, or ends the run, if the agent has an `output_type` or the scope is `run`.
    - A missing decision ends the run with the `NoDecision`.
    - Of a conversation that the provider keeps (`previous_response_id`, `conversation_id`), plugins see only the new
      items, and the provider keeps the answer as the model gave it, also a blocked one.

    :param gateway: An agent of `hookgate.agent`, or of `hookgate.agent.sync`, which is called in threads.
    :param name: The model's name, for plugins. The default is the model's own `model`.
    :raises TypeError: The gateway is no agent.
    """
    own = getattr(model, "model", None)
    return GuardedModel(async_points(gateway), model, name or (own if isinstance(own, str) else None))


def guard_model_provider(gateway: Gateway, provider: ModelProvider) -> ModelProvider:
    """A provider whose models are guarded by `guard_model`."""
    return _GuardedProvider(gateway, provider)


def guard_tools(gateway: Gateway, tools: Sequence[ToolT]) -> list[ToolT]:
    """The tools behind the gateway: `before_tool_call` before each runs, `after_tool_result` on success and on failure.
    The tools themselves stay as they are.

    - A plugin may change the arguments, which then have to fit the tool's schema, and the tool's name, to another of
      `tools`.
    - A plugin may give the result instead of the tool, or change it.
    - After a block the model gets its message as the tool's result. A tool with an output schema can't give a text, so
      for it each block ends the run, and a plugin's result must be an object that fits.
    - A block with the scope `run`, and a missing decision, end the run with a `UserError`, whose cause is the `Blocked`
      or `NoDecision`; `find_gateway_error` finds it.
    - If one of these, or a `PatchError`, ends a run within a tool, such as that of an agent `as_tool`, it also ends
      this run, whatever the tool makes of it.
    - `function_tool` makes a text of any other error, unless its `failure_error_function` is `None`. The gateway then
      sees a success with this text.
    - A cancellation that a tool raises ends the run.
    - If a tool has `timeout_seconds`, the gateway's time counts. A tool that takes too long is stopped, and no
      `after_tool_result` follows.

    :param gateway: An agent of `hookgate.agent`, or of `hookgate.agent.sync`, which is called in threads.
    :raises TypeError: A tool isn't a function tool, so the gateway can't be asked before it runs; or the gateway is no
        agent.
    """
    points = async_points(gateway)
    functions: list[FunctionTool] = []
    for tool in tools:
        if not isinstance(tool, FunctionTool):
            kind = type(tool).__name__
            raise TypeError(f"the tool {tool.name} is a {kind}, which can't be guarded: leave it out of guard_tools")
        functions.append(tool)
    return [cast("ToolT", _guarded_tool(points, tool, functions)) for tool in functions]


class _GuardedProvider(ModelProvider):
    def __init__(self, gateway: Gateway, provider: ModelProvider) -> None:
        async_points(gateway)
        self._gateway = gateway
        self._provider = provider

    def get_model(self, model_name: str | None) -> Model:
        return guard_model(self._gateway, self._provider.get_model(model_name), model_name)

    async def aclose(self) -> None:
        await self._provider.aclose()


class GuardedModel(Model):
    """The model that `guard_model` makes."""

    def __init__(self, points: Points, model: Model, name: str | None) -> None:
        """For `guard_model`."""
        self._points = points
        self._model = model
        self._call = ModelCall(model=name)
        # The SDK looks for it to choose settings.
        self.model = name

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002 - the SDK's name
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        **options: Any,
    ) -> ModelResponse:
        """Called by the SDK."""
        request = _Request(system_instructions, input, tools, handoffs, options)
        await request.judge(self._points, self._call)
        answer = await request.ask(self._model.get_response, model_settings, output_schema, tracing)
        tokens = (answer.usage.input_tokens, answer.usage.output_tokens)
        patch = await self._judge(answer.output, tokens, output_schema)
        if patch is None:
            return answer
        output = patch_output(answer.output, patch, FAKE_RESPONSES_ID)
        return ModelResponse(output=output, usage=answer.usage, response_id=answer.response_id)

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002 - the SDK's name
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        **options: Any,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Called by the SDK."""
        request = _Request(system_instructions, input, tools, handoffs, options)
        await request.judge(self._points, self._call)
        stream = request.ask(self._model.stream_response, model_settings, output_schema, tracing)
        events = [event async for event in stream]
        try:
            done = stream_end(events, (ResponseCompletedEvent,))
        except RuntimeError as error:
            raise ModelBehaviorError(str(error)) from None
        output = streamed_output(done, events)
        usage = done.response.usage
        tokens = (usage.input_tokens, usage.output_tokens) if usage else (None, None)
        patch = await self._judge(output, tokens, output_schema)
        if patch is None and is_honest(events, output):
            for event in events:
                yield event
            return
        for event in patched_events(done, patch_output(output, patch or ModelResponsePatch(), FAKE_RESPONSES_ID)):
            yield event

    def get_retry_advice(self, request: Any) -> Any:
        """Called by the SDK. A decision isn't asked for again."""
        if find_gateway_error(request.error) is None and not isinstance(request.error, PatchError):
            return self._model.get_retry_advice(request)
        from agents.retry import ModelRetryAdvice  # older versions, which don't call this, have none

        return ModelRetryAdvice(suggested=False, replay_safety="unsafe", reason="the gateway decided")

    async def close(self) -> None:
        """Called by the SDK."""
        await self._model.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._model._cleanup_on_run_end(owner)

    async def _judge(
        self,
        output: Sequence[ResponseOutputItem],
        tokens: tuple[int | None, int | None],
        schema: AgentOutputSchemaBase | None,
    ) -> ModelResponsePatch | None:
        """Asks the gateway before an answer is shown."""
        texts, thoughts = find_parts(edit_output, output)
        response = _answer_parts.ModelResponse(
            texts=texts,
            thoughts=thoughts,
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            has_tool_calls=has_tool_calls(output),
            is_structured=schema is not None and not schema.is_plain_text(),
        )
        return await guard_model_response(self._points, response, self._call)


class _Request:
    """What a model is about to be asked, and how plugins left it."""

    def __init__(
        self,
        instructions: str | None,
        value: str | list[TResponseInputItem],
        tools: list[Tool],
        handoffs: list[Handoff[Any, Any]],
        options: Mapping[str, Any],
    ) -> None:
        self.instructions = instructions
        self.input = value
        self.tools = tools
        self.handoffs = handoffs
        self.options = dict(options)

    async def judge(self, points: Points, call: ModelCall) -> None:
        """Asks the gateway before the model is asked, and takes its changes."""
        items = input_items(self.input)
        question = question_in(items)
        offers: list[Offer] = [*self.tools, *self.handoffs]
        prompt = self.options.get("prompt")
        view = ModelRequest(
            text=text_of(question),
            system_prompt=self.instructions,
            messages=[encode_item(item) for item in items],
            tools=[_encode_offer(offer) for offer in offers],
            media=media_of(question),
            extra=None if prompt is None else {"prompt": prompt},
        )
        patch = await guard_model_request(points, view, call)
        if patch.is_empty:
            return
        self.input = cast("list[TResponseInputItem]", list(patch_messages(items, patch, _openai_items)))
        if patch.system_prompt is not None:
            self.instructions = patch.system_prompt
        if patch.tools is not None:
            offers = patch.tools.apply(offers, lambda json, _: _decode_offer(json, offers))
            self.handoffs = [offer for offer in offers if isinstance(offer, Handoff)]
            self.tools = [offer for offer in offers if not isinstance(offer, Handoff)]
        if patch.extra is not None:
            self.options["prompt"] = _changed_prompt(patch.extra)

    def ask(
        self,
        method: Callable[..., T],
        settings: ModelSettings,
        schema: AgentOutputSchemaBase | None,
        tracing: ModelTracing,
    ) -> T:
        """Gives the request to one of a model's two methods, which take the same."""
        own = (self.instructions, self.input, settings, self.tools, schema, self.handoffs, tracing)
        return method(*own, **self.options)


def _encode_offer(offer: Offer) -> JsonObject:
    """A tool or a handoff as plugins see it."""
    if isinstance(offer, FunctionTool):
        parameters = cast("JsonValue", offer.params_json_schema)
        return {"type": "function", "name": offer.name, "description": offer.description, "parameters": parameters}
    if isinstance(offer, Handoff):
        parameters = cast("JsonValue", offer.input_json_schema)
        name, description = offer.tool_name, offer.tool_description
        return {"type": "handoff", "name": name, "description": description, "parameters": parameters}
    return {"type": type(offer).__name__, "name": offer.name}


def _decode_offer(json: JsonValue, offers: Sequence[Offer]) -> Offer:
    """A tool or handoff with what a plugin changed of it, for this request."""
    members = json if isinstance(json, dict) else {}
    for offer in offers:
        known = _encode_offer(offer)
        description, parameters = members.get("description"), members.get("parameters")
        if known != {**members, "description": known.get("description"), "parameters": known.get("parameters")}:
            continue
        if not isinstance(description, str) or not isinstance(parameters, dict):
            continue
        changed: Any = copy.copy(offer)
        if isinstance(offer, Handoff):
            changed.tool_description, changed.input_json_schema = description, parameters
        else:
            changed.description, changed.params_json_schema = description, parameters
        return cast("Offer", changed)
    raise PatchError("a plugin added a tool, or changed more of one than its description and its parameters")


def _changed_prompt(extra: JsonObject) -> JsonObject:
    prompt = extra.get("prompt")
    if isinstance(prompt, dict):
        return prompt
    raise PatchError("a plugin took the prompt template away")


def _guarded_tool(points: Points, tool: FunctionTool, tools: Sequence[FunctionTool]) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> object:
        args = _parse(arguments)
        is_json, takes_text = False, getattr(tool, "output_json_schema", None) is None

        async def run(name: str, changed: object) -> ToolOutput[object]:
            nonlocal is_json, takes_text
            target = tool if name == tool.name else next((other for other in tools if other.name == name), None)
            if target is None:
                raise PatchError(f"a plugin changed the call to one of {name}, which is none of the tools")
            value = await target.on_invoke_tool(context, arguments if changed is args else dumps(changed).decode())
            result = _seen(target, value)
            is_json = not isinstance(result, str)
            # Despite a schema, the SDK takes the text that it makes of a tool's error.
            takes_text = takes_text or not (is_json or _is_object_text(value))
            return ToolOutput(value=value, result=result)

        call_id = getattr(context, "tool_call_id", None)
        call = _guard.ToolCall(tool_name=tool.name, args=args, call_id=call_id)
        match await guard_tool_run(points, call, run):
            case OwnResult(value):
                return value
            case FailedTool(error):
                raise error
            case BlockedTool(blocked):
                if takes_text:
                    return blocked.message
                raise blocked
            case ReplacedResult(result, _):
                if not (takes_text or isinstance(result, dict) or _is_object_text(result)):
                    raise PatchError("a plugin left a result that is no object, which the tool's output schema needs")
                return result if is_json and isinstance(result, (list, dict)) else to_text(result)

    guarded = copy.copy(tool)
    guarded.on_invoke_tool = invoke
    _raise_cancellation(guarded)
    _keep_approval(guarded, tool)
    return guarded


def _raise_cancellation(guarded: FunctionTool) -> None:
    """Lets a cancellation end the run.

    Newer versions make a text of one that they didn't cause, and the run would go on without a decision. What else the
    tool raises is still handled as its maker said: its own `on_invoke_tool` does that.
    """
    set_handler = getattr(agents.tool, "set_function_tool_failure_error_function", None)
    if set_handler is not None:
        set_handler(guarded, None)


def _keep_approval(guarded: FunctionTool, tool: FunctionTool) -> None:
    """Lets calls need approval as those of the tool itself do.

    Newer versions look into a tool first, which they can't once it is guarded: a call needs approval if the tool makes
    other arguments of those that the policy gets.
    """
    policy = getattr(tool, "needs_approval", False)
    prepare = getattr(tool.on_invoke_tool, "prepare_arguments", None)
    if not callable(policy) or prepare is None:
        return

    async def needs_approval(context: RunContextWrapper[Any], params: dict[str, Any], call_id: str) -> bool:
        prepared = prepare(dumps(params).decode(), tool.name)
        if prepared is not None and not prepared.unchanged:
            return True
        needed = policy(context, params, call_id)
        return bool(await needed if inspect.isawaitable(needed) else needed)

    guarded.needs_approval = needs_approval


def _seen(tool: FunctionTool, value: object) -> object:
    """What the model, or its program, gets to read of a tool's output."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    has_schema = any(getattr(tool, name, None) is not None for name in ("output_json_schema", "allowed_callers"))
    if has_schema or (parts and all(_is_part(part) for part in parts)):
        return value
    return str(value)


def _is_object_text(value: object) -> bool:
    """Whether a value is the JSON text of an object."""
    return isinstance(value, str) and value.lstrip().startswith("{") and isinstance(_parse(value), dict)


def _is_part(value: object) -> bool:
    kind = getattr(value, "type", None) if isinstance(value, BaseModel) else None
    if isinstance(value, Mapping):
        kind = value.get("type")
    return kind in ("text", "image", "file")


def _parse(arguments: str) -> JsonValue:
    """The model's arguments as the tool will read them. A text that isn't JSON stays one, which the tool refuses."""
    try:
        return loads(arguments or "{}")
    except JsonError:
        return arguments
