"""What plugins see and change of requests to OpenAI's API: system messages, and the format of the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.fake_gateway import FakeGateway
from support.openai_api import OpenAiApi, said
from support.openai_client import Method, Mode, SetUp, each_method, each_mode, text_in
from support.points import block, patch, replace_text

from hookgate.agent import Blocked

SYSTEM_MESSAGES: list[Any] = [
    {"role": "system", "content": [{"text": "EVIL"}]},
    {"role": "system", "content": [{"type": "x", "text": "EVIL"}]},
    {"role": "system", "content": [{"type": "text", "text": ["EVIL"]}]},
    {"role": "system", "content": [{"type": "text", "text": "Be kind.", "note": "EVIL"}]},
    {"role": "system", "content": ["EVIL"]},
    {"role": "system", "content": {"text": "EVIL"}},
    {"role": "developer", "content": [{"type": "image_url", "image_url": {"url": "https://EVIL"}}]},
    {"role": "developer", "content": "Be kind.", "name": "EVIL"},
]
ASKED = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("system", SYSTEM_MESSAGES, ids=str)
async def test_all_of_a_system_message_is_judged(fake_gateway: FakeGateway, system: Any) -> None:
    cached: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
    first = {"role": "system", "content": [{"type": "text", "text": "First.", **cached}], **cached}
    with OpenAiApi(said("chat", "done")) as api:
        set_up = SetUp(fake_gateway, "async", api, before_llm_request=replace_text("EVIL", "[X]"))
        await set_up.ask("chat", messages=[first, system, ASKED])
    [request] = set_up.points.payloads("BeforeLlmRequest")
    assert (request["system_prompt"], request["messages"]) == ("First.", [system, ASKED])
    rewritten = json.loads(json.dumps(system).replace("EVIL", "[X]"))
    assert api.requests[0]["messages"] == [first, rewritten, ASKED]


def formats(method: Method, form: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": form} if method == "chat" else {"text": {"format": form}}


@each_mode
@each_method
async def test_the_schema_of_an_answer_is_judged(fake_gateway: FakeGateway, mode: Mode, method: Method) -> None:
    schema = {"name": "a", "description": "EVIL", "schema": {"type": "object"}}
    is_chat = method == "chat"
    nested = {"json_schema": schema} if is_chat else schema
    options = formats(method, {"type": "json_schema", **nested})
    if is_chat:
        options["web_search_options"] = {"user_location": {"approximate": {"city": "EVIL"}}}
    with OpenAiApi(said(method, "{}")) as api:
        set_up = SetUp(fake_gateway, mode, api, before_llm_request=replace_text("EVIL", "[X]"))
        await set_up.ask(method, **options)
    assert set_up.points.payloads("BeforeLlmRequest")[0]["extra"] == options
    sent = {name: api.requests[0][name] for name in options}
    assert sent == json.loads(json.dumps(options).replace("EVIL", "[X]"))


@each_mode
@each_method
async def test_a_block_stands_for_the_answer_if_the_request_that_was_sent_asked_for_text(
    fake_gateway: FakeGateway, mode: Mode, method: Method
) -> None:
    options = formats(method, {"type": "json_object"})
    with OpenAiApi(said(method, "secret"), said(method, "{}")) as api:
        set_up = SetUp(fake_gateway, mode, api, before_llm_request=patch(extra={}), before_response=block("no"))
        assert text_in(method, await set_up.ask(method, **options)) == "no"
        set_up = SetUp(fake_gateway, mode, api, before_llm_request=patch(extra=options), before_response=block("no"))
        with pytest.raises(Blocked):
            await set_up.ask(method)
    assert [next(iter(options)) in request for request in api.requests] == [False, True]
