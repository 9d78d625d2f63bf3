"""Agents of Pydantic AI with a model that is a function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from hookgate.adapters.pydantic_ai import Guard
from support.points import Points


@dataclass
class Script:
    """A model that gives these answers in turn, and keeps what it was asked."""

    answers: list[ModelResponse]
    requests: list[list[ModelMessage]] = field(default_factory=list)
    infos: list[AgentInfo] = field(default_factory=list)

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self._answer, stream_function=self._stream)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(list(messages))
        self.infos.append(info)
        return self.answers[len(self.requests) - 1]

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        for index, part in enumerate(self._answer(messages, info).parts):
            if isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield f"{word} "
            elif isinstance(part, ToolCallPart):
                yield {index: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}

    def returned(self) -> list[tuple[Any, str]]:
        """What tools gave to the last request, with the outcomes."""
        [request] = [message for message in self.requests[-1][-1:] if isinstance(message, ModelRequest)]
        return [(part.content, part.outcome) for part in request.parts if isinstance(part, ToolReturnPart)]


def says(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(content=text)])


def calls(name: str, /, **args: Any) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(tool_name=name, args=args, tool_call_id=f"id-{name}")])


def read_then_say() -> Script:
    return Script([calls("read", path="/etc/hosts"), says("done")])


class Tools:
    """The tools `read` and `safe_read`, which keep what they got."""

    def __init__(self, result: Callable[[str], Any] = lambda path: f"the content of {path}") -> None:
        self.paths: list[str] = []
        self._result = result

    @property
    def all(self) -> list[Tool[None]]:
        return [Tool(self.read), Tool(self.safe_read)]

    def read(self, path: str) -> Any:
        self.paths.append(path)
        return self._result(path)

    def safe_read(self, path: str) -> str:
        return f"safe {path}"


def agent_of(points: Points, script: Script, tools: Tools | None = None, **options: Any) -> Agent[None, Any]:
    capabilities = [*options.pop("capabilities", []), Guard(points.agent)]
    return Agent(script.model, tools=tools.all if tools else [], capabilities=capabilities, **options)


def user_text(messages: list[ModelMessage]) -> list[Any]:
    parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
    return [part.content for part in parts if isinstance(part, UserPromptPart)]


class City(BaseModel):
    name: str


def city(mode: str) -> ModelResponse:
    return calls("final_result", name="secret") if mode == "tool" else says('{"name":"secret"}')


class Recover(AbstractCapability[None]):
    """Takes every failure of a tool for a result."""

    async def on_tool_execute_error(self, ctx: RunContext[None], **_: Any) -> Any:
        return "never mind"
