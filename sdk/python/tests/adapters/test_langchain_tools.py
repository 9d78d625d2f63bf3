"""What plugins see and change of calls and results of LangChain's tools."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from support.fake_gateway import FakeGateway, Reply
from support.langchain_agent import DONE, Mode, SetUp, call_message, each_mode, read_tool
from support.points import Points, Values, answer, block, for_tool, outage, patch, replace_text

from hookgate.adapters._function_tool import guard_tool
from hookgate.adapters.langchain import PatchError, guard
from hookgate.agent import Agent, NoDecision
from hookgate.agent import sync as blocking


@each_mode
async def test_rewritten_arguments_are_what_the_tool_gets_after_its_own_validation(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    read, paths = read_tool()
    replies = {"before_tool_call": patch(args={"path": "/tmp/a"})}
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies)
    await set_up.run("hi")
    assert paths == ["/tmp/a"]
    assert set_up.points.payloads("AfterToolResult")[0]["args"] == {"path": "/tmp/a"}

    wrong = SetUp(fake_gateway, mode, [call_message(), DONE], [read], {"before_tool_call": patch(args={"path": 1})})
    await wrong.run("hi")
    assert paths == ["/tmp/a"]
    assert wrong.tool_output.startswith("error Error invoking tool 'read'")
    assert wrong.points.payloads("AfterToolResult")[-1]["success"] is False


@each_mode
async def test_arguments_that_are_no_object_end_the_run(fake_gateway: FakeGateway, mode: Mode) -> None:
    read, paths = read_tool()
    # A plugin that has a text for failed tools must not save the run.
    replies = {"before_tool_call": patch(args=["/tmp/a"]), "after_tool_result": patch(result="never mind")}
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies)
    with pytest.raises(PatchError):
        await set_up.run("hi")
    assert (paths, set_up.points.payloads("AfterToolResult")) == ([], [])


@each_mode
async def test_a_renamed_call_runs_the_other_tool_or_none(fake_gateway: FakeGateway, mode: Mode) -> None:
    replies = {"before_tool_call": patch(tool_name="safe_read")}
    (read, paths), (safe_read, safe_paths) = read_tool(), read_tool(name="safe_read")
    await SetUp(fake_gateway, mode, [call_message(), DONE], [read, safe_read], replies).run("hi")
    assert (paths, safe_paths) == ([], ["/etc/hosts"])
    alone = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies)
    await alone.run("hi")
    assert paths == []
    assert alone.tool_output.startswith("error Error: safe_read is not a valid tool")


@each_mode
async def test_a_rewritten_result_is_what_the_model_gets(fake_gateway: FakeGateway, mode: Mode) -> None:
    read, _ = read_tool(
        lambda path: ("the content", {"artifact": "the content"}), response_format="content_and_artifact"
    )
    replies = {"after_tool_result": patch(result="[REDACTED]")}
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies)
    result = await set_up.run("hi")
    assert set_up.tool_output == "success [REDACTED]"
    assert "the content" not in repr(result)


@each_mode
async def test_a_plugins_answer_replaces_the_tool(fake_gateway: FakeGateway, mode: Mode) -> None:
    read, paths = read_tool()
    number = 10**5000
    replies = {"before_tool_call": answer({"id": number})}
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies)
    await set_up.run("hi")
    assert paths == []
    assert set_up.tool_output == 'success {"id":1' + "0" * 5000 + "}"
    assert len(set_up.points.payloads("AfterToolResult")) == 1


@each_mode
async def test_a_tool_that_raises_is_told_and_ends_the_run_unless_a_plugin_has_a_text_for_it(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    def fail(_: str) -> object:
        raise FileNotFoundError("no such file: /home/ada")

    read, _ = read_tool(fail)
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read])
    with pytest.raises(FileNotFoundError):
        await set_up.run("hi")
    told = set_up.points.payloads("AfterToolResult")[0]
    assert (told["result"], told.get("success", False)) == ("no such file: /home/ada", False)
    replies = {"after_tool_result": patch(result="no such file")}
    redacted = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies)
    await redacted.run("hi")
    assert redacted.tool_output == "error no such file"


@each_mode
async def test_the_end_of_a_run_within_a_tool_ends_this_one_although_other_middleware_makes_a_result_of_it(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    own = blocking.Agent(fake_gateway.url, token="token")
    inner = guard_tool(own, lambda: None, name="inner")
    read, _ = read_tool(lambda _: inner())
    client = Agent(fake_gateway.url, token="token") if mode == "async" else own
    middleware = [guard(client), ToolRetryMiddleware(max_retries=1, initial_delay=0, jitter=False)]
    replies = {"before_tool_call": for_tool("inner", outage)}
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies, middleware=middleware)
    with pytest.raises(NoDecision):
        await set_up.run("hi")
    assert len(set_up.model.requests) == 1
    assert "AfterToolResult" not in set_up.points.names


async def test_an_interrupt_in_a_tool_is_none_of_its_failures(fake_gateway: FakeGateway) -> None:
    read, _ = read_tool(lambda _: interrupt("may I?"))
    set_up = SetUp(fake_gateway, "blocking", [call_message(), DONE], [read], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    await set_up.run("hi", config=config)
    assert set_up.points.names == ["BeforeLlmRequest", "BeforeToolCall"]
    result = await set_up.invoke(Command(resume="yes"), config=config)
    assert result["messages"][-1].text == "done"
    assert set_up.points.payloads("AfterToolResult")[0]["result"] == "yes"


@each_mode
async def test_the_message_in_a_tools_command_is_judged(fake_gateway: FakeGateway, mode: Mode) -> None:
    def command(_: str) -> object:
        return Command(update={"messages": [ToolMessage("a secret", tool_call_id="call-1")]})

    read, _ = read_tool(command)
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read])
    await set_up.run("hi")
    assert set_up.points.payloads("AfterToolResult")[0]["result"] == "a secret"
    assert set_up.tool_output == "success a secret"
    replies = {"after_tool_result": replace_text("secret", "[X]")}
    redacted = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies)
    await redacted.run("hi")
    assert redacted.tool_output == "success a [X]"


@each_mode
async def test_a_blocked_call_of_a_tool_is_an_error_for_the_model_and_nothing_runs(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    read, paths = read_tool()
    replies = {"before_tool_call": block("not on your plan")}
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies)
    result = await set_up.run("hi")
    assert result["messages"][-1].text == "done"
    assert paths == []
    assert set_up.tool_output == "error not on your plan"
    assert set_up.points.payloads("AfterToolResult") == []


@each_mode
async def test_each_of_several_calls_is_judged_for_itself(fake_gateway: FakeGateway, mode: Mode) -> None:
    both = call_message()
    both.tool_calls = [*both.tool_calls, *call_message(name="write", call_id="call-2").tool_calls]

    def only_read(response: Message, values: Values) -> Reply:
        return response if values["tool_name"] == "read" else block("no writing")(response, values)

    (read, paths), (write, written) = read_tool(), read_tool(name="write")
    set_up = SetUp(fake_gateway, mode, [both, DONE], [read, write], {"before_tool_call": only_read})
    await set_up.run("hi")
    assert (paths, written) == (["/etc/hosts"], [])
    outputs = [(m.tool_call_id, m.status) for m in set_up.model.requests[-1] if isinstance(m, ToolMessage)]
    assert outputs == [("call-1", "success"), ("call-2", "error")]


@each_mode
async def test_a_blocked_result_is_replaced_by_the_message(fake_gateway: FakeGateway, mode: Mode) -> None:
    read, paths = read_tool()
    replies = {"after_tool_result": block("contains secrets")}
    set_up = SetUp(fake_gateway, mode, [call_message(), DONE], [read], replies)
    result = await set_up.run("hi")
    assert paths == ["/etc/hosts"]
    assert set_up.tool_output == "error contains secrets"
    assert "the content of" not in repr(result)


async def test_the_tools_of_a_plain_graph_are_guarded(fake_gateway: FakeGateway) -> None:
    read, paths = read_tool()
    points = Points(fake_gateway, before_tool_call=block("no"))
    guarded = guard(points.agent)
    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([read], awrap_tool_call=guarded.awrap_tool_call))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    result = await graph.compile().ainvoke({"messages": [call_message()]})
    assert (result["messages"][-1].text, paths) == ("no", [])
    Points(fake_gateway, before_tool_call=outage)
    with pytest.raises(NoDecision):
        await graph.compile().ainvoke({"messages": [call_message()]})
