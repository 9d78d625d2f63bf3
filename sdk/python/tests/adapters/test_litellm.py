"""LiteLLM behind the gateway: the real library, with a provider of our own and with a scripted API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import litellm
import pytest
from litellm.caching.caching import Cache
from litellm.router import Router
from litellm.types.caching import LiteLLMCacheType
from litellm.types.utils import Delta, ModelResponse, ModelResponseStream, StreamingChoices
from pydantic import BaseModel
from support.fake_gateway import FakeGateway
from support.litellm_provider import HELLO, MODEL, FakeProvider, delta_text, text, use_provider
from support.openai_api import OpenAiApi, completion, said
from support.points import PointReply, Points, Values, block, outage, patch, replace_text

from hookgate.adapters.litellm import PatchError, guard_acompletion, guard_completion
from hookgate.agent import Blocked, NoDecision, call_context
from hookgate.agent import sync as blocking

CALL = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> FakeProvider:
    return use_provider(monkeypatch)


async def test_an_allowed_request_passes_both_points_and_nothing_changes(
    fake_gateway: FakeGateway, provider: FakeProvider
) -> None:
    points = Points(fake_gateway)
    acompletion = guard_acompletion(points.agent, litellm.acompletion)
    with call_context(session_id="s-1"):
        response = await acompletion(MODEL, HELLO, tools=[TOOL])
    assert text(response) == "a secret"
    assert points.names == ["BeforeLlmRequest", "BeforeResponse"]
    assert points.sessions() == ["s-1", "s-1"]
    [request] = points.payloads("BeforeLlmRequest")
    assert request == {"text": "hello", "system_prompt": "be brief", "messages": HELLO[1:], "tools": [TOOL]}
    [answer] = points.payloads("BeforeResponse")
    assert (answer["content"], answer["provider"], answer["model"]) == ("a secret", "fake", "fake/model")
    assert provider.messages == HELLO


def test_code_that_is_not_async_is_guarded(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    Points(fake_gateway, before_llm_request=patch(text="[X]"), before_response=replace_text("secret", "[Y]"))
    with blocking.Agent(fake_gateway.url, token="token") as gateway:
        completion = guard_completion(gateway, litellm.completion)
        assert text(completion(model=MODEL, messages=HELLO)) == "a [Y]"
        assert provider.messages[1]["content"] == "[X]"
        assert "".join(map(delta_text, completion(MODEL, HELLO, stream=True))) == "a [Y]"
        with pytest.raises(ValueError, match="guard_acompletion"):
            completion(MODEL, HELLO, acompletion=True)


def test_code_that_is_not_async_needs_a_blocking_agent(fake_gateway: FakeGateway) -> None:
    gateway: Any = Points(fake_gateway).agent
    with pytest.raises(TypeError, match=r"hookgate\.agent\.sync"):
        guard_completion(gateway, litellm.completion)


async def test_plugins_change_what_a_model_is_asked(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    changes = patch(text="[X]", system_prompt="other", tools=[])
    acompletion = guard_acompletion(Points(fake_gateway, before_llm_request=changes).agent, litellm.acompletion)
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    parts = [image, {"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    own = [*HELLO, {"role": "assistant", "content": "hi"}, {"role": "user", "content": parts}]
    await acompletion(MODEL, own, tools=[TOOL], tool_choice="auto")
    assert provider.messages == [
        {"role": "system", "content": "other"},
        *own[1:3],
        {"role": "user", "content": [image, {"type": "text", "text": "[X]"}]},
    ]
    assert "tools" not in provider.requests[-1]["optional_params"]
    assert own[-1]["content"] == parts

    Points(fake_gateway, before_llm_request=replace_text("hi", "[Y]"))
    await acompletion(MODEL, own)
    assert provider.messages[2]["content"] == "[Y]"

    Points(fake_gateway, before_llm_request=patch(messages=[{"content": "no role"}]))
    with pytest.raises(PatchError):
        await acompletion(MODEL, own)


SYSTEM_CONTENTS: list[Any] = [
    [{"text": "EVIL"}],
    [{"type": "x", "text": "EVIL"}],
    ["EVIL"],
    [{"type": "image_url", "image_url": {"url": "https://EVIL"}}],
]


@pytest.mark.parametrize("content", SYSTEM_CONTENTS, ids=str)
async def test_all_of_a_system_message_is_judged(
    fake_gateway: FakeGateway, provider: FakeProvider, content: Any
) -> None:
    points = Points(fake_gateway, before_llm_request=block("no"))
    system = {"role": "system", "content": content}
    with pytest.raises(Blocked):
        await guard_acompletion(points.agent, litellm.acompletion)(MODEL, [HELLO[0], system, HELLO[1]])
    [request] = points.payloads("BeforeLlmRequest")
    assert (request["system_prompt"], request["messages"]) == ("be brief", [system, HELLO[1]])


async def test_a_plugin_may_leave_out_media(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    def without_images(response: Any, _: Values) -> Any:
        del response.payload.images[:]
        response.modified = True
        return response

    points = Points(fake_gateway, before_llm_request=without_images)
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": "data:image/png;base64,AAAA"},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}},
    ]
    await guard_acompletion(points.agent, litellm.acompletion)(MODEL, [{"role": "user", "content": parts}])
    media = points.media("BeforeLlmRequest")
    assert [(medium.mime_type, medium.filename) for medium in media] == [
        ("image/png", ""),
        ("application/pdf", "a.pdf"),
    ]
    assert [part["type"] for part in provider.messages[0]["content"]] == ["text", "file"]


@pytest.mark.parametrize("reply", [block("stop"), block("stop", "run"), outage])
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("has_router", [False, True])
async def test_a_request_that_may_not_be_made_is_not_made_and_not_tried_elsewhere(
    fake_gateway: FakeGateway, provider: FakeProvider, reply: PointReply, is_streamed: bool, has_router: bool
) -> None:
    points = Points(fake_gateway, before_llm_request=reply)
    acompletion: Any = litellm.acompletion
    if has_router:
        models = [{"model_name": name, "litellm_params": {"model": f"fake/{name}"}} for name in ("one", "two")]
        acompletion = Router(model_list=models, fallbacks=[{"one": ["two"]}], num_retries=2).acompletion
    with pytest.raises((Blocked, NoDecision)):
        await guard_acompletion(points.agent, acompletion)("one" if has_router else MODEL, HELLO, stream=is_streamed)
    assert provider.requests == []
    assert points.names == ["BeforeLlmRequest"]


async def test_an_answer_is_changed(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    points = Points(fake_gateway, before_response=patch(content="[X]", reasoning="[Y]"))
    provider.message |= {"reasoning_content": "why", "tool_calls": [CALL]}
    provider.choices = 2
    response = await guard_acompletion(points.agent, litellm.acompletion)(MODEL, HELLO, n=2)
    for choice in response.choices:
        assert (choice.message.content, choice.message.reasoning_content) == ("[X]", "[Y]")
        assert choice.message.tool_calls[0].function.name == "read"
    assert [answer["reasoning"] for answer in points.payloads("BeforeResponse")] == ["why", "why"]
    assert response.usage.total_tokens == 5


async def test_the_message_of_a_block_replaces_the_whole_answer(
    fake_gateway: FakeGateway, provider: FakeProvider
) -> None:
    points = Points(fake_gateway, before_response=block("not for you"))
    provider.message |= {"reasoning_content": "why", "tool_calls": [CALL]}
    acompletion = guard_acompletion(points.agent, litellm.acompletion)
    [choice] = (await acompletion(MODEL, HELLO)).choices
    assert choice.message.content == "not for you"
    assert choice.message.tool_calls is None
    assert "why" not in choice.model_dump_json()
    with pytest.raises(Blocked):
        await acompletion(MODEL, HELLO, response_format={"type": "json_object"})


async def test_an_answer_that_only_calls_tools_passes(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    points = Points(fake_gateway, before_response=block("no"))
    provider.message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    response = await guard_acompletion(points.agent, litellm.acompletion)(MODEL, HELLO)
    assert response.choices[0].message.tool_calls[0].function.name == "read"
    assert points.names == ["BeforeLlmRequest"]


@pytest.mark.parametrize("reply", [block("stop", "run"), outage])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_that_may_not_be_shown_is_not_shown(
    fake_gateway: FakeGateway, provider: FakeProvider, reply: PointReply, is_streamed: bool
) -> None:
    points = Points(fake_gateway, before_response=reply)
    with pytest.raises((Blocked, NoDecision)):
        await guard_acompletion(points.agent, litellm.acompletion)(MODEL, HELLO, stream=is_streamed)


@pytest.mark.parametrize(
    ("reply", "expected"), [(None, "a secret"), (replace_text("secret", "[X]"), "a [X]"), (block("no"), "no")]
)
async def test_a_judged_stream_is_the_answer(
    fake_gateway: FakeGateway, provider: FakeProvider, reply: PointReply | None, expected: str
) -> None:
    points = Points(fake_gateway, **({"before_response": reply} if reply else {}))
    options = {"stream": True, "stream_options": {"include_usage": True}}
    stream = await guard_acompletion(points.agent, litellm.acompletion)(MODEL, HELLO, **options)
    assert points.names == ["BeforeLlmRequest", "BeforeResponse"]
    chunks = [chunk async for chunk in stream]
    assert "".join(map(delta_text, chunks)) == expected
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason] == ["stop"]
    assert reply is None or all("secret" not in chunk.model_dump_json() for chunk in chunks)
    assert any(getattr(chunk, "usage", None) for chunk in chunks)


def stream_of(*pieces: tuple[dict[str, Any], str | None]) -> Callable[..., Any]:
    """Instead of LiteLLM: a stream of these deltas, each with its reason for the end."""

    async def acompletion(**_: Any) -> AsyncIterator[ModelResponseStream]:
        async def stream() -> AsyncIterator[ModelResponseStream]:
            for delta, finish_reason in pieces:
                choice = StreamingChoices(delta=Delta(**delta), finish_reason=finish_reason)
                yield ModelResponseStream(choices=[choice])

        return stream()

    return acompletion


async def test_a_stream_keeps_its_calls_of_tools_unless_it_is_blocked(fake_gateway: FakeGateway) -> None:
    acompletion = stream_of(({"content": "a secret", "tool_calls": [{"index": 0, **CALL}]}, None), ({}, "tool_calls"))
    points = Points(fake_gateway, before_response=patch(content="[X]"))
    guarded = guard_acompletion(points.agent, acompletion)
    for names, reason in ((["read"], "tool_calls"), ([], "stop")):
        choices = [choice async for one in await guarded(MODEL, HELLO, stream=True) for choice in one.choices]
        calls = [call.function.name for choice in choices for call in choice.delta.tool_calls or ()]
        assert (calls, choices[-1].finish_reason) == (names, reason)
        Points(fake_gateway, before_response=block("no"))


@pytest.mark.parametrize("pieces", [[], [({"content": "a secret"}, None)]])
async def test_nothing_is_shown_of_a_stream_that_breaks_off(fake_gateway: FakeGateway, pieces: list[Any]) -> None:
    points = Points(fake_gateway)
    with pytest.raises(RuntimeError, match="broke off"):
        await guard_acompletion(points.agent, stream_of(*pieces))(MODEL, HELLO, stream=True)
    assert points.names == ["BeforeLlmRequest"]


@pytest.mark.parametrize("beside", [{}, {"tool_calls": [{"index": 0, **CALL}]}], ids=["alone", "with a call"])
async def test_a_refusal_is_judged(fake_gateway: FakeGateway, beside: dict[str, Any]) -> None:
    points = Points(fake_gateway, before_response=replace_text("secret", "[X]"))
    message = {"refusal": "a secret", **beside}
    with OpenAiApi(completion(message)) as api:
        guarded = guard_acompletion(points.agent, litellm.acompletion)
        whole = await guarded("openai/gpt-4o", HELLO, api_base=api.url, api_key="key")
    assert whole.choices[0].message.refusal == "a [X]"
    assert "secret" not in whole.model_dump_json()
    # LiteLLM itself drops a streamed refusal that stands alone.
    pieces = stream_of((message, None), ({}, "stop"))
    streamed = [chunk async for chunk in await guard_acompletion(points.agent, pieces)(MODEL, HELLO, stream=True)]
    assert streamed[0].choices[0].delta.refusal == "a [X]"
    assert all("secret" not in chunk.model_dump_json() for chunk in streamed)
    assert [answer["content"] for answer in points.payloads("BeforeResponse")] == ["a secret", "a secret"]


REASONING: dict[str, dict[str, Any]] = {
    "blocks": {"thinking_blocks": [{"type": "thinking", "thinking": "why", "signature": "s"}]},
    "items": {"reasoning_items": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]}]},
    "twice": {"reasoning_content": "why", "thinking_blocks": [{"type": "thinking", "thinking": "why"}]},
}


@pytest.mark.parametrize("form", REASONING)
async def test_reasoning_is_judged_wherever_it_is(fake_gateway: FakeGateway, provider: FakeProvider, form: str) -> None:
    points = Points(fake_gateway, before_response=block("no"))
    provider.message = {"role": "assistant", "content": None, "tool_calls": [CALL], **REASONING[form]}
    whole = await guard_acompletion(points.agent, litellm.acompletion)(MODEL, HELLO)
    assert "why" not in whole.model_dump_json()
    pieces = stream_of((REASONING[form], None), ({}, "stop"))
    streamed = [chunk async for chunk in await guard_acompletion(points.agent, pieces)(MODEL, HELLO, stream=True)]
    assert all("why" not in chunk.model_dump_json() for chunk in streamed)
    assert [answer["reasoning"] for answer in points.payloads("BeforeResponse")] == ["why", "why"]


async def test_what_else_the_model_reads_is_judged(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    points = Points(fake_gateway, before_llm_request=replace_text("Ada", "[X]"))
    extra: dict[str, Any] = {
        "prediction": {"type": "content", "content": "Ada"},
        "extra_body": {"chat_template": "Ada"},
        "documents": ["Ada"],
    }
    unread = {"top_k": 5, "aws_session_token": "Ada", "api_key": "Ada", "metadata": {"name": "Ada"}, "user": "Ada"}
    with OpenAiApi(said("chat", "done")) as api:
        await guard_acompletion(points.agent, litellm.acompletion)(
            "openai/gpt-4o", HELLO, api_base=api.url, **extra, **unread
        )
    [request] = points.payloads("BeforeLlmRequest")
    assert request["extra"] == extra
    [sent] = api.requests
    assert (sent["chat_template"], sent["documents"]) == ("[X]", ["[X]"])
    assert sent["prediction"] == {"type": "content", "content": "[X]"}
    assert (sent["top_k"], sent["user"]) == (5, "Ada")

    Points(fake_gateway, before_llm_request=patch(extra={"new": "Ada"}))
    with pytest.raises(PatchError, match="'new'"):
        await guard_acompletion(points.agent, litellm.acompletion)(MODEL, HELLO)
    assert provider.requests == []


class City(BaseModel):
    """EVIL"""

    name: str


async def test_a_class_as_response_format_is_judged_as_its_schema_and_stays(fake_gateway: FakeGateway) -> None:
    asked: list[Any] = []

    async def acompletion(**request: Any) -> ModelResponse:
        asked.append(request["response_format"])
        return ModelResponse(choices=[{"message": {"content": "{}"}}])

    points = Points(fake_gateway, before_llm_request=patch(text="[X]"))
    await guard_acompletion(points.agent, acompletion)(MODEL, HELLO, response_format=City)
    [request] = points.payloads("BeforeLlmRequest")
    shown: Any = request["extra"]
    assert shown["response_format"]["json_schema"]["schema"]["description"] == "EVIL"
    changed = Points(fake_gateway, before_llm_request=replace_text("EVIL", "[X]"))
    await guard_acompletion(changed.agent, acompletion)(MODEL, HELLO, response_format=City)
    assert asked[0] is City
    assert asked[1] == json.loads(json.dumps(shown["response_format"]).replace("EVIL", "[X]"))


async def test_a_rewritten_stream_keeps_its_signed_thinking_unless_the_reasoning_changed(
    fake_gateway: FakeGateway,
) -> None:
    thinking = [{"type": "thinking", "thinking": "why"}, {"type": "thinking", "thinking": "", "signature": "s"}]
    pieces = [{"thinking_blocks": [block], "reasoning_content": block["thinking"]} for block in thinking]
    acompletion = stream_of(*((piece, None) for piece in pieces), ({"content": "a secret"}, None), ({}, "stop"))
    signed = [{"type": "thinking", "thinking": "why", "signature": "s"}]
    replies: list[tuple[PointReply, list[Any]]] = [
        (patch(content="[X]"), signed),
        (patch(content="[X]", reasoning="[Y]"), []),
        (block("no"), []),
    ]
    for reply, kept in replies:
        points = Points(fake_gateway, before_response=reply)
        stream = await guard_acompletion(points.agent, acompletion)(MODEL, HELLO, stream=True)
        deltas = [choice.delta async for chunk in stream for choice in chunk.choices]
        assert [part for delta in deltas for part in getattr(delta, "thinking_blocks", None) or ()] == kept


OTHER: list[Any] = [{"role": "user", "content": "another"}]
MCP = {"type": "mcp", "require_approval": "never"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt_id": "p"}, "prompt_id"),
    ({"vector_store_ids": ["v"]}, "vector_store_ids"),
    ({"system": "another"}, "system"),
    ({"contents": OTHER}, "contents"),
    ({"extra_body": {"messages": OTHER}}, "extra_body has 'messages'"),
    ({"extra_body": {"system_instruction": "another"}}, "extra_body has 'system_instruction'"),
    ({"extra_body": {"prediction": "another"}}, "extra_body has 'prediction'"),
    ({"fallbacks": [{"model": MODEL, "messages": []}]}, "fallbacks has 'messages'"),
    ({"fallbacks": [{"messages": OTHER}]}, "fallbacks has 'messages'"),
    ({"fallbacks": [{"model": MODEL, "extra_body": {}}]}, "fallbacks has 'extra_body'"),
    ({"fallbacks": [{"model": MODEL, "prompt_id": "p"}]}, "fallbacks has 'prompt_id'"),
    ({"fallbacks": [{"model": MODEL, "documents": ["another"]}]}, "fallbacks has 'documents'"),
    ({"fallbacks": [{"model": MODEL, "web_search_options": {"city": "another"}}]}, "has 'web_search_options'"),
    ({"fallbacks": [{"model": MODEL, "fallbacks": [{"model": MODEL, "messages": OTHER}]}]}, "has 'fallbacks'"),
    ({"fallbacks": [{"documents": ["another"]}]}, "fallbacks has 'documents'"),
    ({"fallbacks": [{"fallbacks": [{"fallbacks": [{"messages": OTHER}]}]}]}, "has 'fallbacks'"),
    ({"fallbacks": [{"model_list": [{"litellm_params": {"messages": OTHER}}]}]}, "has 'model_list'"),
    ({"fallbacks": [{"model": MODEL, "router_settings_override": {}}]}, "has 'router_settings_override'"),
    ({"model_list": [{"litellm_params": {"user_config": {}}}]}, "model_list has 'user_config'"),
    ({"user_config": {"model_list": []}}, "user_config can't be judged"),
    ({"context_window_fallbacks": [{"one": [{"model": MODEL, "system": "no"}]}]}, "context_window_fallbacks has"),
    ({"model_list": [{"model_name": MODEL, "litellm_params": {"messages": OTHER}}]}, "model_list has 'messages'"),
    ({"tools": [{**MCP, "server_url": "litellm_proxy"}]}, "MCP server 'litellm_proxy' .* LiteLLM may run"),
    ({"tools": [TOOL, {**MCP, "server_url": "litellm_proxy/mcp/git"}]}, "MCP server"),
    ({"tools": [{**MCP, "server_url": "http://localhost:4000/mcp/git"}]}, "MCP server"),
]


@pytest.mark.parametrize(("options", "named"), REFUSED, ids=str)
async def test_what_would_reach_the_model_unjudged_is_refused(
    fake_gateway: FakeGateway, provider: FakeProvider, options: dict[str, Any], named: str
) -> None:
    points = Points(fake_gateway)
    with pytest.raises((TypeError, ValueError), match=named):
        await guard_acompletion(points.agent, litellm.acompletion)(MODEL, HELLO, **options)
    assert (points.names, provider.requests) == ([], [])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            {"fallbacks": [{"one": [{"model": MODEL, "content_policy_fallbacks": []}]}]},
            "has 'content_policy_fallbacks'",
        ),
        ({"router_settings_override": {"fallbacks": [{"one": [{"tools": []}]}]}}, "fallbacks has 'tools'"),
    ],
    ids=str,
)
async def test_what_a_router_would_give_the_model_unjudged_is_refused(
    fake_gateway: FakeGateway, provider: FakeProvider, options: dict[str, Any], named: str
) -> None:
    points = Points(fake_gateway)
    router = Router(model_list=[{"model_name": MODEL, "litellm_params": {"model": MODEL}}])
    with pytest.raises(ValueError, match=named):
        await guard_acompletion(points.agent, router.acompletion)(MODEL, HELLO, **options)
    assert (points.names, provider.requests) == ([], [])


async def test_what_changes_nothing_that_is_judged_passes(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    acompletion = guard_acompletion(Points(fake_gateway).agent, litellm.acompletion)
    fallbacks = [MODEL, {"model": MODEL, "api_key": "key", "temperature": 0.5, "timeout": 5}]
    assert text(await acompletion(MODEL, HELLO, fallbacks=fallbacks)) == "a secret"
    remote = {**MCP, "server_url": "https://mcp.example.com/sse"}
    await acompletion(MODEL, HELLO, tools=[remote])
    assert len(provider.requests) == 2


async def test_arguments_are_given_by_name(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    acompletion = guard_acompletion(Points(fake_gateway).agent, litellm.acompletion)
    with pytest.raises(TypeError, match="by position"):
        await acompletion(MODEL, HELLO, 5)
    with pytest.raises(TypeError, match="must be a list"):
        await acompletion(MODEL)
    assert provider.requests == []


async def test_the_cache_is_judged_too(
    fake_gateway: FakeGateway, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm, "cache", Cache(type=LiteLLMCacheType.LOCAL))
    acompletion = guard_acompletion(Points(fake_gateway).agent, litellm.acompletion)
    assert text(await acompletion(MODEL, HELLO, caching=True)) == "a secret"
    Points(fake_gateway, before_response=block("no"))
    assert text(await acompletion(MODEL, HELLO, caching=True)) == "no"
