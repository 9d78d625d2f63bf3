"""What plugins see and change of requests of LangChain's agents to a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from support.fake_gateway import FakeGateway, Reply
from support.langchain_agent import DONE, FILE, IMAGE, Mode, SetUp, call_message, each_mode, question, read_tool
from support.points import PointReply, Values, patch, replace_text

from hookgate.adapters.langchain import PatchError


def contents(messages: Sequence[BaseMessage]) -> str:
    return json.dumps([message.content for message in messages])


@each_mode
async def test_a_rewritten_request_is_what_the_model_gets_and_the_state_keeps_its_own(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    replies = {"before_llm_request": replace_text("Ada", "[NAME]")}
    set_up = SetUp(fake_gateway, mode, [DONE], replies=replies, system_prompt="Ada pays.")
    history = AIMessage(
        content="Hello Ada.",
        tool_calls=cast("Any", [{"id": "c", "name": "find", "args": {"name": "Ada"}, "type": "tool_call"}]),
        response_metadata={"output": ["Hello Ada."], "model_name": "m"},
        additional_kwargs={"copy": "Hello Ada."},
    )
    found = ToolMessage(content="Ada", tool_call_id="c", name="find")
    result = await set_up.run("I am Ada.", history, found, "Is it Ada?")
    [request] = set_up.model.requests
    assert contents(request) == '["[NAME] pays.", "I am [NAME].", "Hello [NAME].", "[NAME]", "Is it [NAME]?"]'
    rewritten = request[2]
    assert isinstance(rewritten, AIMessage)
    assert rewritten.tool_calls[0]["args"] == {"name": "[NAME]"}
    assert (rewritten.response_metadata, rewritten.additional_kwargs) == ({"model_name": "m"}, {})
    assert result["messages"][0].text == "I am Ada."


@each_mode
async def test_only_the_text_changes_if_a_plugin_changes_only_the_text(fake_gateway: FakeGateway, mode: Mode) -> None:
    replies = {"before_llm_request": patch(text="Who is [NAME]?")}
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read_tool()[0]], replies)
    await set_up.run("I am Ada.", question())
    for request in set_up.model.requests:
        asked = next(message for message in reversed(request) if isinstance(message, HumanMessage))
        assert asked.content == [{"type": "text", "text": "Who is [NAME]?"}, IMAGE, FILE]
        assert request[1].text == "I am Ada."


SYSTEM_MESSAGES: list[Any] = [
    SystemMessage(["Ada", {"type": "image_url", "image_url": {"url": "https://x/Ada.png"}}]),
    SystemMessage([{"type": "x", "text": "Ada"}]),
    SystemMessage([{"type": "text", "text": "Be kind.", "note": "Ada"}]),
    SystemMessage("Be kind.", name="Ada"),
]


@each_mode
@pytest.mark.parametrize("system", SYSTEM_MESSAGES, ids=str)
async def test_all_of_a_system_message_is_judged(fake_gateway: FakeGateway, mode: Mode, system: SystemMessage) -> None:
    replies = {"before_llm_request": replace_text("Ada", "[NAME]")}
    set_up = SetUp(fake_gateway, mode, [DONE, DONE], replies=replies, system_prompt=system)
    await set_up.run("hi")
    [request] = set_up.points.payloads("BeforeLlmRequest")
    [shown, _] = cast("list[dict[str, Any]]", request["messages"])
    assert (shown["role"], shown["content"], shown.get("name")) == ("system", system.content, system.name)
    assert "system_prompt" not in request
    [first, asked] = set_up.model.requests[0]
    assert isinstance(first, SystemMessage)
    assert "[NAME]" in repr(first)
    assert "Ada" not in repr(first)
    assert asked.text == "hi"


@each_mode
async def test_a_system_message_of_text_blocks_is_the_system_prompt(fake_gateway: FakeGateway, mode: Mode) -> None:
    system = SystemMessage([{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}])
    set_up = SetUp(fake_gateway, mode, [DONE], system_prompt=system)
    await set_up.run("hi")
    assert set_up.points.payloads("BeforeLlmRequest")[0]["system_prompt"] == "Be kind."
    assert set_up.model.requests[0][0] == system


def without_image_and_first_tool(response: Message, values: Values) -> Reply:
    payload = cast("Any", response).payload
    del payload.images[:]
    changed = patch(tools=cast("Any", values["tools"])[1:], system_prompt="Be short.")
    return changed(response, values)


@each_mode
async def test_a_plugin_takes_an_image_and_a_tool_away(fake_gateway: FakeGateway, mode: Mode) -> None:
    replies: dict[str, PointReply] = {"before_llm_request": without_image_and_first_tool}
    tools = [read_tool(name="write")[0], read_tool()[0]]
    set_up = SetUp(fake_gateway, mode, [DONE], tools, replies, system_prompt=None)
    await set_up.run(question())
    assert set_up.model.bound == [["read"]]
    assert contents(set_up.model.requests[0]) == json.dumps(
        ["Be short.", [{"type": "text", "text": "Who am I?"}, FILE]]
    )


@each_mode
async def test_a_changed_tool_is_refused(fake_gateway: FakeGateway, mode: Mode) -> None:
    replies = {"before_llm_request": replace_text("Reads a file.", "Reads.")}
    set_up = SetUp(fake_gateway, mode, [DONE], [read_tool()[0]], replies)
    with pytest.raises(PatchError):
        await set_up.run("hi")
    assert set_up.model.requests == []
