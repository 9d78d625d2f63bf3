"""The hooks of LiteLLM's proxy, with a provider of our own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import litellm
import pytest
from litellm.caching.dual_cache import DualCache
from litellm.proxy import utils
from litellm.proxy._types import UserAPIKeyAuth
from litellm.types.utils import EmbeddingResponse, ImageResponse
from support.fake_gateway import FakeGateway
from support.litellm_provider import HELLO, MODEL, FakeProvider, delta_text, text, use_provider
from support.points import Points, block, hang, outage, patch, replace_text

from hookgate.adapters.litellm import ProxyGuard, RefusedError, find_gateway_error


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> FakeProvider:
    return use_provider(monkeypatch)


async def test_the_guard_of_the_proxy_is_refused_in_the_sdk(
    fake_gateway: FakeGateway, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("litellm.proxy.utils", "litellm.proxy.proxy_server"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(litellm, "callbacks", [ProxyGuard(Points(fake_gateway).agent)])
    with pytest.raises(Exception, match="use guard_acompletion"):
        await litellm.acompletion(MODEL, HELLO)
    assert provider.requests == []


async def call_proxy(guard: ProxyGuard, provider: FakeProvider, **data: Any) -> Any:
    """A chat completion through the hooks, in the order of the proxy."""
    data = {"model": MODEL, "messages": HELLO, **data}
    data = await guard.async_pre_call_hook(None, None, data, "acompletion") or data
    response: Any = await litellm.acompletion(**data)
    if data.get("stream"):
        return [chunk async for chunk in guard.async_post_call_streaming_iterator_hook(None, response, data)]
    return await guard.async_post_call_success_hook(data, None, response) or response


async def test_the_proxy_is_guarded(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    points = Points(fake_gateway, before_llm_request=patch(text="[X]"), before_response=replace_text("secret", "[Y]"))
    guard = ProxyGuard(points.agent, context=lambda user: {"session_id": str(user)})
    assert text(await call_proxy(guard, provider)) == "a [Y]"
    assert "".join(map(delta_text, await call_proxy(guard, provider, stream=True))) == "a [Y]"
    assert provider.messages[1]["content"] == "[X]"
    assert set(points.sessions()) == {"None"}


async def test_plugins_see_nothing_that_the_proxy_adds(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    points = Points(fake_gateway)
    added: dict[str, Any] = {
        "guardrail_to_apply": object(),
        "proxy_server_request": {"headers": {}},
        "secret_fields": {"raw": "key"},
    }
    added |= {"session_id": "s-1", "trace_id": "t-1", "user_id": "u-1"}
    data = {"model": MODEL, "messages": HELLO, "metadata": {"user_api_key": "key"}, "_own": "key", **added}
    await ProxyGuard(points.agent).async_pre_call_hook(None, None, data, "acompletion")
    assert "extra" not in points.payloads("BeforeLlmRequest")[0]


@pytest.mark.parametrize("point", ["before_llm_request", "before_response"])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_the_proxy_refuses_with_a_status(
    fake_gateway: FakeGateway,
    provider: FakeProvider,
    point: str,
    is_streamed: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for reply, status, code in ((block("stop", "run"), 403, "BLOCKED"), (outage, 503, "PLUGIN_UNAVAILABLE")):
        guard = ProxyGuard(Points(fake_gateway, **{point: reply}).agent)
        with pytest.raises(RefusedError) as raised:
            await call_proxy(guard, provider, stream=is_streamed)
        assert (raised.value.status_code, raised.value.code) == (status, code)
        assert "unix" not in str(raised.value)
        assert find_gateway_error(raised.value) is not None
    assert "unix:///p" in caplog.text
    assert len(provider.requests) == (0 if point == "before_llm_request" else 2)


async def test_a_stream_of_the_proxy_is_held(fake_gateway: FakeGateway, provider: FakeProvider) -> None:
    guard = ProxyGuard(Points(fake_gateway, before_response=hang).agent)
    response = await litellm.acompletion(MODEL, HELLO, stream=True)
    hook = guard.async_post_call_streaming_iterator_hook(None, response, {"messages": HELLO})
    first = asyncio.ensure_future(anext(hook))
    assert await asyncio.to_thread(fake_gateway.arrived.acquire, timeout=10)
    assert not first.done()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_routes_that_are_not_judged_are_refused_unless_they_are_named(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway)
    guard = ProxyGuard(points.agent, unjudged=["aresponses"])
    for call_type in ("embedding", "aembedding", "aresponses"):
        assert await guard.async_pre_call_hook(None, None, {}, call_type) is None
    refused = ("responses", "anthropic_messages", "atext_completion", "pass_through_endpoint", "_arealtime", "new")
    for call_type in (*refused, "call_mcp_tool", "acreate_batch"):
        with pytest.raises(RefusedError, match=call_type):
            await guard.async_pre_call_hook(None, None, {}, call_type)
    data: dict[str, Any]
    for data in ({"stream": True, "n": 2}, {"prompt_id": "p"}, {"extra_body": {"messages": []}}):
        with pytest.raises(RefusedError) as raised:
            await guard.async_pre_call_hook(None, None, data, "acompletion")
        assert raised.value.status_code == 400
    assert points.names == []
    with pytest.raises(ValueError, match="chat completions"):
        ProxyGuard(points.agent, unjudged=["acompletion"])

    async def stream() -> AsyncIterator[bytes]:
        yield b"event"

    data = {"litellm_logging_obj": SimpleNamespace(call_type="aresponses"), "messages": []}
    passed: list[Any] = [chunk async for chunk in guard.async_post_call_streaming_iterator_hook(None, stream(), data)]
    assert passed == [b"event"]
    with pytest.raises(RefusedError):
        await anext(guard.async_post_call_streaming_iterator_hook(None, stream(), {"messages": []}))


async def test_an_answer_of_no_known_route_passes_only_if_it_is_none_of_a_chat(fake_gateway: FakeGateway) -> None:
    guard = ProxyGuard(Points(fake_gateway).agent, unjudged=["aresponses"])
    for answer in (EmbeddingResponse(), ImageResponse()):
        assert await guard.async_post_call_success_hook({}, None, answer) is None
    answered = {"output": "a secret"}
    data = {"litellm_logging_obj": SimpleNamespace(call_type="aresponses")}
    assert await guard.async_post_call_success_hook(data, None, answered) is None
    for unknown in ({}, {"litellm_logging_obj": SimpleNamespace(call_type="responses")}):
        with pytest.raises(RefusedError, match="can't be judged"):
            await guard.async_post_call_success_hook(unknown, None, answered)


def test_a_subclass_is_refused() -> None:
    with pytest.raises(TypeError, match="can't be subclassed"):
        type("Own", (ProxyGuard,), {})


async def test_the_hooks_are_those_that_the_proxy_calls(
    fake_gateway: FakeGateway, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = Points(fake_gateway, before_llm_request=patch(text="[X]"), before_response=replace_text("secret", "[Y]"))
    monkeypatch.setattr(litellm, "callbacks", [ProxyGuard(points.agent)])
    cache: Any = DualCache()
    proxy = utils.ProxyLogging(user_api_key_cache=cache)
    user = UserAPIKeyAuth(api_key="key")
    options = {"metadata": {"disable_global_guardrails": True}, "disable_global_guardrails": True}
    data: Any = {"model": MODEL, "messages": HELLO, **options}
    data = await proxy.pre_call_hook(user_api_key_dict=user, data=data, call_type="acompletion")
    assert data["messages"][1]["content"] == "[X]"
    response: Any = await litellm.acompletion(MODEL, HELLO)
    judged = await proxy.post_call_success_hook(data=data, response=response, user_api_key_dict=user)
    assert text(judged) == "a [Y]"
    streamed: Any = await litellm.acompletion(MODEL, HELLO, stream=True)
    hook = proxy.async_post_call_streaming_iterator_hook(
        response=streamed, user_api_key_dict=user, request_data={"messages": HELLO}
    )
    assert "".join([delta_text(chunk) async for chunk in hook]) == "a [Y]"
    Points(fake_gateway, before_llm_request=outage)
    with pytest.raises(RefusedError):
        await proxy.pre_call_hook(user_api_key_dict=user, data={"messages": HELLO}, call_type="acompletion")
