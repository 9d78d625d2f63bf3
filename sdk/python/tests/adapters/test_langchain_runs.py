"""Whole runs of LangChain's agents behind the gateway: what they pass, and what ends them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware
from langchain_core.messages import AIMessage
from support.fake_gateway import FakeGateway
from support.langchain_agent import DONE, Mode, ScriptedModel, SetUp, call_message, each_mode, question, read_tool
from support.points import RUN_ENDS, Points, outage

from hookgate.adapters.langchain import find_gateway_error, guard
from hookgate.agent import Agent, Blocked, NoDecision, call_context


@each_mode
async def test_an_allowed_run_passes_all_points_and_nothing_changes(fake_gateway: FakeGateway, mode: Mode) -> None:
    read, paths = read_tool()
    last = AIMessage(
        content=[{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "It is "}],
        usage_metadata={"input_tokens": 3, "output_tokens": 5, "total_tokens": 8},
        response_metadata={"stop_reason": "end_turn", "model": "m"},
    )
    set_up = SetUp(fake_gateway, mode, [call_message(), last], [read])
    with call_context(session_id="s-1"):
        result = await set_up.run("My name is Ada.", question())
    assert result["messages"][-1].content == last.content
    assert paths == ["/etc/hosts"]
    points = set_up.points
    assert points.names == [
        "BeforeLlmRequest",
        "BeforeToolCall",
        "AfterToolResult",
        "BeforeLlmRequest",
        "BeforeResponse",
    ]
    assert set(points.sessions()) == {"s-1"}
    context = cast("Any", fake_gateway.calls[0].message).context
    assert (context.provider, context.model) == ("fake", "fake-1")
    request = points.payloads("BeforeLlmRequest")[0]
    assert (request["text"], request["system_prompt"]) == ("Who am I?", "Be kind.")
    assert [cast("Any", message)["role"] for message in cast("Any", request["messages"])] == ["user", "user"]
    assert cast("Any", request["tools"])[0]["function"]["name"] == "read"
    image, file = points.media("BeforeLlmRequest")[:2]
    assert (image.data, image.mime_type) == (b"\x01\x02\x03", "image/png")
    assert (file.url, file.mime_type) == ("https://x/y.pdf", "application/pdf")
    args = {"path": "/etc/hosts"}
    assert points.payloads("BeforeToolCall") == [{"tool_name": "read", "args": args, "call_id": "call-1"}]
    after = points.payloads("AfterToolResult")[0]
    assert (after["result"], after["success"], after["args"]) == ("the content of /etc/hosts", True, args)
    response = points.payloads("BeforeResponse")[0]
    assert (response["content"], response["reasoning"], response["stop_reason"]) == ("It is ", "hm", "end_turn")


@each_mode
@pytest.mark.parametrize("what", RUN_ENDS)
async def test_what_ends_the_run(fake_gateway: FakeGateway, mode: Mode, what: str) -> None:
    point, reply = RUN_ENDS[what]
    read, paths = read_tool()
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read], {point: reply})
    with pytest.raises(NoDecision if what.startswith("no decision") else Blocked) as caught:
        await set_up.run("hi")
    found = find_gateway_error(caught.value)
    assert found is not None
    assert found.point == point
    assert len(paths) == (1 if point in ("after_tool_result", "before_response") else 0)


async def test_retries_within_the_guard_dont_repeat_a_decision(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=outage)
    model = ScriptedModel(answers=[DONE, DONE])
    middleware = [guard(points.agent), ModelRetryMiddleware(on_failure="continue", initial_delay=0)]
    agent: Any = create_agent(model, [], middleware=middleware)
    with pytest.raises(NoDecision):
        await agent.ainvoke({"messages": ["hi"]})
    assert len(model.requests) == 1


async def test_code_that_isnt_async_needs_the_blocking_agent(fake_gateway: FakeGateway) -> None:
    set_up = SetUp(fake_gateway, "async", [DONE])
    with pytest.raises(TypeError, match=r"use hookgate\.agent\.sync"):
        set_up.agent.invoke({"messages": ["hi"]})
    assert set_up.model.requests == []
    with pytest.raises(TypeError, match="gateway must be an Agent"):
        guard(cast("Agent", fake_gateway))
