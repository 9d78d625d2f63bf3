"""The test kit: the gateway's services in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import grpc
import pytest

from hookgate import (
    BeforeToolCall,
    Capability,
    Context,
    Host,
    HostError,
    Plugin,
    Storage,
    ToolCallReply,
    cancel,
    proceed,
)
from hookgate.testing import CallError, EmittedEvent, LogLine, TestHost, TestPlugin
from hookgate.testing._test_host import services_of

Code = grpc.StatusCode
ALL: Sequence[Capability] = ("storage:read", "storage:write", "log", "emit")


def counter() -> Plugin[None, None]:
    """Counts calls up to two per minute and tenant, and its starts."""
    plugin = Plugin("counter", version="1.0.0", capabilities=ALL)

    @plugin.initialize
    async def initialize(config: None, host: Host) -> Host:
        await host.storage.add("starts", 1)
        return host

    @plugin.before_tool_call
    async def count(call: BeforeToolCall, ctx: Context[None, None, Host]) -> ToolCallReply:
        ctx.log.info(f"call of {call.tool_name}", {"tool_name": call.tool_name})
        if await ctx.storage.add("calls", 1, limit=2, window="minute"):
            return proceed()
        await ctx.emit("calls.full", severity="warn")
        return cancel("FULL", "no more calls")

    @plugin.shutdown
    async def flush(host: Host) -> None:
        await host.storage.put("flushed", "")

    return plugin


async def is_let(plugin: TestPlugin) -> bool:
    return (await plugin.before_tool_call("t")).cancelled is None


async def keys_of(storage: Storage) -> list[str]:
    return [entry.key async for entry in storage.list()]


async def failure_of(call: Any) -> CallError:
    with pytest.raises(CallError) as failure:
        await call
    return failure.value


async def test_replicas_share_a_limit_and_tenants_do_not() -> None:
    host = TestHost()
    one = await TestPlugin.start(counter(), host=host)
    two = await TestPlugin.start(counter(), host=host)
    assert [await is_let(plugin) for plugin in (one, two, one, two)] == [True, True, False, False]
    assert await is_let(two.with_tenant("other"))
    assert await two.storage.get_json("calls") == 2
    host.advance(60_000)
    assert await is_let(one)
    assert await one.storage.get_json("calls") == 1
    assert await host.storage_of("counter").get_json("starts") == 2
    assert host.now == datetime(2026, 1, 1, 0, 1, tzinfo=timezone.utc)


async def test_the_plugins_own_data_is_apart_and_can_be_written_until_the_end() -> None:
    plugin = await TestPlugin.start(counter())
    await is_let(plugin)
    await plugin.shutdown()
    assert await keys_of(plugin.own_storage) == ["flushed", "starts"]
    assert await keys_of(plugin.storage) == ["calls"]


async def test_services_that_are_unavailable_fail_calls_and_starts() -> None:
    plugin = await TestPlugin.start(counter())
    plugin.host.set_available(False)
    for call in (is_let(plugin), TestPlugin.start(counter(), host=plugin.host)):
        failure = await failure_of(call)
        assert failure.code is Code.UNAVAILABLE
        assert "the test made the services unavailable; the write may or may not have happened" in str(failure)
    plugin.host.set_available(True)
    assert await is_let(plugin)


async def test_events_and_log_lines_are_kept() -> None:
    host = TestHost()
    plugin = (await TestPlugin.start(counter(), host=host)).with_tenant("acme")
    for _ in range(3):
        await is_let(plugin)
    assert host.events == (
        EmittedEvent(plugin="counter", tenant="acme", severity="warn", message="", attributes={}, name="calls.full"),
    )
    lines = await host.log_lines(3)
    assert lines[2] == LogLine(
        plugin="counter", tenant="acme", severity="info", message="call of t", attributes={"tool_name": "t"}
    )
    assert len(await host.log_lines()) == 3


async def test_lines_that_a_plugin_logs_at_its_end_are_sent_before_it_has_ended() -> None:
    plugin = Plugin("last", version="1.0.0", capabilities=["log"])
    plugin.before_tool_call(lambda call, ctx: proceed())

    @plugin.initialize
    async def initialize(config: None, host: Host) -> Host:
        return host

    @plugin.shutdown
    async def flush(host: Host) -> None:
        host.log.info("the last words")

    test = await TestPlugin.start(plugin)
    await test.shutdown()
    assert [line.message for line in await test.host.log_lines()] == ["the last words"]


async def test_missing_log_lines_fail_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hookgate.testing._test_host._MAX_WAIT", 0.02)
    with pytest.raises(AssertionError, match=r"the log has 0 lines after 0.02 s, not 1"):
        await TestHost().log_lines(1)


async def test_a_plugin_without_the_capability_has_no_storage_and_one_has_only_its_methods() -> None:
    def reading(*capabilities: Capability) -> Plugin[None, None]:
        plugin = Plugin("reader", version="1.0.0", capabilities=capabilities)

        @plugin.before_tool_call
        async def use(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
            if call.tool_name == "read":
                await ctx.storage.get("k")
            else:
                await ctx.storage.put("k", "")
            return proceed()

        return plugin

    without = await failure_of((await TestPlugin.start(reading())).before_tool_call("read"))
    assert without.code is Code.UNAVAILABLE
    assert str(without).endswith("list the capability in the plugin's `capabilities`")
    reader = await TestPlugin.start(reading("storage:read"))
    await reader.before_tool_call("read")
    refused = await failure_of(reader.before_tool_call("write"))
    assert refused.code is Code.ABORTED
    assert str(refused).endswith("the plugin lacks the capability `storage:write`")


async def test_a_quota_and_a_calls_time_hold_for_the_storage_too() -> None:
    host = TestHost(quota_bytes=10)
    storage = host.storage_of("p", "acme")
    with pytest.raises(HostError) as full:
        await storage.put("k", "x" * 10)
    assert full.value.kind == "quota_exceeded"
    assert (await storage.put("k", "x" * 9)).written

    plugin = Plugin("p", version="1.0.0", capabilities=["storage:read"])

    @plugin.before_tool_call
    async def read(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        await ctx.storage.get("k")
        return proceed()

    services_of(host).on_call = lambda _: asyncio.Event().wait()  # type: ignore[assignment, return-value]
    slow = (await TestPlugin.start(plugin, host=host)).with_time_left(50)
    assert (await failure_of(slow.before_tool_call("t"))).code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)


def test_a_host_can_be_made_outside_of_an_event_loop() -> None:
    host = TestHost()
    storage = host.storage_of("p")

    async def use() -> None:
        await storage.put("k", "v")
        plugin = await TestPlugin.start(counter(), host=host)
        assert await is_let(plugin)

    asyncio.run(use())


def test_pytest_takes_the_kit_for_no_tests() -> None:
    assert not TestHost.__test__
    assert not TestPlugin.__test__
