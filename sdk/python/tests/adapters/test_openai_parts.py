"""The parts of answers of OpenAI's API, whole and streamed: each is judged for itself and changed in its place."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_gateway import FakeGateway
from support.openai_api import OpenAiApi, chunks, completion, events, reasoning_item, response, text_item
from support.openai_client import Mode, SetUp, each_mode
from support.points import CARD, CARD_REDACTED, EMAIL, EMAIL_REDACTED, patch, redact, replace_text

from hookgate._proto import gateway_pb2

TOOL_CALL = {"id": "call-1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
CALL_ITEM = {"type": "function_call", "id": "f-1", "call_id": "call-1", "name": "read", "arguments": "{}"}


def part(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], **members}


def with_parts(*parts: dict[str, Any]) -> dict[str, Any]:
    return {**text_item(""), "content": list(parts)}


def with_thoughts(*texts: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "r-1", "summary": summary, "encrypted_content": "bytes"}


LINK = {"type": "url_citation", "url": "https://x", "title": "x", "start_index": 0, "end_index": 1}

OUTPUTS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "card in the first of two messages": (
        [text_item(CARD[0]), text_item(CARD[1])],
        [text_item(CARD_REDACTED[0]), text_item(CARD[1])],
    ),
    "card in the first of two parts": (
        [with_parts(part(CARD[0], annotations=[LINK]), part(CARD[1], annotations=[LINK]))],
        [with_parts(part(CARD_REDACTED[0]), part(CARD[1], annotations=[LINK]))],
    ),
    "refusal beside a text": (
        [with_parts(part(CARD[1]), {"type": "refusal", "refusal": CARD[0]})],
        [with_parts(part(CARD[1]), {"type": "refusal", "refusal": CARD_REDACTED[0]})],
    ),
    "text, call, text": (
        [text_item(EMAIL[0]), CALL_ITEM, text_item(EMAIL[1])],
        [text_item(EMAIL_REDACTED[0]), CALL_ITEM, text_item(EMAIL[1])],
    ),
    "card in the first of two thoughts": (
        [with_thoughts(*CARD), text_item("done")],
        [{"type": "reasoning", "id": "r-1", "summary": with_thoughts(*CARD_REDACTED)["summary"]}, text_item("done")],
    ),
    "untouched reasoning beside a changed one": (
        [with_thoughts("why"), with_thoughts(CARD[0]), text_item("done")],
        [
            with_thoughts("why"),
            {"type": "reasoning", "id": "r-1", "summary": with_thoughts(CARD_REDACTED[0])["summary"]},
            text_item("done"),
        ],
    ),
}
"""Outputs of answers, and what a redactor leaves of them."""


def dumped(output: Any) -> list[dict[str, Any]]:
    return [item.model_dump(exclude_unset=True) for item in output]


@each_mode
@pytest.mark.parametrize("what", OUTPUTS)
async def test_parts_of_a_response_are_judged_apart_and_changed_in_place(
    fake_gateway: FakeGateway, mode: Mode, what: str
) -> None:
    items, expected = OUTPUTS[what]
    with OpenAiApi(response(*items), events(*items)) as api:
        set_up = SetUp(fake_gateway, mode, api, before_response=redact)
        assert dumped((await set_up.ask("responses")).output) == expected
        seen = await set_up.events("responses")
    assert dumped(seen[-1].response.output) == expected
    texts = [text for item in expected for text in item.get("content", ())]
    kinds = ("response.output_text.delta", "response.refusal.delta")
    assert [event.delta for event in seen if event.type in kinds] == [
        text.get("text") or text.get("refusal") for text in texts
    ]
    places = [(event.output_index, event.content_index) for event in seen if event.type in kinds]
    assert places == [
        (index, content_index)
        for index, item in enumerate(expected)
        for content_index, _ in enumerate(item.get("content", ()))
    ]


@each_mode
async def test_an_untouched_stream_of_several_parts_comes_as_the_model_gave_it(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    items = [reasoning_item("hm"), text_item("ab"), CALL_ITEM, text_item("cd")]
    with OpenAiApi(events(*items)) as api:
        set_up = SetUp(fake_gateway, mode, api, before_response=redact)
        seen = await set_up.events("responses")
    assert [event.delta for event in seen if event.type == "response.output_text.delta"] == ["a", "b", "c", "d"]
    assert [values["content"] for values in set_up.points.payloads("BeforeResponse")] == ["ab", "cd"]


@each_mode
async def test_a_stream_that_joins_what_was_judged_apart_shows_what_was_judged(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    stream = events(text_item(CARD[0]), text_item(CARD[1]))
    joined = [{**event, "output_index": 0} if "delta" in event else event for event in stream]
    with OpenAiApi(joined) as api:
        seen = await SetUp(fake_gateway, mode, api).events("responses")
    assert [event.delta for event in seen if event.type == "response.output_text.delta"] == list(CARD)


@each_mode
async def test_what_plugins_add_to_a_response_without_text_stands_before_its_calls(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    with OpenAiApi(response(with_thoughts("hm"), CALL_ITEM)) as api:
        set_up = SetUp(fake_gateway, mode, api, before_response=patch(content="[X]"))
        result = await set_up.ask("responses")
    assert [item.type for item in result.output] == ["reasoning", "message", "function_call"]
    assert dumped(result.output)[0] == with_thoughts("hm")
    assert result.output_text == "[X]"


@each_mode
async def test_an_emptied_text_goes_and_the_others_stay(fake_gateway: FakeGateway, mode: Mode) -> None:
    items = [with_parts(part("secret"), part("kept")), text_item("secret"), with_thoughts("secret"), CALL_ITEM]
    with OpenAiApi(response(*items)) as api:
        set_up = SetUp(fake_gateway, mode, api, before_response=replace_text("secret", ""))
        result = await set_up.ask("responses")
    assert dumped(result.output) == [with_parts(part("kept")), CALL_ITEM]


def as_given(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A stream of a message: its texts letter by letter, the rest in one piece."""
    deltas: list[dict[str, Any]] = []
    for name, value in message.items():
        deltas += [{name: letter} for letter in value] if isinstance(value, str) else [{name: value}]
    return deltas


