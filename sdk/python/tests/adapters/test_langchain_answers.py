"""What plugins see and change of answers of LangChain's models, also in a format."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, cast

import pytest
from langchain.agents.structured_output import ProviderStrategy, StructuredOutputError, ToolStrategy
from langchain_core.messages import AIMessage
from pydantic import BaseModel
from support.fake_gateway import FakeGateway
from support.langchain_agent import DONE, Mode, SetUp, call_message, each_mode, read_tool
from support.points import (
    CARD,
    CARD_REDACTED,
    EMAIL,
    EMAIL_REDACTED,
    PointReply,
    block,
    outage,
    patch,
    redact,
    replace_text,
)

from hookgate.adapters.langchain import PatchError
from hookgate.agent import Blocked, NoDecision


@each_mode
async def test_the_message_of_a_blocked_response_is_all_that_remains_of_it(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    secret = AIMessage(
        id="a-1",
        content=[{"type": "thinking", "thinking": "secret"}, {"type": "text", "text": "secret"}],
        tool_calls=call_message().tool_calls,
        additional_kwargs={"reasoning_content": "secret"},
        response_metadata={"output": ["secret"]},
    )
    read, paths = read_tool()
    set_up = SetUp(fake_gateway, mode, [secret], [read], {"before_response": block("I can't say that.")})
    result = await set_up.run("hi")
    last = result["messages"][-1]
    assert (last.content, last.id) == ("I can't say that.", "a-1")
    assert paths == []
    assert "secret" not in repr(result)


@each_mode
async def test_a_rewritten_response_has_no_copy_of_the_old_text_and_its_tools_still_run(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    tool_use = {"type": "tool_use", "id": "call-1", "name": "read", "input": {}}
    reasoning = {"type": "reasoning", "summary": [{"text": "a secret"}]}
    secret = AIMessage(
        content=cast("Any", [reasoning, {"type": "text", "text": "the secret"}, tool_use]),
        tool_calls=call_message().tool_calls,
        additional_kwargs={"refusal": "secret", "__signature": "s"},
        response_metadata={"logprobs": {"content": ["secret"]}, "model_name": "m"},
    )
    read, paths = read_tool()
    replies = {"before_response": replace_text("secret", "[X]")}
    set_up = SetUp(fake_gateway, mode, [secret, DONE], [read], replies)
    result = await set_up.run("hi")
    assert paths == ["/etc/hosts"]
    assert "secret" not in repr(result) + repr(set_up.model.requests)
    rewritten = result["messages"][1]
    changed = {"type": "reasoning", "summary": [{"text": "a [X]"}]}
    assert rewritten.content == [changed, {"type": "text", "text": "the [X]"}, tool_use]
    assert rewritten.additional_kwargs == {"refusal": "[X]", "__signature": "s"}
    assert rewritten.response_metadata == {"model_name": "m"}


def text_block(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **members}


CITED = {"citations": [{"type": "char_location", "cited_text": "it"}]}
ANNOTATED = {"annotations": [{"type": "citation", "cited_text": "it"}]}
LINKED = {"annotations": [{"type": "url_citation", "url": "https://x", "start_index": 0, "end_index": 1}]}
TOOL_USE = {"type": "tool_use", "id": "call-1", "name": "read", "input": {}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}

CONTENTS: dict[str, tuple[list[Any], list[Any]]] = {
    "card in the first of two blocks": (
        [text_block(CARD[0]), text_block(CARD[1], id="b")],
        [text_block(CARD_REDACTED[0]), text_block(CARD[1], id="b")],
    ),
    "text, call, text": (
        [text_block(EMAIL[0]), TOOL_USE, text_block(EMAIL[1], **CITED)],
        [text_block(EMAIL_REDACTED[0]), TOOL_USE, text_block(EMAIL[1], **CITED)],
    ),
    "strings": ([EMAIL[0], THOUGHT, EMAIL[1]], [text_block(EMAIL_REDACTED[0]), THOUGHT, EMAIL[1]]),
    "refusal beside a text": (
        [text_block(CARD[0], **CITED), {"type": "refusal", "refusal": CARD[1]}],
        [text_block(CARD_REDACTED[0]), {"type": "refusal", "refusal": CARD[1]}],
    ),
    "cut for citations": (
        [text_block("Card 41111111"), text_block("11111111", **CITED), text_block(" is it"), text_block("2 cards")],
        [text_block("Card [CARD] is it"), text_block("2 cards")],
    ),
    "cut for citations in LangChain's own form": (
        [text_block("Card 41111111", **ANNOTATED), text_block("11111111")],
        [text_block("Card [CARD]")],
    ),
    "links within a text": (
        [text_block(CARD[0], **LINKED), text_block(CARD[1], **LINKED)],
        [text_block(CARD_REDACTED[0]), text_block(CARD[1], **LINKED)],
    ),
}
"""Contents of answers, and what a redactor leaves of them."""


@pytest.mark.parametrize("what", CONTENTS)
@each_mode
async def test_texts_that_a_reader_sees_apart_are_judged_apart_and_changed_in_place(
    fake_gateway: FakeGateway, mode: Mode, what: str
) -> None:
    blocks, expected = CONTENTS[what]
    read, paths = read_tool()
    answer = AIMessage(content=blocks, tool_calls=call_message().tool_calls)
    set_up = SetUp(fake_gateway, mode, [answer, DONE], [read], {"before_response": redact})
    result = await set_up.run("hi")
    assert result["messages"][1].content == expected
    assert paths == ["/etc/hosts"]


@each_mode
async def test_an_untouched_answer_of_several_texts_stays_as_it_is(fake_gateway: FakeGateway, mode: Mode) -> None:
    content: list[Any] = [text_block("a", **CITED), text_block("b"), THOUGHT, "c"]
    answer = AIMessage(content=content, response_metadata={"logprobs": ["a"]})
    result = await SetUp(fake_gateway, mode, [answer], replies={"before_response": redact}).run("hi")
    last = result["messages"][-1]
    assert (last.content, last.response_metadata) == (content, {"logprobs": ["a"]})


@each_mode
async def test_a_thought_and_its_copy_beside_the_content_take_the_same_change(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    blocks: list[Any] = [{"type": "reasoning", "reasoning": "a secret"}, {**THOUGHT, "thinking": "secret"}, THOUGHT]
    beside = {"reasoning_content": "a secret", "reasoning": {"summary": [{"text": "a secret"}]}}
    answer = AIMessage(content=[*blocks, text_block("done")], additional_kwargs=beside)
    set_up = SetUp(fake_gateway, mode, [answer], replies={"before_response": replace_text("secret", "[X]")})
    last = (await set_up.run("hi"))["messages"][-1]
    judged = [values["reasoning"] for values in set_up.points.payloads("BeforeResponse")]
    assert judged == ["a secret", "secret", "hm"]
    # A provider takes a signed thought only as it wrote it.
    assert last.content == [{"type": "reasoning", "reasoning": "a [X]"}, THOUGHT, text_block("done")]
    assert last.additional_kwargs == {"reasoning_content": "a [X]", "reasoning": {"summary": [{"text": "a [X]"}]}}


@each_mode
async def test_a_text_that_a_plugin_adds_to_an_answer_without_one_comes_first(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    answer = AIMessage(content=cast("Any", [THOUGHT]))
    set_up = SetUp(fake_gateway, mode, [answer], replies={"before_response": patch(content="[X]")})
    assert (await set_up.run("hi"))["messages"][-1].content == [text_block("[X]"), THOUGHT]


class Person(BaseModel):
    name: str


def in_provider_format() -> AIMessage:
    return AIMessage('{"name":"Ada"}')


def in_tool_format() -> AIMessage:
    calls = [{"id": "f", "name": "Person", "args": {"name": "Ada"}, "type": "tool_call"}]
    return AIMessage("", tool_calls=cast("Any", calls))


FORMATS = [(ProviderStrategy(Person), in_provider_format), (ToolStrategy(Person), in_tool_format)]


@each_mode
@pytest.mark.parametrize(("response_format", "formatted"), FORMATS, ids=["provider", "tool"])
async def test_an_answer_in_a_format_is_judged_as_json_can_be_rewritten_and_a_block_raises(
    fake_gateway: FakeGateway, mode: Mode, response_format: Any, formatted: Callable[[], AIMessage]
) -> None:
    def set_up(reply: PointReply | None) -> SetUp:
        replies = {} if reply is None else {"before_response": reply}
        return SetUp(fake_gateway, mode, [formatted()], [], replies, response_format=response_format)

    allowed = set_up(None)
    result = await allowed.run("hi")
    assert result["structured_response"] == Person(name="Ada")
    assert allowed.points.payloads("BeforeResponse")[0]["content"] == '{"name":"Ada"}'

    rewritten = await set_up(replace_text("Ada", "[X]")).run("hi")
    assert rewritten["structured_response"] == Person(name="[X]")
    assert "Ada" not in repr(rewritten)

    for reply, error in ((block("no"), Blocked), (patch(content="[X]"), PatchError), (outage, NoDecision)):
        with pytest.raises(error):
            await set_up(reply).run("hi")


@each_mode
async def test_calls_of_a_tool_for_the_format_that_cant_be_read_are_judged(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    wrong = in_tool_format()
    wrong.tool_calls[0]["args"] = {"nickname": "Ada"}
    strategy = ToolStrategy(Person)
    set_up = SetUp(fake_gateway, mode, [wrong, in_tool_format()], [], response_format=strategy)
    await set_up.run("hi")
    judged = [payload["content"] for payload in set_up.points.payloads("BeforeResponse")]
    assert judged == ['{"nickname":"Ada"}', '{"name":"Ada"}']
    replies = {"before_response": replace_text("Ada", "[X]")}
    refused = SetUp(fake_gateway, mode, [wrong], [], replies, response_format=strategy)
    with pytest.raises(PatchError):
        await refused.run("hi")


def provider_answer_without_a_name() -> AIMessage:
    return AIMessage('{"nickname":"a secret"}')


def tool_answer_without_a_name() -> AIMessage:
    answered = in_tool_format()
    answered.tool_calls[0]["args"] = {"nickname": "a secret"}
    return answered


def tool_answer_with_two_names() -> AIMessage:
    first, second = in_tool_format(), in_tool_format()
    second.tool_calls[0]["id"], second.tool_calls[0]["args"] = "g", {"name": "a secret"}
    first.tool_calls = [*first.tool_calls, *second.tool_calls]
    return first


UNREAD: dict[str, tuple[Any, Callable[[], AIMessage], list[str]]] = {
    "provider": (ProviderStrategy(Person), provider_answer_without_a_name, ['{"nickname":"a secret"}']),
    "tool": (ToolStrategy(Person, handle_errors=False), tool_answer_without_a_name, ['{"nickname":"a secret"}']),
    "tools": (
        ToolStrategy(Person, handle_errors=False),
        tool_answer_with_two_names,
        ['{"name":"Ada"}', '{"name":"a secret"}'],
    ),
}


@each_mode
@pytest.mark.parametrize("case", UNREAD)
async def test_an_answer_that_only_an_error_shows_is_judged_before_it_is_raised(
    fake_gateway: FakeGateway, mode: Mode, case: str
) -> None:
    response_format, unread, contents = UNREAD[case]

    async def end_of(reply: PointReply | None) -> BaseException:
        replies = {} if reply is None else {"before_response": reply}
        set_up = SetUp(fake_gateway, mode, [unread()], [], replies, response_format=response_format)
        with pytest.raises((StructuredOutputError, Blocked, PatchError, NoDecision)) as caught:
            await set_up.run("hi")
        judged = [values["content"] for values in set_up.points.payloads("BeforeResponse")]
        fake_gateway.calls.clear()
        # A block ends the questions.
        assert judged == contents[: len(judged)]
        assert len(judged) == (1 if isinstance(caught.value, (Blocked, NoDecision)) else len(contents))
        return caught.value

    allowed = await end_of(None)
    assert isinstance(allowed, StructuredOutputError)
    assert allowed.ai_message.tool_calls == unread().tool_calls
    for reply, kind in (
        (block("no"), Blocked),
        (block("no", "run"), Blocked),
        (replace_text("secret", "[X]"), PatchError),
        (outage, NoDecision),
    ):
        error = await end_of(reply)
        assert isinstance(error, kind)
        assert "secret" not in "".join(traceback.format_exception(error))
