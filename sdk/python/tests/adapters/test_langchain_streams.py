"""Nothing that LangChain streams is shown before it is judged."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from langchain_core.messages import AIMessage
from support.fake_gateway import FakeGateway, Reply
from support.langchain_agent import SetUp, call_message, read_tool
from support.points import PointReply, Values, replace_text

from hookgate.agent import call_context


class Held:
    """A reply that waits until the test lets it go."""

    def __init__(self, reply: PointReply) -> None:
        self._reply = reply
        self.asked = threading.Event()
        self.released = threading.Event()

    def __call__(self, response: Message, values: Values) -> Reply:
        self.asked.set()
        assert self.released.wait(30)
        return self._reply(response, values)


async def messages_and_updates(agent: Any) -> AsyncIterator[object]:
    async for chunk in agent.astream({"messages": ["hi"]}, stream_mode=["messages", "updates"]):
        yield chunk


async def all_events(agent: Any) -> AsyncIterator[object]:
    async for event in agent.astream_events({"messages": ["hi"]}, version="v2"):
        yield event


@pytest.mark.parametrize("stream", [messages_and_updates, all_events])
async def test_nothing_is_streamed_before_the_decision_and_then_in_one_piece(
    fake_gateway: FakeGateway, stream: Callable[[Any], AsyncIterator[object]]
) -> None:
    held = Held(replace_text("secret", "[X]"))
    read, _ = read_tool(lambda _: "a confidence")
    replies: dict[str, PointReply] = {"before_response": held, "after_tool_result": replace_text("confidence", "[Y]")}
    set_up = SetUp(fake_gateway, "async", [call_message(), AIMessage("the secret")], [read], replies)
    seen: list[str] = []

    async def collect() -> None:
        async for chunk in stream(set_up.agent):
            seen.append(repr(chunk))  # noqa: PERF401 - it is read before the end

    with call_context(session_id="s-1"):
        collecting = asyncio.create_task(collect())
    assert await asyncio.to_thread(held.asked.wait, 30)
    before = "".join(seen)
    assert "a [Y]" in before
    held.released.set()
    await collecting
    shown = "".join(seen)
    assert "the [X]" not in before
    assert "the [X]" in shown
    for text in ("secret", "confidence", "content='t'", "content='se"):
        assert text not in shown
    assert set(set_up.points.sessions()) == {"s-1"}


def test_nothing_is_streamed_before_the_decision_without_async_code(fake_gateway: FakeGateway) -> None:
    replies: dict[str, PointReply] = {
        "before_response": replace_text("secret", "[X]"),
        "after_tool_result": replace_text("confidence", "[Y]"),
    }
    read, _ = read_tool(lambda _: "a confidence")
    set_up = SetUp(fake_gateway, "blocking", [call_message(), AIMessage("the secret")], [read], replies)
    modes = ["messages", "updates", "values", "tools", "debug"]
    seen = [repr(chunk) for chunk in set_up.agent.stream({"messages": ["hi"]}, stream_mode=modes)]
    assert not [chunk for chunk in seen if "secret" in chunk or "confidence" in chunk]
    answers = [chunk for chunk in seen if chunk.startswith("('messages'") and "the [X]" in chunk]
    assert len(answers) == 1
