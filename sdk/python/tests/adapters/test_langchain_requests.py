"""What plugins see and change of requests of LangChain's agents to a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
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
