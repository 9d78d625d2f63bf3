"""Whole runs of Pydantic AI behind the gateway: what they pass, and what ends them."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pydantic_ai.messages
import pytest
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability, BatchModelRequests
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse
from support.fake_gateway import FakeGateway
from support.points import PointReply, Points, Values, block, outage
from support.pydantic_ai_agent import City, Recover, Script, Tools, agent_of, calls, city, read_then_say, says

from hookgate.adapters.pydantic_ai import Guard, find_gateway_error, guard_model
from hookgate.agent import Blocked, NoDecision, call_context
from hookgate.agent import sync as blocking


async def test_an_allowed_run_passes_all_points_and_nothing_changes(fake_gateway: FakeGateway) -> None:
    points, script, tools = Points(fake_gateway), read_then_say(), Tools()
    agent = agent_of(points, script, tools, system_prompt="be kind", instructions="be brief")
    with call_context(session_id="s-1"):
        result = await agent.run("hello")
    assert result.output == "done"
    assert points.names == [
        *("BeforeLlmRequest", "BeforeToolCall", "AfterToolResult", "BeforeLlmRequest", "BeforeResponse"),
    ]
    assert set(points.sessions()) == {"s-1"}
    request = points.payloads("BeforeLlmRequest")[0]
    assert request["text"] == "hello"
    assert request["system_prompt"] == "be kind\n\nbe brief"
    messages: Any = request["messages"]
    assert [part["content"] for message in messages for part in message["parts"]] == ["hello"]
    tools_sent: Any = request["tools"]
    assert [tool["name"] for tool in tools_sent] == ["read", "safe_read"]
    [before] = points.payloads("BeforeToolCall")
    assert before == {"tool_name": "read", "args": {"path": "/etc/hosts"}, "call_id": "id-read"}
    [after] = points.payloads("AfterToolResult")
    assert (after["result"], after["success"]) == ("the content of /etc/hosts", True)
    assert points.payloads("BeforeResponse")[0]["content"] == "done"
    assert [part.content for part in script.requests[0][0].parts] == ["be kind", "hello"]  # type: ignore[union-attr]
    assert script.infos[0].instructions == "be brief"


async def test_a_blocking_agent_of_the_gateway_is_called_in_threads(fake_gateway: FakeGateway) -> None:
    points, script = Points(fake_gateway), Script([says("done")])
    with blocking.Agent(fake_gateway.url, token="token") as gateway:
        agent: Agent[None, str] = Agent(script.model, capabilities=[Guard(gateway)])
        assert (await agent.run("hello")).output == "done"
    assert points.names == ["BeforeLlmRequest", "BeforeResponse"]


@pytest.mark.parametrize("point", ["before_tool_call", "after_tool_result"])
@pytest.mark.parametrize("reply", [block("stop", "run"), outage])
@pytest.mark.parametrize("capabilities", [[], [Recover()]])
async def test_a_block_of_the_run_and_a_missing_decision_end_it(
    fake_gateway: FakeGateway, point: str, reply: PointReply, capabilities: list[Any]
) -> None:
    points, tools, script = Points(fake_gateway, **{point: reply}), Tools(), read_then_say()
    with pytest.raises(Exception, match=r"stop|no decision") as raised:
        await agent_of(points, script, tools, capabilities=capabilities).run("hello")
    assert isinstance(find_gateway_error(raised.value), NoDecision if reply is outage else Blocked)
    assert len(script.requests) == 1


async def test_a_run_that_ended_gives_no_output_of_the_same_answer(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_tool_call=block("stop", "run"))
    both = ModelResponse(parts=[*calls("read", path="a").parts, *city("tool").parts])
    options: dict[str, Any] = {"capabilities": [Recover()], "output_type": City, "end_strategy": "exhaustive"}
    with pytest.raises(Blocked):
        await agent_of(points, Script([both]), Tools(), **options).run("hello")
    # The next run is another one.
    assert (await agent_of(points, Script([city("tool")]), output_type=City).run("hello")).output == City(name="secret")


@pytest.mark.parametrize("reply", [block("stop", "run"), outage])
@pytest.mark.parametrize("capabilities", [[], [Recover()]])
async def test_what_ends_the_run_of_an_agent_in_a_tool_ends_the_outer_run(
    fake_gateway: FakeGateway, reply: PointReply, capabilities: list[Any]
) -> None:
    def end_inner(response: Any, values: Values) -> Any:
        return reply(response, values) if values["text"] == "inner" else response

    points, script = Points(fake_gateway, before_llm_request=end_inner), read_then_say()
    inner = agent_of(points, Script([says("inner answer")]))

    async def read(path: str) -> object:
        return (await inner.run("inner")).output

    capabilities = [*capabilities, Guard(points.agent)]
    outer: Agent[None, str] = Agent(script.model, tools=[Tool(read)], capabilities=capabilities)
    with pytest.raises(NoDecision if reply is outage else Blocked):
        await outer.run("outer")
    assert len(script.requests) == 1
    assert "AfterToolResult" not in points.names


async def test_a_run_has_an_instance_of_the_own_class_that_keeps_nothing_for_the_next(
    fake_gateway: FakeGateway,
) -> None:
    class Named(Guard[None]):
        def __init__(self, name: str) -> None:
            super().__init__(points.agent)
            self.name = name

        def get_instructions(self) -> str:
            return f"Your name is {self.name}."

        async def before_run(self, ctx: RunContext[None]) -> None:
            used.append(self)

    used: list[Named] = []
    points, script = Points(fake_gateway, before_tool_call=block("stop", "run")), read_then_say()
    named = Named("Ada")
    agent: Agent[None, str] = Agent(script.model, tools=Tools().all, capabilities=[named])
    with pytest.raises(Blocked):
        await agent.run("hello")
    script.answers[1] = says("Ada")
    assert (await agent.run("hello")).output == "Ada"
    assert script.infos[1].instructions == "Your name is Ada."
    assert [type(guard) for guard in used] == [Named, Named]
    assert len({id(guard) for guard in [named, *used]}) == 3


def test_versions_that_cant_wrap_models_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(AbstractCapability, "get_wrapper_model")
    monkeypatch.delattr(pydantic_ai.messages, "StructuredContent")  # They lack it too.
    for name in ("pydantic_ai", "_pydantic_ai_answer", "_pydantic_ai_messages"):
        monkeypatch.delitem(sys.modules, f"hookgate.adapters.{name}")
    with pytest.raises(ImportError, match=r"needs pydantic-ai 2\.62"):
        importlib.import_module("hookgate.adapters.pydantic_ai")


async def test_batches_and_compaction_are_refused(fake_gateway: FakeGateway) -> None:
    points, script = Points(fake_gateway), Script([says("done")])
    with pytest.raises(UserError, match="batch"):
        await agent_of(points, script, capabilities=[BatchModelRequests()]).run("hello")
    model: Any = guard_model(points.agent, script.model)
    with pytest.raises(UserError, match="compaction"):
        await model.compact_messages(None)
    assert script.requests == []


def test_a_gateway_that_is_none_is_refused() -> None:
    gateway: Any = "http://127.0.0.1:1"
    with pytest.raises(TypeError, match="gateway must be an Agent"):
        Guard(gateway)
