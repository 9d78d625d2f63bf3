"""What plugins see and change of answers of Pydantic AI's models."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import NativeOutput, RunContext, TextOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    Citation,
    ContentCitationAnchor,
    MarkerCitationAnchor,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    WebCitationSource,
)
from pydantic_ai.models import CompletedStreamedResponse, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import ToolDefinition
from support.fake_gateway import FakeGateway
from support.points import (
    CARD,
    CARD_REDACTED,
    EMAIL,
    EMAIL_REDACTED,
    PointReply,
    Points,
    block,
    hang,
    outage,
    patch,
    redact,
    redacted,
    replace_text,
)
from support.pydantic_ai_agent import City, Script, Tools, agent_of, calls, city, says

from hookgate.adapters._guard import ModelCall, async_points
from hookgate.adapters._pydantic_ai_answer import guard_answer
from hookgate.adapters.pydantic_ai import PatchError, guard_model
from hookgate.agent import Blocked, NoDecision


async def test_an_answer_is_changed(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=replace_text("secret", "[X]"))
    parts: list[ModelResponsePart] = [
        ThinkingPart("a secret", signature="s"),
        ThinkingPart("", signature="hidden"),
        ThinkingPart("why", signature="s"),
        TextPart("a "),
        TextPart("secret"),
    ]
    script = Script([ModelResponse(parts=parts, provider_response_id="r")])
    result = await agent_of(points, script).run("hello")
    judged = [(answer["content"], answer["reasoning"]) for answer in points.payloads("BeforeResponse")]
    assert judged == [("a ", "a secret"), ("secret", "why")]
    last = result.all_messages()[-1]
    assert last.parts == [ThinkingPart("a [X]"), *parts[1:4], TextPart("[X]")]
    assert isinstance(last, ModelResponse)
    assert last.provider_response_id is None


def cited(text: str) -> TextPart:
    """A text that Anthropic cut to cite."""
    anchor = ContentCitationAnchor(start=0, end=len(text))
    return TextPart(text, citations=[Citation([WebCitationSource("https://x")], anchor=anchor)])


def linked(text: str) -> TextPart:
    """A text with a link of OpenAI in it."""
    anchor = MarkerCitationAnchor(start=0, end=1)
    return TextPart(text, citations=[Citation([WebCitationSource("https://x")], anchor=anchor)])


CALL = ToolCallPart("read", {"path": "a"}, tool_call_id="id-read")

PARTS: dict[str, tuple[list[ModelResponsePart], list[ModelResponsePart]]] = {
    "card in the first of two texts": (
        [TextPart(CARD[0]), TextPart(CARD[1], id="b", provider_name="p")],
        [TextPart(CARD_REDACTED[0]), TextPart(CARD[1], id="b", provider_name="p")],
    ),
    "text, call, text": (
        [TextPart(EMAIL[0]), CALL, TextPart(EMAIL[1])],
        [TextPart(EMAIL_REDACTED[0]), CALL, TextPart(EMAIL[1])],
    ),
    "card in the first of two thoughts": (
        [ThinkingPart(CARD[0]), ThinkingPart(CARD[1], signature="s"), TextPart("done")],
        [ThinkingPart(CARD_REDACTED[0]), ThinkingPart(CARD[1], signature="s"), TextPart("done")],
    ),
    "cut for citations": (
        [TextPart("Card 41111111"), cited("11111111"), TextPart(" is it"), TextPart("2 cards")],
        [TextPart("Card [CARD] is it"), TextPart("2 cards")],
    ),
    "links within a text": ([linked(CARD[0]), linked(CARD[1])], [TextPart(CARD_REDACTED[0]), linked(CARD[1])]),
}
"""Answers, and what a redactor leaves of them."""


class CompletedModel(WrapperModel):
    """Streams an answer as it is."""

    def __init__(self, answer: ModelResponse) -> None:
        super().__init__(Script([answer]).model)
        self._answer = answer

    @asynccontextmanager
    async def request_stream(self, *arguments: Any, **_: Any) -> AsyncIterator[Any]:
        yield CompletedStreamedResponse(self._answer, model_request_parameters=arguments[2], replay_events=True)


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("what", PARTS)
async def test_texts_that_a_reader_sees_apart_are_judged_apart_and_changed_in_place(
    fake_gateway: FakeGateway, what: str, is_streamed: bool
) -> None:
    parts, expected = PARTS[what]
    points = Points(fake_gateway, before_response=redact)
    model = guard_model(points.agent, CompletedModel(ModelResponse(parts=parts)))
    if is_streamed:
        async with model.request_stream([], None, ModelRequestParameters()) as stream:
            events = [event async for event in stream]
        assert CARD[0] not in repr(events)
        assert EMAIL[0] not in repr(events)
        answered = stream.get()
    else:
        answered = await model.request([], None, ModelRequestParameters())
    assert answered.parts == expected


async def test_what_a_redactor_makes_of_an_answer_is_what_it_makes_of_each_part(fake_gateway: FakeGateway) -> None:
    points = async_points(Points(fake_gateway, before_response=redact).agent)
    source = random.Random(11)
    snippets = ("4111111111111111", "2 cards", "ada@example.com", "Next ", " ", "why")

    def text() -> str:
        return "".join(source.choices(snippets, k=source.randint(1, 3)))

    for _ in range(60):
        pool: list[list[ModelResponsePart]] = [[TextPart(text()), ThinkingPart(text()), CALL] for _ in range(6)]
        parts = [source.choice(choices) for choices in pool[: source.randint(0, 6)]]
        judged, _ = await guard_answer(points, ModelResponse(parts=parts), ModelRequestParameters(), ModelCall())
        assert judged.parts == [
            type(part)(redacted(part.content)) if isinstance(part, (TextPart, ThinkingPart)) else part for part in parts
        ]


async def test_structured_output_is_changed_in_place_beside_a_text(fake_gateway: FakeGateway) -> None:
    points = async_points(Points(fake_gateway, before_response=replace_text("secret", "[X]")).agent)
    outputs: list[ModelResponsePart] = [*city("tool").parts, *city("tool").parts]
    response = ModelResponse(parts=[TextPart("a secret"), *outputs, TextPart("done")])
    parameters = ModelRequestParameters(output_tools=[ToolDefinition(name="final_result")])
    judged, _ = await guard_answer(points, response, parameters, ModelCall())
    texts = [part.args if isinstance(part, ToolCallPart) else getattr(part, "content", "") for part in judged.parts]
    assert texts == ["a [X]", '{"name":"[X]"}', '{"name":"[X]"}', "done"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([ThinkingPart("why"), CALL], [ThinkingPart("why"), TextPart("[X]"), CALL]),
        ([ThinkingPart("why"), TextPart("")], [ThinkingPart("why"), TextPart("[X]")]),
    ],
)
async def test_an_added_text_stands_before_the_calls(
    fake_gateway: FakeGateway, parts: list[ModelResponsePart], expected: list[ModelResponsePart]
) -> None:
    points = async_points(Points(fake_gateway, before_response=patch(content="[X]")).agent)
    judged, _ = await guard_answer(points, ModelResponse(parts=parts), ModelRequestParameters(), ModelCall())
    assert judged.parts == expected


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