def details(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "reasoning.text", "text": text, "index": index} for index, text in enumerate(texts)]


MESSAGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "card in the first of two texts": (
        {"content": CARD[0], "refusal": CARD[1]},
        {"content": CARD_REDACTED[0], "refusal": CARD[1]},
    ),
    "text, call, text": (
        {"content": EMAIL[0], "tool_calls": [{"index": 0, **TOOL_CALL}], "refusal": EMAIL[1]},
        {"content": EMAIL_REDACTED[0], "tool_calls": [{"index": 0, **TOOL_CALL}], "refusal": EMAIL[1]},
    ),
    "card in the first of two thoughts": (
        {"content": "done", "reasoning_details": details(*CARD)},
        {"content": "done", "reasoning_details": details(*CARD_REDACTED)},
    ),
    "copies of a thought": (
        {"content": "done", "reasoning_content": CARD[0], "reasoning": CARD[0], "reasoning_details": details(*CARD)},
        {
            "content": "done",
            "reasoning_content": CARD_REDACTED[0],
            "reasoning": CARD_REDACTED[0],
            "reasoning_details": details(*CARD_REDACTED),
        },
    ),
}
"""Messages of answers, and what a redactor leaves of them."""


def members(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "role" and value is not None}


@each_mode
@pytest.mark.parametrize("what", MESSAGES)
async def test_parts_of_a_chat_message_are_judged_apart_and_changed_in_place(
    fake_gateway: FakeGateway, mode: Mode, what: str
) -> None:
    message, expected = MESSAGES[what]
    with OpenAiApi(completion(message), chunks(*as_given(message))) as api:
        set_up = SetUp(fake_gateway, mode, api, before_response=redact)
        whole = await set_up.ask("chat")
        assert members(whole.choices[0].message.model_dump(exclude_unset=True)) == expected
        seen = await set_up.events("chat")
    shown: dict[str, Any] = {}
    for chunk in seen:
        for choice in chunk.choices:
            shown |= members(choice.delta.model_dump(exclude_unset=True))
    assert shown == expected
    half = len(set_up.points.payloads("BeforeResponse")) // 2
    assert set_up.points.payloads("BeforeResponse")[:half] == set_up.points.payloads("BeforeResponse")[half:]


@each_mode
async def test_only_a_changed_text_loses_its_citations_and_its_sound(fake_gateway: FakeGateway, mode: Mode) -> None:
    audio = {"id": "a", "data": "c291bmQ=", "expires_at": 0, "transcript": "hello"}
    message = {
        "content": "a text",
        "refusal": "a secret",
        "audio": audio,
        "annotations": [{"type": "url_citation", "url_citation": LINK}],
    }
    api_answers = [completion(message), chunks(*as_given(message))] * 3
    with OpenAiApi(*api_answers) as api:
        for old, lost in (("secret", []), ("text", ["annotations"]), ("hello", ["annotations", "audio"])):
            set_up = SetUp(fake_gateway, mode, api, before_response=replace_text(old, "[X]"))
            whole = (await set_up.ask("chat")).choices[0].message.model_dump(exclude_unset=True)
            kept = [name for name in ("annotations", "audio") if whole.get(name)]
            assert kept == [name for name in ("annotations", "audio") if name not in lost]
            assert old not in repr(whole)
            deltas = [choice.delta for chunk in await set_up.events("chat") for choice in chunk.choices]
            found = {name for delta in deltas for name in delta.model_dump(exclude_unset=True)}
            assert sorted(found & {"annotations", "audio"}) == kept
            assert old not in repr(deltas)


@each_mode
async def test_choices_share_their_usage_and_the_first_one_that_is_judged_tells_it(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    with OpenAiApi(completion({"tool_calls": [TOOL_CALL]}, {"content": "a"}, {"content": "b"})) as api:
        await SetUp(fake_gateway, mode, api).ask("chat", n=3)
    asked = [call for call in fake_gateway.calls if call.method == "BeforeResponse"]
    payloads = [call.request(gateway_pb2.BeforeResponseRequest).payload for call in asked]
    assert [payload.HasField("token_usage") for payload in payloads] == [True, False]
