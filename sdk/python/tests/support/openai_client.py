"""Clients of OpenAI's API behind the gateway."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast, get_args

import pytest
from openai import AsyncOpenAI, OpenAI

from hookgate.adapters.openai import guard
from hookgate.agent import sync as blocking
from support.fake_gateway import FakeGateway
from support.openai_api import OpenAiApi
from support.points import PointReply, Points

Mode: TypeAlias = Literal["async", "blocking", "threads"]
"""Which agent of the SDK asks in which code: in threads a blocking one in async code."""

Method: TypeAlias = Literal["chat", "responses"]

each_mode = pytest.mark.parametrize("mode", get_args(Mode))
each_method = pytest.mark.parametrize("method", get_args(Method))


class SetUp:
    """A client behind a gateway."""

    def __init__(self, gateway: FakeGateway, mode: Mode, api: OpenAiApi, **replies: PointReply) -> None:
        self.points = Points(gateway, **replies)
        agent = self.points.agent if mode == "async" else blocking.Agent(gateway.url, token="token")
        options: Any = {"base_url": api.url, "api_key": "key", "max_retries": 0}
        self.api = api
        self._is_async = mode != "blocking"
        self.client: Any = guard(agent, AsyncOpenAI(**options) if self._is_async else cast("Any", OpenAI(**options)))

    async def ask(self, method: Method, **arguments: Any) -> Any:
        create = self.client.chat.completions.create if method == "chat" else self.client.responses.create
        arguments = {"model": "fake-1", **arguments}
        if method == "chat":
            arguments = {"messages": [{"role": "user", "content": "hi"}], **arguments}
        elif "input" not in arguments:
            arguments["input"] = "hi"
        answered = create(**arguments)
        return await answered if self._is_async else answered

    async def events(self, method: Method, **arguments: Any) -> list[Any]:
        stream = await self.ask(method, stream=True, **arguments)
        if not self._is_async:
            with stream:
                return list(stream)
        async with stream:
            return [event async for event in stream]


def text_in(method: Method, result: Any) -> str:
    text = result.choices[0].message.content if method == "chat" else result.output_text
    assert isinstance(text, str)
    return text


def text_in_stream(method: Method, seen: list[Any]) -> list[str]:
    """The pieces of text that a stream showed."""
    if method == "chat":
        pieces = [choice.delta.content for chunk in seen for choice in chunk.choices]
    else:
        pieces = [event.delta for event in seen if event.type == "response.output_text.delta"]
    return [piece for piece in pieces if piece]
