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
from support.points import PointReply, block, outage, patch, replace_text

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
    assert rewritten.content == [{"type": "text", "text": "the [X][X]"}, tool_use]
    assert (rewritten.additional_kwargs, rewritten.response_metadata) == ({"__signature": "s"}, {"model_name": "m"})


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


UNREAD: dict[str, tuple[Any, Callable[[], AIMessage], str]] = {
    "provider": (ProviderStrategy(Person), provider_answer_without_a_name, '{"nickname":"a secret"}'),
    "tool": (ToolStrategy(Person, handle_errors=False), tool_answer_without_a_name, '{"nickname":"a secret"}'),
    "tools": (
        ToolStrategy(Person, handle_errors=False),
        tool_answer_with_two_names,
        '{"name":"Ada"}\n{"name":"a secret"}',
    ),
}


@each_mode
@pytest.mark.parametrize("case", UNREAD)
async def test_an_answer_that_only_an_error_shows_is_judged_before_it_is_raised(
    fake_gateway: FakeGateway, mode: Mode, case: str
) -> None:
    response_format, unread, content = UNREAD[case]

    async def end_of(reply: PointReply | None) -> BaseException:
        replies = {} if reply is None else {"before_response": reply}
        set_up = SetUp(fake_gateway, mode, [unread()], [], replies, response_format=response_format)
        with pytest.raises((StructuredOutputError, Blocked, PatchError, NoDecision)) as caught:
            await set_up.run("hi")
        assert set_up.points.payloads("BeforeResponse")[-1]["content"] == content
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
