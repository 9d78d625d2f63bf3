"""Agents of the OpenAI Agents SDK with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelProvider,
    ModelResponse,
    RunConfig,
    Runner,
    RunResultStreaming,
    Tool,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseTextDeltaEvent,
)
from openai.types.responses.response_reasoning_item import Summary

from hookgate.adapters.openai_agents import guard_model_provider, guard_tools
from support.fake_gateway import FakeGateway
from support.points import PointReply, Points

set_tracing_disabled(True)


def message(text: str, item_id: str = "msg-1") -> ResponseOutputMessage:
    content = ResponseOutputText(annotations=[], text=text, type="output_text")
    return ResponseOutputMessage(id=item_id, content=[content], role="assistant", status="completed", type="message")


def reasoning(text: str) -> ResponseReasoningItem:
    summary = [Summary(text=text, type="summary_text")]
    return ResponseReasoningItem(id="r-1", summary=summary, type="reasoning", encrypted_content="secret bytes")


def call(name: str = "read", call_id: str = "call-1") -> ResponseFunctionToolCall:
    arguments = '{"path":"/etc/hosts"}'
    return ResponseFunctionToolCall(arguments=arguments, call_id=call_id, name=name, type="function_call", id="f-1")


class ScriptedModel(Model):
    """Gives these answers, one after the other, and streams their texts letter by letter."""

    def __init__(self, *answers: Sequence[Any], end: str = "completed", has_output: bool = True) -> None:
        self.model = "fake-1"
        self.requests: list[dict[str, Any]] = []
        self._answers = answers
        self._end = end
        self._has_output = has_output

    def _next(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
        names = ("instructions", "input", "settings", "tools", "output_schema", "handoffs", "tracing")
        self.requests.append({**dict(zip(names, arguments, strict=False)), **options})
        return list(self._answers[len(self.requests) - 1])

    async def get_response(self, *arguments: Any, **options: Any) -> ModelResponse:
        output = self._next(arguments, options)
        return ModelResponse(output=output, usage=Usage(input_tokens=3, output_tokens=5), response_id=None)

    async def stream_response(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        output = self._next(arguments, options)
        for index, item in enumerate(output):
            for letter in item.content[0].text if item.type == "message" else "":
                yield ResponseTextDeltaEvent(
                    content_index=0,
                    delta=letter,
                    item_id=item.id,
                    logprobs=[],
                    output_index=index,
                    sequence_number=0,
                    type="response.output_text.delta",
                )
            yield ResponseOutputItemDoneEvent(
                item=item, output_index=index, sequence_number=0, type="response.output_item.done"
            )
        response = Response(
            id="resp-1",
            created_at=0,
            model="fake-1",
            object="response",
            output=output if self._has_output else [],
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        if self._end == "incomplete":
            yield ResponseIncompleteEvent(response=response, sequence_number=0, type="response.incomplete")
        else:
            yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


class Provider(ModelProvider):
    def __init__(self, model: Model) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> Model:
        return self._model


def read_tool(
    execute: Callable[[str], object] = lambda path: f"the content of {path}", name: str = "read", **options: Any
) -> tuple[FunctionTool, list[str]]:
    paths: list[str] = []

    def read(path: str) -> object:
        """Reads a file."""
        paths.append(path)
        return execute(path)

    return function_tool(read, name_override=name, **options), paths


class SetUp:
    """An agent behind a gateway."""

    def __init__(
        self,
        gateway: FakeGateway,
        answers: Sequence[Sequence[Any]],
        tools: Sequence[Tool] = (),
        replies: dict[str, PointReply] | None = None,
        model: ScriptedModel | None = None,
        **options: Any,
    ) -> None:
        self.points = Points(gateway, **(replies or {}))
        self.model = model or ScriptedModel(*answers)
        provider = guard_model_provider(self.points.agent, Provider(self.model))
        self.config = RunConfig(model_provider=provider)
        guarded = guard_tools(self.points.agent, list(tools))
        options = {"instructions": "Be kind.", "model": "fake-1", **options}
        self.agent: Agent[Any] = Agent(name="assistant", tools=guarded, **options)

    async def run(self, value: Any = "hi") -> Any:
        return await Runner.run(self.agent, value, run_config=self.config)

    def stream(self, value: Any = "hi") -> RunResultStreaming:
        return Runner.run_streamed(self.agent, value, run_config=self.config)

    @property
    def tool_output(self) -> object:
        """The tool's output in what the model got last."""
        return self.model.requests[-1]["input"][-1]["output"]
