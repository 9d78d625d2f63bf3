"""A call has a span in the caller's trace, and the handler runs within it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.fake_host import until
from support.gateway_client import served, status_of

from hookgate import (
    BeforeToolCall,
    Context,
    HookPayload,
    HookReply,
    Plugin,
    PluginError,
    ToolCallReply,
    contribute,
    proceed,
)
from hookgate._server import spans

CALL = "hookgate.plugin.v1.PluginService/BeforeToolCall"
TRACEPARENT = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Keeps the spans of the test. A process can set its provider only once, so other tests must not see it."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(spans, "_tracer", provider.get_tracer("hookgate"))
    yield kept
    provider.shutdown()


async def finished(exporter: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    """The spans, which end a moment after the answer."""
    await until(lambda: len(exporter.get_finished_spans()) >= count)
    return list(exporter.get_finished_spans())


def traced_plugin(running: asyncio.Event) -> Plugin[None, None]:
    plugin = Plugin("traced", version="1.0.0")

    @plugin.before_tool_call
    def handle(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        trace.get_tracer("plugin").start_span("inner").end()
        if call.tool_name == "broken":
            raise PluginError.unavailable("no database")
        if call.tool_name == "odd":
            raise RuntimeError("odd input")
        return proceed()

    @plugin.hook("recall")
    async def recall(call: HookPayload, ctx: Context) -> HookReply:
        running.set()
        await asyncio.Event().wait()
        return contribute()

    return plugin


async def test_a_call_has_a_span_in_the_callers_trace(exporter: InMemorySpanExporter) -> None:
    async with served(traced_plugin(asyncio.Event())) as (client, _):
        await client.initialize()
        await finished(exporter, 1)
        exporter.clear()
        await client.tool_call("fine", metadata=[TRACEPARENT])
        inner, call = await finished(exporter, 2)
    assert (call.name, call.kind) == (CALL, trace.SpanKind.SERVER)
    assert call.parent is not None
    assert inner.parent is not None
    assert call.context is not None
    assert call.context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert call.parent.span_id == 0xB7AD6B7169203331
    # Also in a thread.
    assert inner.parent.span_id == call.context.span_id
    assert dict(call.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": CALL,
        "rpc.response.status_code": "OK",
        "hookgate.plugin.name": "traced",
        "hookgate.point": "before_tool_call",
    }


async def test_a_failed_call_and_one_that_is_given_up_say_so(exporter: InMemorySpanExporter) -> None:
    running = asyncio.Event()
    async with served(traced_plugin(running)) as (client, _):
        await client.initialize()
        await status_of(client.tool_call("broken"))
        await status_of(client.tool_call("odd"))
        hook = asyncio.ensure_future(client.on_hook("recall", {}))
        await running.wait()
        hook.cancel()
        _, _, broken, _, odd, given_up = await finished(exporter, 6)

    def facts(span: ReadableSpan) -> tuple[object, ...]:
        attributes = span.attributes or {}
        return span.status.status_code, attributes["rpc.response.status_code"], attributes.get("error.type")

    assert facts(broken) == (trace.StatusCode.ERROR, "UNAVAILABLE", "UNAVAILABLE")
    assert facts(odd) == (trace.StatusCode.UNSET, "ABORTED", None)
    assert facts(given_up) == (trace.StatusCode.UNSET, "CANCELLED", None)
    assert (given_up.attributes or {})["hookgate.hook"] == "recall"
