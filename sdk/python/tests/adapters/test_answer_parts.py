"""What plugins are asked about an answer: each text and each thought for itself, whatever the form of the answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from langchain_core.messages import AIMessage
from litellm.types.utils import Choices
from litellm.types.utils import Message as LitellmMessage
from openai.types.chat import ChatCompletionMessage
from openai.types.chat.chat_completion import Choice
from support.fake_gateway import FakeGateway
from support.openai_agent import call, message, reasoning
from support.points import CARD, CARD_REDACTED, Points, block, outage, patch, redact, redacted, replace_text

from hookgate._proto import gateway_pb2
from hookgate.adapters._answer_parts import ModelResponse, ModelResponsePatch, PartWalk, find_parts
from hookgate.adapters._guard import ModelCall, async_points, guard_model_response
from hookgate.adapters._langchain_answer import answer_parts, patch_answer
from hookgate.adapters._openai_chat import choice_answer, patched_choice
from hookgate.adapters._openai_items import edit_output, patch_output
from hookgate.adapters._reasoning import append_reasoning, edit_reasoning
from hookgate.agent import Blocked, NoDecision

Piece: TypeAlias = tuple[str, str]
"""A part of an answer: its kind (`text`, `thought` or `call`) and its text."""


def answer(*texts: str, thoughts: tuple[str, ...] = (), **options: Any) -> ModelResponse:
    return ModelResponse(texts=texts, thoughts=thoughts, has_tool_calls=False, **options)


async def test_plugins_are_asked_about_each_part_and_only_the_first_call_has_the_usage(
    fake_gateway: FakeGateway,
) -> None:
    points = Points(fake_gateway)
    response = answer("a", "b", thoughts=("x", "y", "z"), input_tokens=3, output_tokens=5, stop_reason="stop")
    model = ModelCall(provider="p", model="m")
    assert await guard_model_response(async_points(points.agent), response, model) is None
    common = {"provider": "p", "model": "m", "stop_reason": "stop"}
    assert points.payloads("BeforeResponse") == [
        {"content": "a", "reasoning": "x", **common},
        {"content": "b", "reasoning": "y", **common},
        {"reasoning": "z", **common},
    ]
    requests = [call.request(gateway_pb2.BeforeResponseRequest) for call in fake_gateway.calls]
    assert [request.payload.HasField("token_usage") for request in requests] == [True, False, False]


async def test_a_pattern_does_not_cross_from_one_text_into_the_next(fake_gateway: FakeGateway) -> None:
    points = async_points(Points(fake_gateway, before_response=redact).agent)
    patched = await guard_model_response(points, answer(*CARD, thoughts=CARD), ModelCall())
    assert patched == ModelResponsePatch(texts=[CARD_REDACTED[0], None], thoughts=[CARD_REDACTED[0], None])


async def test_a_block_of_any_part_blocks_the_answer_and_nobody_is_asked_about_the_others(
    fake_gateway: FakeGateway,
) -> None:
    points = Points(
        fake_gateway,
        before_response=lambda reply, values: block("no")(reply, values) if values["content"] == "b" else reply,
    )
    patched = await guard_model_response(async_points(points.agent), answer("a", "b", "c"), ModelCall())
    assert patched is not None
    assert patched.blocked is not None
    assert patched.blocked.message == "no"
    assert [values["content"] for values in points.payloads("BeforeResponse")] == ["a", "b"]
    with pytest.raises(Blocked):
        await guard_model_response(async_points(points.agent), answer("a", "b", is_structured=True), ModelCall())


async def test_a_block_of_a_part_wins_over_an_error_of_a_later_one(fake_gateway: FakeGateway) -> None:
    replies = {"a": block("no"), "b": outage}
    points = Points(fake_gateway, before_response=lambda reply, values: replies[str(values["content"])](reply, values))
    patched = await guard_model_response(async_points(points.agent), answer("a", "b"), ModelCall())
    assert patched is not None
    assert patched.blocked is not None
    assert points.names == ["BeforeResponse"]
    with pytest.raises(NoDecision):
        await guard_model_response(async_points(points.agent), answer("b", "a"), ModelCall())


async def test_an_added_part_is_taken_only_where_the_answer_had_none(fake_gateway: FakeGateway) -> None:
    points = async_points(Points(fake_gateway, before_response=patch(content="[X]", reasoning="[Y]")).agent)
    patched = await guard_model_response(points, answer("a", "b"), ModelCall())
    assert patched == ModelResponsePatch(texts=["[X]", "[X]"], thoughts=["[Y]", None])
    patched = await guard_model_response(points, answer("a", thoughts=("x", "y")), ModelCall())
    assert patched == ModelResponsePatch(texts=["[X]", None], thoughts=["[Y]", "[Y]"])


def test_a_thought_that_another_member_repeats_is_one_part_and_each_copy_takes_its_change() -> None:
    walk = PartWalk()
    members = [["a", "a", "b"], ["a", "b", "c"], "b"]
    for member in members:
        walk.begin_member()
        edit_reasoning(member, walk)
    assert walk.found == ["a", "a", "b", "c"]
    walk, edited = PartWalk(["1", None, "3"]), []
    for member in members:
        walk.begin_member()
        edited.append(edit_reasoning(member, walk))
    assert edited == [["1", "a", "3"], ["1", "3", "c"], "3"]


def test_reasoning_that_is_not_changed_stays_and_a_changed_one_loses_what_belongs_to_the_old() -> None:
    def change(old: str) -> str:
        return {"secret": "[X]", "go": ""}.get(old, old)

    signed = {"type": "thinking", "thinking": "secret", "signature": "s"}
    kept = {"type": "thinking", "thinking": "hm", "signature": "s"}
    unsigned = {
        "type": "reasoning",
        "id": "r",
        "summary": [{"text": "secret"}, {"text": "go"}],
        "encrypted_content": "e",
    }
    assert edit_reasoning([kept], change) == [kept]
    assert edit_reasoning([signed, kept, unsigned, "go", {"thinking": "go"}], change) == [
        kept,
        {"type": "reasoning", "id": "r", "summary": [{"text": "[X]"}]},
    ]
    assert edit_reasoning({"reasoning": "secret", "extras": {"signature": "s"}}, change) is None
    assert edit_reasoning("go", change) is None


def test_the_pieces_of_a_streamed_thought_are_one_part_and_its_signature_ends_it() -> None:
    def streamed(*deltas: object) -> object:
        whole: object = None
        for delta in deltas:
            whole = append_reasoning(whole, delta)
        return whole

    def block_of(text: str, **members: Any) -> dict[str, Any]:
        return {"type": "thinking", "thinking": text, **members}

    assert streamed("a", None, "b") == "ab"
    one, two = [block_of("a")], [block_of("b", signature="s")]
    assert streamed(one, two, one) == [block_of("ab", signature="s"), block_of("a")]
    places = [[block_of("a", index=0)], [block_of("b", index=1)], [block_of("c", index=0)]]
    assert streamed(*places) == [block_of("ac", index=0), block_of("b", index=1)]
    assert streamed(one, [{"type": "redacted_thinking", "data": "d"}], one) == [
        *one,
        {"type": "redacted_thinking", "data": "d"},
        *one,
    ]
    assert streamed([*one, *one], one) == [block_of("a"), block_of("aa")]


# Answers of each form, made of pieces, and what can be read in them again.


def output_of(pieces: list[Piece]) -> Any:
    makers: dict[str, Callable[[str], object]] = {"text": message, "thought": reasoning, "call": lambda _: call()}
    return [makers[kind](text) for kind, text in pieces]


def pieces_of_output(output: Any) -> list[Piece]:
    found: list[Piece] = []
    for item in output:
        if item.type == "message":
            found += [("text", part.text) for part in item.content]
        elif item.type == "reasoning":
            found += [("thought", part.text) for part in item.summary]
        else:
            found.append(("call", ""))
    return found


def langchain_of(pieces: list[Piece]) -> AIMessage:
    names = {"text": ("text", "text"), "thought": ("thinking", "thinking"), "call": ("tool_use", "id")}
    blocks: list[Any] = [{"type": names[kind][0], names[kind][1]: text} for kind, text in pieces]
    return AIMessage(content=blocks)


def pieces_of_langchain(answer: AIMessage) -> list[Piece]:
    kinds = {"text": ("text", "text"), "thinking": ("thought", "thinking"), "tool_use": ("call", "id")}
    blocks: Any = answer.content
    return [(kinds[block["type"]][0], block[kinds[block["type"]][1]]) for block in blocks]


def message_members(pieces: list[Piece]) -> dict[str, Any]:
    """The first two texts, and all thoughts."""
    texts = [*(text for kind, text in pieces if kind == "text"), None, None]
    thoughts = [{"type": "reasoning.text", "text": text} for kind, text in pieces if kind == "thought"]
    return {"role": "assistant", "content": texts[0], "refusal": texts[1], "reasoning_details": thoughts}


def pieces_of_choice(choice: Any) -> list[Piece]:
    message = choice.message
    texts = [("text", text) for text in (message.content, getattr(message, "refusal", None)) if text]
    return texts + [("thought", part["text"]) for part in getattr(message, "reasoning_details", None) or ()]


def in_order_of_choice(pieces: list[Piece]) -> list[Piece]:
    """Choices have no order between their texts and their thoughts."""
    texts = [piece for piece in pieces if piece[0] == "text"][:2]
    return texts + [piece for piece in pieces if piece[0] == "thought"]


Form: TypeAlias = tuple[
    Callable[[list[Piece]], Any],
    Callable[[Any], tuple[Any, Any]],
    Callable[[Any, ModelResponsePatch], Any],
    Callable[[Any], list[Piece]],
]
"""Makes an answer of pieces, finds its parts, patches it, and takes it apart again."""


def parts_of_choice(choice: Any) -> tuple[Any, Any]:
    view = choice_answer(choice, None, is_structured=False)
    return view.texts, view.thoughts


FORMS: dict[str, Form] = {
    "responses": (
        output_of,
        lambda output: find_parts(edit_output, output),
        lambda output, change: patch_output(output, change, "new"),
        pieces_of_output,
    ),
    "langchain": (langchain_of, answer_parts, patch_answer, pieces_of_langchain),
    "chat": (
        lambda pieces: Choice.model_construct(
            index=0, finish_reason="stop", message=ChatCompletionMessage.model_construct(**message_members(pieces))
        ),
        parts_of_choice,
        lambda choice, change: patched_choice(
            choice, change, Choice.model_construct, ChatCompletionMessage.model_construct
        ),
        pieces_of_choice,
    ),
    "litellm": (
        lambda pieces: Choices(message=LitellmMessage(**message_members(pieces))),
        parts_of_choice,
        lambda choice, change: patched_choice(choice, change, Choices, LitellmMessage),
        pieces_of_choice,
    ),
}

SNIPPETS = ("4111111111111111", "2 cards", "ada@example.com", "Next ", " ", "why", "x")


def random_pieces(source: random.Random) -> list[Piece]:
    pieces: list[Piece] = []
    for _ in range(source.randint(0, 6)):
        kind = source.choice(("text", "text", "thought", "call"))
        text = "".join(source.choices(SNIPPETS, k=source.randint(1, 3)))
        pieces.append((kind, "" if kind == "call" else text))
    return pieces


@pytest.mark.parametrize("form", FORMS)
async def test_what_a_redactor_makes_of_an_answer_is_what_it_makes_of_each_part(
    fake_gateway: FakeGateway, form: str
) -> None:
    make, find, patch_form, take_apart = FORMS[form]
    points = async_points(Points(fake_gateway, before_response=redact).agent)
    source = random.Random(11)
    for _ in range(60):
        pieces = random_pieces(source)
        original = make(pieces)
        texts, thoughts = find(original)
        view = ModelResponse(texts=texts, thoughts=thoughts, has_tool_calls=True)
        change = await guard_model_response(points, view, ModelCall())
        shown = original if change is None else patch_form(original, change)
        if form in ("chat", "litellm"):
            pieces = in_order_of_choice(pieces)
        assert take_apart(shown) == [(kind, redacted(text)) for kind, text in pieces]


@pytest.mark.parametrize("form", FORMS)
async def test_a_part_that_becomes_empty_goes_and_the_others_stay(fake_gateway: FakeGateway, form: str) -> None:
    make, find, patch_form, take_apart = FORMS[form]
    pieces = [("thought", "why"), ("text", "a secret"), ("thought", "secret"), ("call", ""), ("text", "Next")]
    original = make(pieces)
    texts, thoughts = find(original)
    view = ModelResponse(texts=texts, thoughts=thoughts, has_tool_calls=True)
    points = async_points(Points(fake_gateway, before_response=patch(_without_secrets)).agent)
    change = await guard_model_response(points, view, ModelCall())
    assert change is not None
    if form in ("chat", "litellm"):
        pieces = in_order_of_choice(pieces)
    assert take_apart(patch_form(original, change)) == [piece for piece in pieces if "secret" not in piece[1]]


def _without_secrets(values: Any) -> Any:
    return {name: "" if "secret" in text else text for name, text in values.items()}


async def test_each_of_two_equal_thoughts_of_one_member_is_judged(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=replace_text("secret", "[X]"))
    texts, thoughts = find_parts(edit_output, output_of([("thought", "secret"), ("thought", "secret")]))
    view = ModelResponse(texts=texts, thoughts=thoughts, has_tool_calls=False)
    change = await guard_model_response(async_points(points.agent), view, ModelCall())
    assert change == ModelResponsePatch(texts=[None, None], thoughts=["[X]", "[X]"])
