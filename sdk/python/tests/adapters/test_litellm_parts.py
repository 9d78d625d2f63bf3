"""The parts of answers of LiteLLM's models, whole and streamed: each is judged for itself and changed in its place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from litellm.types.utils import Choices, Delta, Message, ModelResponse, ModelResponseStream, StreamingChoices
from support.fake_gateway import FakeGateway
from support.litellm_provider import HELLO, MODEL
from support.points import CARD, CARD_REDACTED, EMAIL, EMAIL_REDACTED, Points, redact, replace_text

from hookgate.adapters.litellm import guard_acompletion

CALL = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def thinking(text: str, signature: str | None = "s") -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, **({"signature": signature} if signature else {})}


def whole(**members: Any) -> Callable[..., Any]:
    """Instead of LiteLLM: an answer with this message."""

    async def acompletion(**_: Any) -> ModelResponse:
        return ModelResponse(choices=[Choices(message=Message(**members))])

    return acompletion


def streamed(*deltas: dict[str, Any]) -> Callable[..., Any]:
    """Instead of LiteLLM: a stream of these deltas."""

    async def acompletion(**_: Any) -> AsyncIterator[ModelResponseStream]:
        async def stream() -> AsyncIterator[ModelResponseStream]:
            for delta in deltas:
                yield ModelResponseStream(choices=[StreamingChoices(delta=Delta(**delta))])
            yield ModelResponseStream(choices=[StreamingChoices(delta=Delta(), finish_reason="stop")])

        return stream()

    return acompletion


def shown(message: Any) -> dict[str, Any]:
    """What a message or a delta says, thinks and calls."""
    names = ("content", "refusal", "reasoning_content", "thinking_blocks", "provider_specific_fields")
    found = {name: value for name in names if (value := getattr(message, name, None))}
    calls = [call.function.name for call in message.tool_calls or ()]
    return {**found, **({"calls": calls} if calls else {})}


async def of_message(points: Points, **members: Any) -> dict[str, Any]:
    answer = await guard_acompletion(points.agent, whole(**members))(MODEL, HELLO)
    return shown(answer.choices[0].message)


async def of_stream(points: Points, *deltas: dict[str, Any]) -> dict[str, Any]:
    """What the deltas of a stream show together, if each member is in one of them."""
    stream = await guard_acompletion(points.agent, streamed(*deltas))(MODEL, HELLO, stream=True)
    found: dict[str, Any] = {}
    async for chunk in stream:
        for choice in chunk.choices:
            found |= shown(choice.delta)
    return found


async def test_a_card_at_the_end_of_a_text_or_a_thought_is_found(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=redact)
    blocks = [thinking(CARD[0], None), thinking(CARD[1])]
    members: dict[str, Any] = {"content": CARD[0], "refusal": CARD[1], "thinking_blocks": blocks}
    expected = {
        "content": CARD_REDACTED[0],
        "refusal": CARD[1],
        "thinking_blocks": [thinking(CARD_REDACTED[0], None), blocks[1]],
    }
    assert await of_message(points, **members) == expected
    blocks[0]["index"], blocks[1]["index"] = 0, 1
    expected["thinking_blocks"] = [{**blocks[0], "thinking": CARD_REDACTED[0]}, blocks[1]]
    deltas = [{"thinking_blocks": [block]} for block in blocks]
    assert await of_stream(points, *deltas, {"content": CARD[0]}, {"refusal": CARD[1]}) == expected


async def test_a_text_before_a_call_and_one_after_it_are_changed_in_place(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=redact)
    expected = {"content": EMAIL_REDACTED[0], "refusal": EMAIL[1], "calls": ["read"]}
    assert await of_message(points, content=EMAIL[0], tool_calls=[CALL], refusal=EMAIL[1]) == expected
    deltas: list[dict[str, Any]] = [
        {"content": EMAIL[0][:9]},
        {"content": EMAIL[0][9:]},
        {"tool_calls": [{"index": 0, **CALL}]},
        {"refusal": EMAIL[1]},
    ]
    assert await of_stream(points, *deltas) == expected


async def test_copies_of_a_thought_take_the_same_change_and_a_signed_one_goes(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=replace_text("secret", "[X]"))
    blocks = [thinking("a secret"), thinking("why")]
    members: dict[str, Any] = {"content": "done", "reasoning_content": "a secret", "thinking_blocks": blocks}
    expected = {"content": "done", "reasoning_content": "a [X]", "thinking_blocks": [thinking("why")]}
    assert await of_message(points, **members) == expected
    judged = [values.get("reasoning") for values in points.payloads("BeforeResponse")]
    assert judged == ["a secret", "why"]
    deltas = [{"thinking_blocks": [block]} for block in (thinking("a se", None), thinking("cret"), thinking("why"))]
    assert await of_stream(points, {"content": "done", "reasoning_content": "a secret"}, *deltas) == expected
    assert [values.get("reasoning") for values in points.payloads("BeforeResponse")] == [*judged, *judged]


async def test_what_a_provider_adds_keeps_its_place_and_no_copy_of_a_changed_text(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=replace_text("secret", "[X]"))
    fields = {"refusal": "a secret", "copy": "a secret"}
    expected = {"content": "the [X]", "provider_specific_fields": {"refusal": "a [X]"}}
    assert await of_message(points, content="the secret", provider_specific_fields=fields) == expected


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_an_untouched_answer_of_several_parts_stays_the_same(
    fake_gateway: FakeGateway, is_streamed: bool
) -> None:
    points = Points(fake_gateway, before_response=redact)
    members: dict[str, Any] = {"content": "a", "refusal": "b", "reasoning_content": "why", "annotations": []}
    if is_streamed:
        assert await of_stream(points, members) == {"content": "a", "refusal": "b", "reasoning_content": "why"}
    else:
        answer = ModelResponse(choices=[Choices(message=Message(**members))])

        async def acompletion(**_: Any) -> ModelResponse:
            return answer

        assert await guard_acompletion(points.agent, acompletion)(MODEL, HELLO) is answer
