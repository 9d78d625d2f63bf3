"""Agents of LangChain with a scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import Field

from hookgate.adapters.langchain import guard
from hookgate.agent import sync as blocking
from support.fake_gateway import FakeGateway
from support.points import PointReply, Points

Mode: TypeAlias = Literal["async", "blocking", "threads"]
"""Which agent of the SDK asks in which code: in threads a blocking one in async code."""


each_mode = pytest.mark.parametrize("mode", get_args(Mode))

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}}
FILE = {"type": "file", "url": "https://x/y.pdf", "mime_type": "application/pdf"}


def question() -> HumanMessage:
    """A text with an image and a file."""
    return HumanMessage(cast("Any", [{"type": "text", "text": "Who am I?"}, IMAGE, FILE]))


class ScriptedModel(BaseChatModel):
    """Gives these answers, one after the other, in pieces if it is streamed."""

    answers: list[AIMessage]
    requests: list[list[BaseMessage]] = Field(default_factory=list)
    bound: list[list[str]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, stop: list[str] | None = None, **_: Any) -> Any:
        return {"ls_provider": "fake", "ls_model_name": "fake-1", "ls_model_type": "chat"}

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        self.bound.append([tool["name"] if isinstance(tool, dict) else tool.name for tool in tools])
        options.pop("tool_choice", None)
        return self.bind(**options)

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        self.requests.append(messages)
        return self.answers[len(self.requests) - 1].model_copy()

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        message = self._next(messages)
        calls = [
            {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": index}
            for index, call in enumerate(message.tool_calls)
        ]
        yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=cast("Any", calls)))
        for letter in str(message.content):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=letter))
            if run_manager is not None:
                run_manager.on_llm_new_token(letter, chunk=chunk)
            yield chunk


def call_message(content: str = "", *, name: str = "read", call_id: str = "call-1") -> AIMessage:
    tool_calls = [{"id": call_id, "name": name, "args": {"path": "/etc/hosts"}, "type": "tool_call"}]
    return AIMessage(content=content, tool_calls=cast("Any", tool_calls))


DONE = AIMessage("done", id="done-1")


def read_tool(
    execute: Callable[[str], object] = lambda path: f"the content of {path}", name: str = "read", **options: Any
) -> tuple[StructuredTool, list[str]]:
    paths: list[str] = []

    def read(path: str) -> object:
        paths.append(path)
        return execute(path)

    return StructuredTool.from_function(read, name=name, description="Reads a file.", **options), paths


class SetUp:
    """An agent behind a gateway."""

    def __init__(
        self,
        gateway: FakeGateway,
        mode: Mode,
        answers: Sequence[AIMessage],
        tools: Sequence[BaseTool] = (),
        replies: dict[str, PointReply] | None = None,
        **options: Any,
    ) -> None:
        self.points = Points(gateway, **(replies or {}))
        self.agent_client = self.points.agent if mode == "async" else blocking.Agent(gateway.url, token="token")
        self.model = ScriptedModel(answers=list(answers))
        options = {"system_prompt": "Be kind.", "middleware": [guard(self.agent_client)], **options}
        self.agent: Any = create_agent(self.model, tools, **options)
        self._is_async = mode != "blocking"

    async def run(self, *messages: str | BaseMessage, **options: Any) -> dict[str, Any]:
        request: object = {"messages": list(messages)}
        return await self.invoke(request, **options)

    async def invoke(self, request: object, **options: Any) -> dict[str, Any]:
        result = (
            await self.agent.ainvoke(request, **options) if self._is_async else self.agent.invoke(request, **options)
        )
        return cast("dict[str, Any]", result)

    @property
    def tool_output(self) -> str:
        """The tool's message in what the model got last."""
        message = next(message for message in reversed(self.model.requests[-1]) if isinstance(message, ToolMessage))
        return f"{message.status} {message.text}"
