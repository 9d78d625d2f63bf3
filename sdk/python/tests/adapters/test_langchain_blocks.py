"""Blocks of answers of LangChain's models in the forms of Bedrock and Mistral, and those that LangChain wraps."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from support.fake_gateway import FakeGateway
from support.langchain_agent import Mode, SetUp, each_mode
from support.points import CARD, CARD_REDACTED, Values, patch, redact, replace_text

from hookgate.adapters._langchain_answer import answer_parts

REFERENCE = {"type": "reference", "reference_ids": [1]}
CITATIONS = [{"title": "t", "source_content": [{"text": "a secret"}]}]


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def thinking(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, **members}


def wrapped(value: object) -> dict[str, Any]:
    return {"type": "non_standard", "value": value}


def bedrock_thought(name: str, text: str, **members: Any) -> dict[str, Any]:
    return {"type": name, name: {"text": text, **members}}


def cited(name: str, *texts: str, **members: Any) -> dict[str, Any]:
    return {"type": name, name: {"content": [{"text": text} for text in texts], **members}}


async def judge(gateway: FakeGateway, mode: Mode, answer: AIMessage, reply: Any) -> tuple[list[Values], AIMessage]:
    """What plugins see of an answer, and what is left of it."""
    set_up = SetUp(gateway, mode, [answer], replies={"before_response": reply})
    last: AIMessage = (await set_up.run("hi"))["messages"][-1]
    return set_up.points.payloads("BeforeResponse"), last


HIDE = replace_text("secret", "[X]")

THOUGHTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "reasoning_content": (
        bedrock_thought("reasoning_content", "a secret", redacted_content="e"),
        bedrock_thought("reasoning_content", "a [X]"),
    ),
    "reasoningContent": (
        bedrock_thought("reasoningContent", "a secret"),
        bedrock_thought("reasoningContent", "a [X]"),
    ),
    "signed reasoning_content": (bedrock_thought("reasoning_content", "a secret", signature="s"), None),
    "signed reasoningContent": (bedrock_thought("reasoningContent", "a secret", signature="s"), None),
    "wrapped thinking": (wrapped(thinking("a secret")), wrapped(thinking("a [X]"))),
    "wrapped signed thinking": (wrapped(thinking("a secret", signature="s")), None),
    "wrapped thinking without a type": (wrapped({"thinking": "a secret"}), wrapped({"thinking": "a [X]"})),
    "wrapped thinking beside text": (
        wrapped({"thinking": "a secret", "text": ""}),
        wrapped({"thinking": "a [X]", "text": ""}),
    ),
    "wrapped reasoningContent of Bedrock's API": (
        wrapped({"reasoningContent": {"reasoningText": {"text": "a secret", "signature": "s"}}}),
        None,
    ),
}
"""Blocks with a thought, and what a plugin that changes it leaves of them."""


@each_mode
@pytest.mark.parametrize("form", THOUGHTS)
async def test_a_thought_in_a_form_of_bedrock_or_in_a_wrapper_is_judged_and_changed_in_place(
    fake_gateway: FakeGateway, mode: Mode, form: str
) -> None:
    block, changed = THOUGHTS[form]
    other = bedrock_thought("reasoning_content", "hm", signature="s")
    content: list[Any] = [block, other, text_block("done")]
    judged, last = await judge(fake_gateway, mode, AIMessage(content=content), HIDE)
    assert judged[0]["reasoning"] == "a secret"
    assert [values.get("content") for values in judged] == ["done", None]
    assert last.content == [*([] if changed is None else [changed]), other, text_block("done")]


TEXTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "citations_content": (
        cited("citations_content", "the ", "secret", citations=CITATIONS),
        cited("citations_content", "the [X]"),
    ),
    "citationsContent": (
        cited("citationsContent", "the secret", citations=CITATIONS),
        cited("citationsContent", "the [X]"),
    ),
    "citations_content with one string": (
        {"type": "citations_content", "citations_content": {"content": "the secret"}},
        cited("citations_content", "the [X]"),
    ),
    "wrapped citationsContent of Bedrock's API": (
        wrapped({"citationsContent": {"content": [{"text": "the secret"}], "citations": CITATIONS}}),
        wrapped({"citationsContent": {"content": [{"text": "the [X]"}]}}),
    ),
    "wrapped text": (wrapped({**text_block("the secret"), "copy": "secret"}), wrapped(text_block("the [X]"))),
    "wrapped text without a type": (wrapped({"text": "the secret"}), wrapped({"text": "the [X]"})),
    "wrapped text of an unknown type": (
        wrapped({"type": "new", "text": "the secret"}),
        wrapped({"type": "new", "text": "the [X]"}),
    ),
    "unknown type": ({"type": "new", "text": "the secret", "copy": "secret"}, {"type": "new", "text": "the [X]"}),
    "wrapped string": (wrapped("the secret"), wrapped(text_block("the [X]"))),
    "wrapped refusal": (
        wrapped({"type": "refusal", "refusal": "the secret"}),
        wrapped({"type": "refusal", "refusal": "the [X]"}),
    ),
    "wrapper in a wrapper": (wrapped(wrapped(text_block("the secret"))), wrapped(wrapped(text_block("the [X]")))),
}
"""Blocks with a text, and what a plugin that changes it leaves of them."""


@each_mode
@pytest.mark.parametrize("form", TEXTS)
async def test_a_text_in_any_form_of_block_is_judged_and_changed_in_place(
    fake_gateway: FakeGateway, mode: Mode, form: str
) -> None:
    block, changed = TEXTS[form]
    image = {"type": "image", "url": "https://x/y.png"}
    content: list[Any] = [block, image, text_block("done")]
    judged, last = await judge(fake_gateway, mode, AIMessage(content=content), HIDE)
    assert [values["content"] for values in judged] == ["the secret", "done"]
    assert last.content == [changed, image, text_block("done")]


@each_mode
async def test_a_wrapped_block_without_text_stays_and_one_whose_text_becomes_empty_goes(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    unknown = wrapped({"type": "new", "data": "d"})
    refusal, thought = wrapped({"type": "refusal", "refusal": "secret"}), wrapped(thinking("secret"))
    content: list[Any] = [unknown, wrapped(text_block("secret")), refusal, thought, text_block("done")]
    _, last = await judge(fake_gateway, mode, AIMessage(content=content), replace_text("secret", ""))
    assert last.content == [unknown, text_block("done")]


def test_texts_that_bedrock_cuts_for_a_citation_are_one_text() -> None:
    for piece in (cited("citations_content", "b", "c"), wrapped({"citationsContent": {"content": [{"text": "bc"}]}})):
        assert answer_parts(AIMessage(content=[text_block("a"), piece, wrapped({"text": "d"})])) == (["abcd"], [])
    assert answer_parts(AIMessage(content=[text_block("a"), wrapped(text_block("b"))])) == (["a", "b"], [])


REFERENCES: dict[str, tuple[list[Any], list[str]]] = {
    "between texts": ([text_block("a"), REFERENCE, text_block("b"), text_block("c")], ["ab", "c"]),
    "two between texts": ([text_block("a"), REFERENCE, REFERENCE, "b"], ["ab"]),
    "in a wrapper": ([text_block("a"), wrapped(REFERENCE), text_block("b")], ["ab"]),
    "in front": ([REFERENCE, text_block("a"), text_block("b")], ["a", "b"]),
    "behind another block": ([text_block("a"), {"type": "new"}, REFERENCE, text_block("b")], ["a", "b"]),
    "before a thought": ([text_block("a"), REFERENCE, thinking("t"), text_block("b")], ["a", "b"]),
}
"""Contents with references, and their texts."""


@pytest.mark.parametrize("place", REFERENCES)
def test_texts_with_only_references_between_them_are_one_text(place: str) -> None:
    content, texts = REFERENCES[place]
    assert answer_parts(AIMessage(content=content))[0] == texts


@each_mode
async def test_a_text_that_references_cut_is_changed_as_one_and_keeps_them(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    content: list[Any] = [text_block("Card 41111111"), REFERENCE, text_block("11111111"), text_block("2 cards")]
    _, last = await judge(fake_gateway, mode, AIMessage(content=content), redact)
    assert last.content == [text_block("Card [CARD]"), REFERENCE, text_block("2 cards")]


AUDIO = {"id": "a", "data": "c291bmQ=", "expires_at": 0, "transcript": CARD[0]}


@each_mode
@pytest.mark.parametrize(
    ("content", "changed"),
    [
        ("", CARD_REDACTED[0]),
        (CARD[1], f"{CARD[1]}\n{CARD_REDACTED[0]}"),
        ([text_block(CARD[1])], [text_block(CARD[1]), text_block(CARD_REDACTED[0])]),
    ],
    ids=["alone", "beside a text", "beside blocks"],
)
async def test_a_transcript_of_audio_is_judged_and_a_changed_one_becomes_text_without_sound(
    fake_gateway: FakeGateway, mode: Mode, content: Any, changed: Any
) -> None:
    answer = AIMessage(content=content, additional_kwargs={"audio": AUDIO})
    judged, last = await judge(fake_gateway, mode, answer, redact)
    assert [values["content"] for values in judged] == ([CARD[1]] if content else []) + [CARD[0]]
    assert (last.content, last.additional_kwargs) == (changed, {})


@each_mode
async def test_audio_stays_beside_a_changed_text_only_if_its_transcript_was_judged(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    silent = {name: value for name, value in AUDIO.items() if name != "transcript"}
    for audio, kept in ((AUDIO, {"audio": AUDIO}), (silent, {})):
        answer = AIMessage(content="a secret", additional_kwargs={"audio": audio})
        _, last = await judge(fake_gateway, mode, answer, HIDE)
        assert (last.content, last.additional_kwargs) == ("a [X]", kept)


@each_mode
async def test_a_transcript_that_becomes_empty_goes_with_its_sound(fake_gateway: FakeGateway, mode: Mode) -> None:
    answer = AIMessage(content="", additional_kwargs={"audio": AUDIO})
    _, last = await judge(fake_gateway, mode, answer, patch(content=""))
    assert (last.content, last.additional_kwargs) == ("", {})
