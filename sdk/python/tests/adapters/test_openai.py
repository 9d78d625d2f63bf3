"""Clients of OpenAI's API behind the gateway, with the real library and a scripted API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from openai import OpenAI
from support.fake_gateway import FakeGateway, Reply
from support.openai_api import (
    OpenAiApi,
    chunks,
    completion,
    events,
    reasoning_item,
    response,
    said,
    streamed,
    text_item,
)
from support.openai_client import Method, Mode, SetUp, text_in, text_in_stream
from support.points import PointReply, Points, Values, block, outage, patch, replace_text

from hookgate.adapters.openai import PatchError, guard, guard_tool
from hookgate.agent import Blocked, NoDecision, call_context

TOOL_CALL = {"id": "call-1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
CALL_ITEM = {"type": "function_call", "id": "f-1", "call_id": "call-1", "name": "read", "arguments": "{}"}


@pytest.fixture(params=["async", "blocking", "threads"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return cast("Mode", request.param)


@pytest.fixture(params=["chat", "responses"])
def method(request: pytest.FixtureRequest) -> Method:
    return cast("Method", request.param)


@pytest.fixture
def start() -> Iterator[Callable[..., OpenAiApi]]:
    started: list[OpenAiApi] = []

    def start_api(*answers: Any) -> OpenAiApi:
        started.append(OpenAiApi(*answers))
        return started[-1]

    yield start_api
    for api in started:
        api.stop()


PARTS = [
    {"type": "text", "text": "Who am I?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}},
    {"type": "file", "file": {"file_data": "data:application/pdf;base64,AQID", "filename": "y.pdf"}},
]
MESSAGES: list[Any] = [
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": "My name is Ada."},
    {"role": "user", "content": PARTS},
]
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}},
]


async def test_an_allowed_chat_passes_both_points_and_nothing_changes(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    api = start(completion({"content": "It is ", "reasoning_content": "hm"}))
    set_up = SetUp(fake_gateway, mode, api)
    with call_context(session_id="s-1"):
        result = await set_up.ask("chat", messages=MESSAGES, tools=TOOLS)
    assert result.choices[0].message.content == "It is "
    assert result.model_extra == {"provider_copy": "secret"}
    assert set_up.points.names == ["BeforeLlmRequest", "BeforeResponse"]
    assert set(set_up.points.sessions()) == {"s-1"}
    request = set_up.points.payloads("BeforeLlmRequest")[0]
    assert (request["text"], request["system_prompt"]) == ("Who am I?", "Be kind.")
    assert (request["messages"], request["tools"]) == (MESSAGES[1:], TOOLS)
    image, file = set_up.points.media("BeforeLlmRequest")
    assert (image.data, image.mime_type) == (b"\x01\x02\x03", "image/png")
    assert (file.mime_type, file.filename) == ("application/pdf", "y.pdf")
    told = set_up.points.payloads("BeforeResponse")[0]
    assert told == {"content": "It is ", "reasoning": "hm", "model": "fake-1", "stop_reason": "stop"}
    assert api.requests == [{"model": "fake-1", "messages": MESSAGES, "tools": TOOLS}]


async def test_an_allowed_response_passes_both_points_and_nothing_changes(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    api = start(response(reasoning_item("hm"), text_item("It is ")))
    set_up = SetUp(fake_gateway, mode, api)
    result = await set_up.ask("responses", input="hi", instructions="Be kind.", prompt={"id": "p"})
    assert result.output_text == "It is "
    request = set_up.points.payloads("BeforeLlmRequest")[0]
    assert (request["text"], request["system_prompt"]) == ("hi", "Be kind.")
    assert request["extra"] == {"prompt": {"id": "p"}}
    told = set_up.points.payloads("BeforeResponse")[0]
    assert (told["content"], told["reasoning"]) == ("It is ", "hm")
    assert api.requests[0]["input"] == "hi"


def rewritten_request(reply: Message, values: Values) -> Reply:
    """Without the images and the first tool."""
    payload = cast("Any", reply).payload
    del payload.images[:]
    changed = patch(tools=cast("Any", values["tools"])[1:], system_prompt="Be short.", text="Who is [NAME]?")
    return changed(reply, values)


async def test_a_rewritten_chat_is_what_the_model_gets(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    api = start(said("chat", "done"))
    set_up = SetUp(fake_gateway, mode, api, before_llm_request=rewritten_request)
    await set_up.ask("chat", messages=MESSAGES, tools=TOOLS)
    [request] = api.requests
    assert request["tools"] == TOOLS[1:]
    assert request["messages"] == [
        {"role": "developer", "content": "Be short."},
        MESSAGES[1],
        {"role": "user", "content": [{"type": "text", "text": "Who is [NAME]?"}, PARTS[2]]},
    ]


async def test_rewritten_messages_are_what_the_model_gets(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    first = completion({"tool_calls": [TOOL_CALL]})
    api = start(first, said("chat", "done"), response(CALL_ITEM), said("responses", "done"))
    set_up = SetUp(fake_gateway, mode, api, before_llm_request=replace_text("Ada", "[NAME]"))
    asked: Any = {"role": "user", "content": "I am Ada."}
    called = await set_up.ask("chat", messages=[asked], tools=TOOLS)
    output: Any = {"role": "tool", "tool_call_id": "call-1", "content": "Ada"}
    await set_up.ask("chat", messages=[asked, called.choices[0].message, output])
    sent = api.requests[-1]["messages"]
    assert [message.get("content") for message in sent] == ["I am [NAME].", None, "[NAME]"]
    assert sent[1]["tool_calls"] == [TOOL_CALL]
    called = await set_up.ask("responses", input=[asked], instructions="Ada pays.", prompt={"id": "Ada"})
    assert (api.requests[-1]["instructions"], api.requests[-1]["prompt"]) == ("[NAME] pays.", {"id": "[NAME]"})
    result: Any = {"type": "function_call_output", "call_id": "call-1", "output": "Ada"}
    await set_up.ask("responses", input=[asked, *called.output, result])
    assert [item.get("output") for item in api.requests[-1]["input"]] == [None, None, "[NAME]"]
    assert api.requests[-1]["input"][1]["name"] == "read"


async def test_what_else_the_model_reads_is_judged(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    prediction = {"type": "content", "content": "Ada"}
    api = start(said("chat", "done"), said("responses", "done"))
    set_up = SetUp(fake_gateway, mode, api, before_llm_request=replace_text("Ada", "[NAME]"))
    await set_up.ask("chat", prediction=prediction, extra_body={"documents": ["Ada"]})
    await set_up.ask("responses", extra_body={"documents": ["Ada"]})
    chat, responses = set_up.points.payloads("BeforeLlmRequest")
    assert chat["extra"] == {"prediction": prediction, "extra_body": {"documents": ["Ada"]}}
    assert responses["extra"] == {"extra_body": {"documents": ["Ada"]}}
    assert api.requests[0]["prediction"] == {"type": "content", "content": "[NAME]"}
    assert [request["documents"] for request in api.requests] == [["[NAME]"], ["[NAME]"]]


async def test_no_tools_are_left_if_a_plugin_takes_all(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    api = start(said("chat", "done"))
    set_up = SetUp(fake_gateway, mode, api, before_llm_request=patch(tools=[]))
    await set_up.ask("chat", tools=TOOLS, tool_choice="auto")
    assert sorted(api.requests[0]) == ["messages", "model"]


async def test_an_added_image_is_refused(
    fake_gateway: FakeGateway, mode: Mode, method: Method, start: Callable[..., OpenAiApi]
) -> None:
    def add(reply: Message, values: Values) -> Reply:
        cast("Any", reply).payload.images.add(mime_type="image/png", url="https://x/y.png")
        return patch()(reply, values)

    api = start()
    with pytest.raises(PatchError):
        await SetUp(fake_gateway, mode, api, before_llm_request=add).ask(method)
    assert api.requests == []


async def test_the_message_of_a_blocked_response_is_all_that_remains_of_it(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    audio = {"id": "a", "data": "c2VjcmV0", "expires_at": 0, "transcript": "a secret"}
    secret = {"reasoning_content": "secret", "tool_calls": [TOOL_CALL], "audio": audio, "refusal": "secret"}
    api = start(completion(secret), response(reasoning_item("secret"), text_item("secret"), CALL_ITEM))
    set_up = SetUp(fake_gateway, mode, api, before_response=block("I can't say that."))
    chat = await set_up.ask("chat")
    assert chat.choices[0].message.content == "I can't say that."
    assert chat.choices[0].message.tool_calls is None
    result = await set_up.ask("responses")
    assert (result.output_text, len(result.output)) == ("I can't say that.", 1)
    assert "secret" not in repr(chat) + repr(result) + chat.model_dump_json() + result.model_dump_json()
    assert set_up.points.payloads("BeforeResponse")[0]["content"] == "secret"


async def test_a_rewritten_response_has_no_copy_of_the_old_text_and_keeps_its_calls(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    message = {"content": "the secret", "reasoning_content": "a secret", "copy": "secret", "tool_calls": [TOOL_CALL]}
    api = start(completion(message), response(reasoning_item("a secret"), text_item("the secret"), CALL_ITEM))
    set_up = SetUp(fake_gateway, mode, api, before_response=replace_text("secret", "[X]"))
    chat = await set_up.ask("chat")
    changed = chat.choices[0].message
    assert (changed.content, changed.model_extra) == ("the [X]", {"reasoning_content": "a [X]"})
    assert changed.tool_calls[0].function.name == "read"
    result = await set_up.ask("responses")
    assert [item.type for item in result.output] == ["reasoning", "message", "function_call"]
    assert result.output_text == "the [X]"
    assert "secret" not in repr(chat) + repr(result) + chat.model_dump_json() + result.model_dump_json()


async def test_each_choice_is_judged_for_itself(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    def only_good(reply: Message, values: Values) -> Reply:
        return reply if values["content"] == "good" else block("no")(reply, values)

    api = start(completion({"content": "bad"}, {"content": "good"}, {"tool_calls": [TOOL_CALL]}))
    set_up = SetUp(fake_gateway, mode, api, before_response=only_good)
    result = await set_up.ask("chat", n=3)
    assert [choice.message.content for choice in result.choices] == ["no", "good", None]
    assert len(set_up.points.payloads("BeforeResponse")) == 2


ENDS: dict[str, tuple[str, PointReply]] = {
    "a block of the request": ("before_llm_request", block("stop")),
    "a block of the run before the response": ("before_response", block("stop", "run")),
    "no decision before the request": ("before_llm_request", outage),
    "no decision before the response": ("before_response", outage),
}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("what", ENDS)
async def test_what_raises(
    fake_gateway: FakeGateway,
    mode: Mode,
    method: Method,
    start: Callable[..., OpenAiApi],
    what: str,
    is_streamed: bool,
) -> None:
    point, reply = ENDS[what]
    api = start(streamed(method, "secret") if is_streamed else said(method, "secret"))
    set_up = SetUp(fake_gateway, mode, api, **{point: reply})
    with pytest.raises((Blocked, NoDecision)) as caught:
        await set_up.ask(method, stream=is_streamed)
    assert isinstance(caught.value, NoDecision if what.startswith("no decision") else Blocked)
    assert caught.value.point == point
    assert len(api.requests) == (0 if point == "before_llm_request" else 1)


async def test_an_allowed_stream_comes_as_the_model_gave_it(
    fake_gateway: FakeGateway, mode: Mode, method: Method, start: Callable[..., OpenAiApi]
) -> None:
    set_up = SetUp(fake_gateway, mode, start(streamed(method, "abc")))
    assert text_in_stream(method, await set_up.events(method)) == ["a", "b", "c"]
    assert set_up.points.payloads("BeforeResponse")[0]["content"] == "abc"


@pytest.mark.parametrize("reply", [block("[X]"), replace_text("secret", "[X]")], ids=["blocked", "rewritten"])
async def test_a_changed_stream_has_the_new_text_in_one_piece(
    fake_gateway: FakeGateway, mode: Mode, method: Method, start: Callable[..., OpenAiApi], reply: PointReply
) -> None:
    set_up = SetUp(fake_gateway, mode, start(streamed(method, "secret")), before_response=reply)
    seen = await set_up.events(method)
    assert text_in_stream(method, seen) == ["[X]"]
    assert "secret" not in repr(seen)
    if method == "chat":
        assert [chunk.usage.total_tokens for chunk in seen if chunk.usage] == [8]
    else:
        assert seen[-1].response.output_text == "[X]"


async def test_a_changed_stream_has_the_last_usage_once(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    pieces = chunks({"content": "sec"}, {"content": "ret"})[:-1]
    usage = {"prompt_tokens": 3, "completion_tokens": 0}
    counted = [{**piece, "usage": {**usage, "total_tokens": number}} for number, piece in enumerate(pieces)]
    set_up = SetUp(fake_gateway, mode, start(counted, pieces), before_response=replace_text("secret", "[X]"))
    seen = await set_up.events("chat")
    assert [(chunk.usage.total_tokens, chunk.choices) for chunk in seen if chunk.usage] == [(2, [])]
    assert all(chunk.choices and chunk.usage is None for chunk in await set_up.events("chat"))


async def test_a_streamed_choice_without_a_delta_is_passed_over(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    pieces = chunks({"content": "secret"})
    found = {"index": 0, "delta": None, "finish_reason": None, "content_filter_results": {"hate": {"filtered": False}}}
    pieces.insert(1, {**pieces[0], "choices": [found]})
    set_up = SetUp(fake_gateway, mode, start(pieces), before_response=replace_text("secret", "[X]"))
    assert text_in_stream("chat", await set_up.events("chat")) == ["[X]"]


async def test_a_changed_stream_keeps_its_calls_and_a_blocked_one_doesnt(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    call_start = {"tool_calls": [{"index": 0, **TOOL_CALL, "function": {"name": "read", "arguments": ""}}]}
    call_end = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
    deltas: list[dict[str, Any]] = [
        {"content": "sec", "reasoning_content": "secret"},
        {"content": "ret", **call_start},
        call_end,
    ]
    api = start(chunks(*deltas), chunks(*deltas))
    set_up = SetUp(fake_gateway, mode, api, before_response=replace_text("secret", "[X]"))
    seen = await set_up.events("chat")
    calls = [choice.delta.tool_calls for chunk in seen for choice in chunk.choices if choice.delta.tool_calls]
    assert [call[0].function.arguments for call in calls] == ["", "{}"]
    assert seen[0].choices[0].delta.model_extra == {"reasoning_content": "[X]"}
    blocked = SetUp(fake_gateway, mode, api, before_response=block("no"))
    seen = await blocked.events("chat")
    assert not [choice for chunk in seen for choice in chunk.choices if choice.delta.tool_calls]


async def test_nothing_is_returned_before_the_decision(
    fake_gateway: FakeGateway, method: Method, start: Callable[..., OpenAiApi]
) -> None:
    asked, released = threading.Event(), threading.Event()

    def held(reply: Message, _: Values) -> Reply:
        asked.set()
        assert released.wait(30)
        return reply

    set_up = SetUp(fake_gateway, "async", start(streamed(method, "abc")), before_response=held)
    asking = asyncio.create_task(set_up.ask(method, stream=True))
    assert await asyncio.to_thread(asked.wait, 30)
    assert not asking.done()
    released.set()
    await asking


@pytest.mark.parametrize("choices", [[0], [0, 1], []], ids=["one choice", "one of two choices", "no choice"])
async def test_nothing_is_shown_of_a_chat_stream_that_breaks_off(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi], choices: list[int]
) -> None:
    whole = chunks({"content": "secret"})
    first, last, usage = whole
    pieces = [{**first, "choices": [{**first["choices"][0], "index": index}]} for index in choices]
    ends = [last] if len(choices) > 1 else []
    set_up = SetUp(fake_gateway, mode, start([*pieces, *ends, usage]))
    with pytest.raises(RuntimeError, match="broke off"):
        await set_up.events("chat")
    assert set_up.points.names == ["BeforeLlmRequest"]


@pytest.mark.parametrize("end", ["response.failed", "error", None])
async def test_nothing_is_shown_of_a_stream_that_breaks_off(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi], end: str | None
) -> None:
    broken = events(text_item("secret"), end=end or "")
    api = start(broken if end else broken[:-1])
    with pytest.raises(Exception, match=r"judged|error"):
        await SetUp(fake_gateway, mode, api).events("responses")


async def test_an_incomplete_response_is_judged(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    incomplete = response(text_item("secret"), status="incomplete")
    api = start(incomplete, events(text_item("secret"), end="response.incomplete"))
    set_up = SetUp(fake_gateway, mode, api, before_response=replace_text("secret", "[X]"))
    assert (await set_up.ask("responses")).output_text == "[X]"
    assert text_in_stream("responses", await set_up.events("responses")) == ["[X]"]


async def test_an_answer_in_a_format_can_be_rewritten_and_a_block_raises(
    fake_gateway: FakeGateway, mode: Mode, method: Method, start: Callable[..., OpenAiApi]
) -> None:
    form: Any = {"type": "json_object"}
    options: dict[str, Any] = {"response_format": form} if method == "chat" else {"text": {"format": form}}
    api = start(said(method, '{"name":"Ada"}'), said(method, '{"name":"Ada"}'))
    set_up = SetUp(fake_gateway, mode, api, before_response=replace_text("Ada", "[X]"))
    assert text_in(method, await set_up.ask(method, **options)) == '{"name":"[X]"}'
    with pytest.raises(Blocked):
        await SetUp(fake_gateway, mode, api, before_response=block("no")).ask(method, **options)


async def test_what_cant_be_judged_is_refused(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    api = start(said("chat", "secret"))
    set_up = SetUp(fake_gateway, mode, api)
    client = set_up.client
    for holder, name in (
        (client, "completions"),
        (client, "beta"),
        (client, "post"),
        (client, "with_raw_response"),
        (client.chat, "with_streaming_response"),
        (client.chat.completions, "parse"),
        (client.chat.completions, "stream"),
        (client.chat.completions, "with_raw_response"),
        (client.responses, "parse"),
        (client.responses, "retrieve"),
        (client.responses, "connect"),
    ):
        with pytest.raises(AttributeError, match="isn't guarded"):
            getattr(holder, name)
    with pytest.raises(TypeError, match="background"):
        await set_up.ask("responses", background=True)
    for name in ("messages", "prediction", "system", "contents"):
        with pytest.raises(TypeError, match=f"extra_body has '{name}'"):
            await set_up.ask("chat", extra_body={name: []})
    with pytest.raises(TypeError, match="must be a list"):
        await set_up.ask("chat", messages=iter(MESSAGES))
    assert api.requests == []
    with pytest.raises(TypeError, match="can't be judged"):
        await set_up.ask("chat", extra_headers={"X-Stainless-Raw-Response": "true"})


async def test_a_client_with_other_options_is_guarded_too(
    fake_gateway: FakeGateway, mode: Mode, start: Callable[..., OpenAiApi]
) -> None:
    set_up = SetUp(fake_gateway, mode, start(said("chat", "secret")), before_response=block("no"))
    set_up.client = set_up.client.with_options(timeout=5)
    assert text_in("chat", await set_up.ask("chat")) == "no"


def test_a_blocking_client_needs_a_blocking_agent(fake_gateway: FakeGateway) -> None:
    agent = Points(fake_gateway).agent
    with pytest.raises(TypeError, match=r"use hookgate\.agent\.sync"):
        guard(agent, OpenAI(api_key="key"))
    with pytest.raises(TypeError, match="client must be"):
        guard(agent, cast("Any", agent))
    with pytest.raises(TypeError, match=r"use hookgate\.agent\.sync"):
        guard_tool(agent, lambda: None)
