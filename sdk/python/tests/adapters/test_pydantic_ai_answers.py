"""What plugins see and change of answers of Pydantic AI's models."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import NativeOutput, RunContext, TextOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart
from support.fake_gateway import FakeGateway
from support.points import PointReply, Points, block, hang, outage, patch, replace_text
from support.pydantic_ai_agent import City, Script, Tools, agent_of, calls, city, says

from hookgate.adapters.pydantic_ai import PatchError
from hookgate.agent import Blocked, NoDecision


async def test_an_answer_is_changed(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=patch(content="[X]", reasoning="[Y]"))
    parts: list[ModelResponsePart] = [
        ThinkingPart("why", signature="s"),
        ThinkingPart("", signature="hidden"),
        TextPart("a "),
        TextPart("secret"),
    ]
    script = Script([ModelResponse(parts=parts, provider_response_id="r")])
    result = await agent_of(points, script).run("hello")
    assert points.payloads("BeforeResponse")[0]["content"] == "a secret"
    assert points.payloads("BeforeResponse")[0]["reasoning"] == "why"
    last = result.all_messages()[-1]
    assert last.parts == [ThinkingPart("[Y]"), ThinkingPart("", signature="hidden"), TextPart("[X]")]
    assert isinstance(last, ModelResponse)
    assert last.provider_response_id is None


async def test_the_message_of_a_block_replaces_the_answer_and_no_tool_runs(fake_gateway: FakeGateway) -> None:
    points, tools = Points(fake_gateway, before_response=block("not for you")), Tools()
    both = ModelResponse(parts=[TextPart("a secret"), *calls("read", path="a").parts])
    assert (await agent_of(points, Script([both]), tools).run("hello")).output == "not for you"
    assert tools.paths == []


class IgnoreErrors(AbstractCapability[None]):
    """Takes every failure of an output function for an output."""

    async def wrap_output_process(self, ctx: RunContext[None], *, output: Any, handler: Any, **_: Any) -> Any:
        try:
            return await handler(output)
        except Exception:
            return "never mind"


@pytest.mark.parametrize("capabilities", [[], [IgnoreErrors()]])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_no_output_function_gets_the_message_of_a_block(
    fake_gateway: FakeGateway, capabilities: list[Any], is_streamed: bool
) -> None:
    def parse(text: str) -> list[str]:
        parsed.append(text)
        return text.split()

    async def run() -> object:
        agent = agent_of(points, Script([says("a secret")]), output_type=TextOutput(parse), capabilities=capabilities)
        if not is_streamed:
            return (await agent.run("hello")).output
        async with agent.run_stream("hello") as result:
            return await result.get_output()

    parsed: list[str] = []
    points = Points(fake_gateway, before_response=block("not for you"))
    with pytest.raises(Blocked, match="not for you"):
        await run()
    assert parsed == []
    points = Points(fake_gateway, before_response=replace_text("secret", "[X]"))
    assert await run() == ["a", "[X]"]


async def test_the_message_of_a_block_is_a_text_also_where_other_outputs_have_a_form(
    fake_gateway: FakeGateway,
) -> None:
    points, script = Points(fake_gateway, before_response=block("not for you")), Script([says("a secret")])
    assert (await agent_of(points, script, output_type=[str, City]).run("hello")).output == "not for you"


@pytest.mark.parametrize("reply", [block("stop", "run"), outage])
async def test_an_answer_that_may_not_be_shown_ends_the_run(fake_gateway: FakeGateway, reply: PointReply) -> None:
    points = Points(fake_gateway, before_response=reply)
    with pytest.raises((Blocked, NoDecision)):
        await agent_of(points, Script([says("a secret")])).run("hello")


@pytest.mark.parametrize("mode", ["tool", "native"])
async def test_structured_output_is_judged(fake_gateway: FakeGateway, mode: str) -> None:
    output: Any = City if mode == "tool" else NativeOutput(City)
    points = Points(fake_gateway, before_response=replace_text("secret", "[X]"))
    assert (await agent_of(points, Script([city(mode)]), output_type=output).run("hello")).output == City(name="[X]")
    assert points.payloads("BeforeResponse")[0]["content"] == '{"name":"secret"}'
    Points(fake_gateway, before_response=block("no"))
    with pytest.raises(Blocked):
        await agent_of(points, Script([city(mode)]), output_type=output).run("hello")


@pytest.mark.parametrize("content", ["no JSON", "[1]", "NaN"])
async def test_structured_output_stays_an_object(fake_gateway: FakeGateway, content: str) -> None:
    points = Points(fake_gateway, before_response=patch(content=content))
    with pytest.raises(PatchError):
        await agent_of(points, Script([city("tool")]), output_type=City).run("hello")


async def test_a_stream_is_held_until_it_is_judged(fake_gateway: FakeGateway) -> None:
    points, script = Points(fake_gateway, before_response=hang), Script([says("a secret")])
    seen: list[object] = []

    async def listen(_: RunContext[None], events: Any) -> None:
        async for event in events:
            seen.append(event)  # noqa: PERF401

    running = asyncio.create_task(agent_of(points, script).run("hello", event_stream_handler=listen))
    for _ in range(2):
        assert await asyncio.to_thread(fake_gateway.arrived.acquire, timeout=10)
    assert points.names == ["BeforeLlmRequest", "BeforeResponse"]
    assert seen == []
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(fake_gateway.calls[1].ended.wait, 10)


@pytest.mark.parametrize(
    ("reply", "text"), [(None, "a secret"), (replace_text("secret", "[X]"), "a [X]"), (block("no"), "no")]
)
async def test_a_judged_stream_is_the_answer(fake_gateway: FakeGateway, reply: PointReply | None, text: str) -> None:
    points, script = Points(fake_gateway, **({"before_response": reply} if reply else {})), Script([says("a secret")])
    async with agent_of(points, script).run_stream("hello") as result:
        shown = [chunk async for chunk in result.stream_text(debounce_by=None)]
    assert shown[-1].strip() == text
    assert reply is None or all("secret" not in chunk for chunk in shown)
    assert (len(shown) > 1) is (reply is None)
