"""Tools of the OpenAI Agents SDK behind the gateway: agents as tools, outputs with a schema, cancellation, approval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from agents import Agent, FunctionTool, Runner, function_tool
from google.protobuf.message import Message
from openai.types.responses import ResponseFunctionToolCall
from support.fake_gateway import FakeGateway, Reply
from support.openai_agent import ScriptedModel, SetUp, call, message, read_tool
from support.points import PointReply, Values, answer, block, outage, patch, replace_text

from hookgate.adapters.openai_agents import find_gateway_error, guard_model, guard_tools
from hookgate.agent import Blocked, NoDecision


async def test_an_agent_as_a_tool_is_judged_as_one(fake_gateway: FakeGateway) -> None:
    inner_model = ScriptedModel([message("inner secret")])
    set_up = SetUp(fake_gateway, [])
    inner: Agent[Any] = Agent(name="inner", model=guard_model(set_up.points.agent, inner_model))
    tool = inner.as_tool("read", "Asks the inner agent.")
    replies = {"after_tool_result": replace_text("secret", "[X]")}
    outer = SetUp(fake_gateway, [[agent_call("read")], [message("done")]], [tool], replies)
    await outer.run()
    assert outer.tool_output == "inner [X]"


def ask_inner(gateway: FakeGateway, reply: PointReply, inner_tools: Sequence[Any] = ()) -> SetUp:
    """An agent with the tool `read`, which is another agent. The reply is about what the inner one does."""

    def is_about_inner(response: Message, values: Values) -> Reply:
        is_inner = "inner" in (values.get("text"), values.get("content"), values.get("tool_name"))
        return reply(response, values) if is_inner else response

    points = ("before_llm_request", "before_tool_call", "before_response")
    set_up = SetUp(gateway, [[agent_call("read")], [message("done")]], replies=dict.fromkeys(points, is_about_inner))
    answers = [[call("inner", "call-2")]] if inner_tools else []
    model = guard_model(set_up.points.agent, ScriptedModel(*answers, [message("inner")]))
    tools = guard_tools(set_up.points.agent, inner_tools)
    inner: Agent[Any] = Agent(name="inner", model=model, tools=list(tools))
    set_up.agent.tools = list(guard_tools(set_up.points.agent, [inner.as_tool("read", "Asks the inner agent.")]))
    return set_up


def agent_call(name: str) -> ResponseFunctionToolCall:
    """A call of an agent as a tool."""
    return ResponseFunctionToolCall(
        arguments='{"input":"hi"}', call_id="call-1", name=name, type="function_call", id="f-1"
    )


@pytest.mark.parametrize(
    ("reply", "has_tool"),
    [(block("stop", "run"), False), (block("stop", "run"), True), (outage, False), (outage, True)],
    ids=["blocked response", "blocked tool", "undecided response", "undecided tool"],
)
async def test_what_ends_the_run_of_an_agent_as_a_tool_also_ends_the_outer_run(
    fake_gateway: FakeGateway, reply: PointReply, has_tool: bool
) -> None:
    inner_tool, paths = read_tool(name="inner")
    set_up = ask_inner(fake_gateway, reply, [inner_tool] if has_tool else [])
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the SDK's errors differ
        await set_up.run()
    assert isinstance(find_gateway_error(caught.value), NoDecision if reply is outage else Blocked)
    assert (paths, len(set_up.model.requests)) == ([], 1)
    assert set_up.points.payloads("AfterToolResult") == []


async def test_a_change_that_an_agent_as_a_tool_cant_take_ends_the_outer_run(fake_gateway: FakeGateway) -> None:
    set_up = ask_inner(fake_gateway, patch(tool_name="write"), [read_tool(name="inner")[0]])
    with pytest.raises(Exception, match="none of the tools"):
        await set_up.run()
    assert len(set_up.model.requests) == 1


async def test_a_block_of_a_step_within_an_agent_as_a_tool_leaves_both_runs(fake_gateway: FakeGateway) -> None:
    set_up = ask_inner(fake_gateway, block("not on your plan"), [read_tool(name="inner")[0]])
    assert (await set_up.run()).final_output == "done"
    assert len(set_up.points.payloads("AfterToolResult")) == 1


async def test_a_change_that_a_run_cant_take_ends_it_whatever_plugins_make_of_results(
    fake_gateway: FakeGateway,
) -> None:
    replies = {"before_tool_call": patch(tool_name="write"), "after_tool_result": patch(result="redacted")}
    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [read_tool()[0]], replies)
    with pytest.raises(Exception, match="none of the tools"):
        await set_up.run()
    assert set_up.points.payloads("AfterToolResult") == []


async def test_a_cancellation_that_a_tool_raises_ends_the_run(fake_gateway: FakeGateway) -> None:
    def cancel(_: str) -> object:
        raise asyncio.CancelledError

    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [read_tool(cancel)[0]])
    with pytest.raises(asyncio.CancelledError):
        await set_up.run()
    assert len(set_up.model.requests) == 1


HAS_SCHEMAS = hasattr(FunctionTool, "output_json_schema")


def structured_tool(execute: Callable[[str], object] = lambda _: {"name": "Ada"}) -> FunctionTool:
    """A tool that gives objects."""
    members = {"name": {"type": "string"}}
    schema = {"type": "object", "properties": members, "required": ["name"], "additionalProperties": False}
    return read_tool(execute, output_json_schema=schema)[0]


@pytest.mark.skipif(not HAS_SCHEMAS, reason="older versions know no schemas of outputs")
@pytest.mark.parametrize("point", ["before_tool_call", "after_tool_result"])
async def test_a_block_ends_the_run_if_the_tool_must_give_an_object(fake_gateway: FakeGateway, point: str) -> None:
    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [structured_tool()], {point: block("no")})
    with pytest.raises(Exception, match="no") as caught:
        await set_up.run()
    found = find_gateway_error(caught.value)
    assert isinstance(found, Blocked)
    assert found.message == "no"


@pytest.mark.skipif(not HAS_SCHEMAS, reason="older versions know no schemas of outputs")
async def test_a_plugins_result_for_a_tool_that_must_give_an_object_is_one(fake_gateway: FakeGateway) -> None:
    async def output(tool: FunctionTool, **replies: PointReply) -> object:
        set_up = SetUp(fake_gateway, [[call()], [message("done")]], [tool], replies)
        await set_up.run()
        return set_up.tool_output

    def fail(_: str) -> object:
        raise FileNotFoundError("no such file")

    redact = replace_text("Ada", "[X]")
    assert await output(structured_tool(), after_tool_result=redact) == '{"name":"[X]"}'
    assert await output(structured_tool(lambda _: '{"name":"Ada"}'), after_tool_result=redact) == '{"name":"[X]"}'
    assert await output(structured_tool(), before_tool_call=answer({"name": "Bo"})) == '{"name":"Bo"}'
    assert await output(structured_tool(fail), after_tool_result=block("no")) == "no"
    assert await output(structured_tool(fail), after_tool_result=patch(result="[X]")) == "[X]"
    for reply in (answer("text"), answer([1])):
        with pytest.raises(Exception, match="a plugin left a result that is no object"):
            await output(structured_tool(), before_tool_call=reply)


@pytest.mark.skipif(not hasattr(FunctionTool, "needs_approval"), reason="older versions know no approval")
@pytest.mark.parametrize("is_needed", [False, True])
async def test_a_guarded_tool_needs_approval_as_it_does_without_the_guard(
    fake_gateway: FakeGateway, is_needed: bool
) -> None:
    async def policy(*_: object) -> bool:
        return is_needed

    async def same(path: str) -> str:
        return path

    async def defaults(path: str, depth: int = 1) -> str:
        return path

    for function in (same, defaults):
        tool = function_tool(function, name_override="read", needs_approval=policy, strict_mode=False)
        set_up = SetUp(fake_gateway, [[call()], [message("done")]], [tool])
        guarded = await set_up.run()
        unguarded: Agent[Any] = Agent(name="assistant", model=ScriptedModel([call()], [message("done")]), tools=[tool])
        expected = await Runner.run(unguarded, "hi")
        assert len(guarded.interruptions) == len(expected.interruptions)
        assert len(set_up.points.payloads("BeforeToolCall")) == 1 - len(expected.interruptions)
        fake_gateway.calls.clear()
