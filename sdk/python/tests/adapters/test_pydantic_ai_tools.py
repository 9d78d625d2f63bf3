"""What plugins see and change of calls and results of Pydantic AI's tools."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import FunctionToolset
from support.fake_gateway import FakeGateway
from support.points import Points, Values, answer, block, for_tool, outage, patch, replace_text
from support.pydantic_ai_agent import Recover, Script, Tools, agent_of, read_then_say, says, user_text

from hookgate.adapters._function_tool import guard_tool
from hookgate.adapters.pydantic_ai import Guard, PatchError, guard_toolset
from hookgate.agent import NoDecision
from hookgate.agent import sync as blocking


async def test_a_streamed_call_of_a_tool_is_judged(fake_gateway: FakeGateway) -> None:
    points, tools = Points(fake_gateway, before_tool_call=block("no")), Tools()
    script = read_then_say()
    async with agent_of(points, script, tools).run_stream("hello") as result:
        assert (await result.get_output()).strip() == "done"
    assert tools.paths == []
    assert script.returned() == [("no", "failed")]


async def test_rewritten_arguments_are_validated(fake_gateway: FakeGateway) -> None:
    points, tools, script = (
        Points(fake_gateway, before_tool_call=patch(args={"path": "/tmp/a"})),
        Tools(),
        read_then_say(),
    )
    await agent_of(points, script, tools).run("hello")
    assert tools.paths == ["/tmp/a"]


@pytest.mark.parametrize("args", [{"path": 5}, ["/tmp"]])
@pytest.mark.parametrize("capabilities", [[], [Recover()]])
async def test_arguments_that_dont_fit_end_the_run(
    fake_gateway: FakeGateway, args: Any, capabilities: list[Any]
) -> None:
    points, tools, script = Points(fake_gateway, before_tool_call=patch(args=args)), Tools(), read_then_say()
    with pytest.raises(PatchError, match="a plugin changed the arguments of read, and they don't fit"):
        await agent_of(points, script, tools, capabilities=capabilities).run("hello")
    assert tools.paths == []
    assert len(script.requests) == 1
    assert "AfterToolResult" not in points.names


async def test_rewritten_arguments_pass_the_own_validator_of_the_tool(fake_gateway: FakeGateway) -> None:
    def check(_: RunContext[None], path: str) -> None:
        if path.startswith("/etc/shadow"):
            raise ModelRetry("not this one")

    points, tools, script = (
        Points(fake_gateway, before_tool_call=patch(args={"path": "/etc/shadow"})),
        Tools(),
        read_then_say(),
    )
    agent: Agent[None, str] = Agent(
        script.model, tools=[Tool(tools.read, args_validator=check)], capabilities=[Guard(points.agent)]
    )
    await agent.run("hello")
    assert tools.paths == []
    assert points.payloads("AfterToolResult")[0]["result"] == "not this one"
    assert "not this one" in repr(script.requests[-1])


async def test_a_renamed_call_runs_the_other_tool(fake_gateway: FakeGateway) -> None:
    points, tools, script = (
        Points(fake_gateway, before_tool_call=patch(tool_name="safe_read")),
        Tools(),
        read_then_say(),
    )
    await agent_of(points, script, tools).run("hello")
    assert script.returned() == [("safe /etc/hosts", "success")]
    assert tools.paths == []


@pytest.mark.parametrize(("name", "why"), [("nothing", "none of the tools"), ("approved", "needs approval")])
@pytest.mark.parametrize("capabilities", [[], [Recover()]])
async def test_a_name_under_which_no_tool_may_run_ends_the_run(
    fake_gateway: FakeGateway, name: str, why: str, capabilities: list[Any]
) -> None:
    points, tools, script = Points(fake_gateway, before_tool_call=patch(tool_name=name)), Tools(), read_then_say()
    approved = Tool(tools.read, name="approved", requires_approval=True)
    capabilities = [*capabilities, Guard(points.agent)]
    agent: Agent[None, str] = Agent(script.model, tools=[*tools.all, approved], capabilities=capabilities)
    with pytest.raises(PatchError, match=why):
        await agent.run("hello")
    assert tools.paths == []
    assert len(script.requests) == 1


@pytest.mark.parametrize("value", [{"id": 9007199254740993}, "cached", None, 0])
async def test_an_answer_of_a_plugin_replaces_the_tool(fake_gateway: FakeGateway, value: Any) -> None:
    points, tools, script = Points(fake_gateway, before_tool_call=answer(value)), Tools(), read_then_say()
    await agent_of(points, script, tools).run("hello")
    assert script.returned() == [(value, "success")]
    assert tools.paths == []
    assert len(points.payloads("AfterToolResult")) == 1


async def test_a_rewritten_result_is_what_the_model_gets(fake_gateway: FakeGateway) -> None:
    points, script = Points(fake_gateway, after_tool_result=replace_text("/etc/hosts", "[X]")), read_then_say()
    await agent_of(points, script, Tools()).run("hello")
    assert script.returned() == [("the content of [X]", "success")]


async def test_what_a_tool_says_beside_its_result_is_judged(fake_gateway: FakeGateway) -> None:
    def both(path: str) -> ToolReturn[str]:
        return ToolReturn("a secret", content=["beside: secret"], metadata={"kept": True})

    points, script = Points(fake_gateway, after_tool_result=replace_text("secret", "[X]")), read_then_say()
    await agent_of(points, script, Tools(both)).run("hello")
    assert points.payloads("AfterToolResult")[0]["result"] == {
        "return_value": "a secret",
        "content": ["beside: secret"],
    }
    assert script.returned() == [("a [X]", "success")]
    assert user_text(script.requests[-1]) == ["hello", ["beside: [X]"]]
    Points(fake_gateway, after_tool_result=patch(result="short"))
    script = read_then_say()
    await agent_of(points, script, Tools(both)).run("hello")
    assert script.returned() == [("short", "success")]
    assert user_text(script.requests[-1]) == ["hello"]


async def test_a_tool_that_fails_is_told_as_a_failure(fake_gateway: FakeGateway) -> None:
    def fail(kind: type[Exception]) -> Tools:
        def run(path: str) -> Any:
            raise kind("no such file: /home/ada")

        return Tools(run)

    points = Points(fake_gateway)
    with pytest.raises(OSError, match="no such file"):
        await agent_of(points, read_then_say(), fail(OSError)).run("hello")
    script = read_then_say()
    await agent_of(points, script, fail(ModelRetry)).run("hello")
    for after in points.payloads("AfterToolResult"):
        assert (after["result"], after["success"]) == ("no such file: /home/ada", False)
    Points(fake_gateway, after_tool_result=replace_text("/home/ada", "[X]"))
    for kind in (OSError, ModelRetry, ToolFailed):
        script = read_then_say()
        await agent_of(points, script, fail(kind)).run("hello")
        assert script.returned() == [("no such file: [X]", "failed")]
        assert "/home/ada" not in repr(script.requests[-1])


async def test_the_end_of_a_run_within_a_tool_ends_this_one_whatever_the_tool_makes_of_it(
    fake_gateway: FakeGateway,
) -> None:
    inner = guard_tool(blocking.Agent(fake_gateway.url, token="token"), lambda: None, name="inner")

    def catch(path: str) -> str:
        with pytest.raises(NoDecision):
            inner()
        return "never mind"

    points, script = Points(fake_gateway, before_tool_call=for_tool("inner", outage)), read_then_say()
    with pytest.raises(NoDecision):
        await agent_of(points, script, Tools(catch)).run("hello")
    assert len(script.requests) == 1


async def test_a_call_that_waits_for_approval_has_not_failed(fake_gateway: FakeGateway) -> None:
    def ask(path: str) -> Any:
        raise ApprovalRequired

    points = Points(fake_gateway)
    result = await agent_of(points, read_then_say(), Tools(ask), output_type=[str, DeferredToolRequests]).run("hello")
    assert isinstance(result.output, DeferredToolRequests)
    assert "AfterToolResult" not in points.names


@pytest.mark.parametrize("point", ["before_tool_call", "after_tool_result"])
async def test_the_message_of_a_block_is_the_failure_of_the_tool(fake_gateway: FakeGateway, point: str) -> None:
    points, tools, script = Points(fake_gateway, **{point: block("not on your plan")}), Tools(), read_then_say()
    assert (await agent_of(points, script, tools).run("hello")).output == "done"
    assert script.returned() == [("not on your plan", "failed")]
    assert len(tools.paths) == (0 if point == "before_tool_call" else 1)


async def test_calls_at_the_same_time_are_judged_each(fake_gateway: FakeGateway) -> None:
    def one(response: Any, values: Values) -> Any:
        return block("no")(response, values) if values["args"] == {"path": "b"} else response

    parts = [ToolCallPart("read", {"path": path}, tool_call_id=path) for path in "abc"]
    points, tools = Points(fake_gateway, before_tool_call=one), Tools()
    script = Script([ModelResponse(parts=parts), says("done")])
    await agent_of(points, script, tools).run("hello")
    assert sorted(tools.paths) == ["a", "c"]
    assert [outcome for _, outcome in script.returned()] == ["success", "failed", "success"]


async def test_tools_that_are_given_to_a_run_are_guarded(fake_gateway: FakeGateway) -> None:
    points, tools, script = Points(fake_gateway, before_tool_call=block("no")), Tools(), read_then_say()
    await agent_of(points, script).run("hello", toolsets=[FunctionToolset(tools.all)])
    assert tools.paths == []


async def test_a_single_toolset_is_guarded(fake_gateway: FakeGateway) -> None:
    points, tools, script = Points(fake_gateway, before_tool_call=block("no")), Tools(), read_then_say()
    agent = Agent(script.model, toolsets=[guard_toolset(points.agent, FunctionToolset(tools.all))])
    await agent.run("hello")
    assert tools.paths == []
    assert points.names == ["BeforeToolCall"]
