"""Calls of a plugin: which instance answers, what handlers get, and what their replies become."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Literal

import grpc.aio
import pytest
from pydantic import BaseModel, field_validator
from support.gateway_client import GatewayClient, call_of, failure, served, status_of

from hookgate import (
    BeforeToolCall,
    Context,
    Host,
    HostError,
    Notice,
    Plugin,
    PluginError,
    ToolCallReply,
    answer,
    cancel,
    proceed,
)
from hookgate._proto import plugin_pb2, types_pb2

UNKNOWN = ("FAILED_PRECONDITION", "no instance for this config digest")


def plugin_of(handler: Any, **options: Any) -> Plugin[Any, Any]:
    """A plugin that answers at `before_tool_call`."""
    plugin: Plugin[Any, Any] = Plugin("p", version="1.0.0", **options)
    plugin.before_tool_call(handler)
    return plugin


async def pass_on(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
    return proceed()


async def test_a_call_with_an_unknown_digest_is_answered_not_initialized() -> None:
    async with served(plugin_of(pass_on)) as (client, _):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await client.tool_call()
        assert (raised.value.code().name, raised.value.details()) == UNKNOWN
        assert ("hookgate-reason", "NOT_INITIALIZED") in tuple(raised.value.trailing_metadata())


class Numbered(BaseModel, extra="forbid"):
    n: int


async def test_each_call_gets_the_configuration_and_the_state_of_its_digest() -> None:
    plugin = Plugin("p", version="1.0.0", config=Numbered)

    @plugin.initialize
    async def start(config: Numbered, host: Host) -> int:
        return config.n * 2

    @plugin.before_tool_call
    async def show(call: BeforeToolCall, ctx: Context[Numbered, None, int]) -> ToolCallReply:
        return cancel("N", f"{ctx.config.n} {ctx.state}")

    async with served(plugin) as (client, _):
        await asyncio.gather(client.initialize("one", {"n": 1}), client.initialize("two", {"n": 2}))
        messages = await asyncio.gather(*(client.message(digest=digest) for digest in ("one", "two", "one")))
        assert messages == ["1 2", "2 4", "1 2"]


async def test_gateways_share_a_start_and_the_last_release_flushes_after_the_last_call() -> None:
    events: list[str] = []
    running, let_go = asyncio.Event(), asyncio.Event()
    plugin = Plugin("p", version="1.0.0")

    @plugin.initialize
    async def start(config: None, host: Host) -> None:
        events.append("start")
        await asyncio.sleep(0)

    @plugin.before_tool_call
    async def wait(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        if call.tool_name == "slow":
            running.set()
            await let_go.wait()
            events.append("answered")
        return proceed()

    @plugin.shutdown
    def stop(state: None) -> None:
        events.append("shutdown")

    async with served(plugin) as (client, _):
        await asyncio.gather(client.initialize(gateway="g-1"), client.initialize(gateway="g-2"))
        call = client.tool_call("slow")
        await running.wait()
        await client.release("g-1")
        released = asyncio.ensure_future(client.release("g-2"))
        await until_unknown(client)
        assert events == ["start"]
        let_go.set()
        await asyncio.gather(call, released)
        assert events == ["start", "answered", "shutdown"]


async def until_unknown(client: GatewayClient) -> None:
    """Waits until the plugin has taken the release."""
    while (found := await status_of(client.tool_call())) == ("OK", ""):
        pass
    assert found == UNKNOWN


async def test_an_instance_whose_gateway_left_while_it_started_is_shut_down() -> None:
    starting, let_go, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
    plugin = plugin_of(pass_on)

    @plugin.initialize
    async def start(config: None, host: Host) -> None:
        starting.set()
        await let_go.wait()

    @plugin.shutdown
    async def stop(state: None) -> None:
        stopped.set()

    async with served(plugin) as (client, _):
        initialized = asyncio.ensure_future(client.initialize(gateway="g-1"))
        await starting.wait()
        await client.release("g-1")
        let_go.set()
        await initialized
        await asyncio.wait_for(stopped.wait(), 10)
        assert await failure(client.tool_call()) == UNKNOWN


async def test_a_start_goes_on_when_the_gateway_stops_waiting_and_is_not_repeated() -> None:
    starts: list[str] = []
    starting, let_go = asyncio.Event(), asyncio.Event()
    plugin = plugin_of(pass_on)

    @plugin.initialize
    async def start(config: None, host: Host) -> None:
        starts.append("start")
        starting.set()
        await let_go.wait()

    async with served(plugin) as (client, _):
        request = plugin_pb2.InitializeRequest(config=b"{}", config_digest="d", gateway_instance_id="g-1")
        given_up = client.call("Initialize", request)
        await starting.wait()
        given_up.cancel()
        let_go.set()
        await client.initialize(gateway="g-1")
        await client.tool_call()
        assert starts == ["start"]


async def test_the_configuration_used_longest_ago_makes_room_for_a_seventeenth(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopped: list[int] = []
    plugin = plugin_of(pass_on, config=Numbered)

    @plugin.initialize
    async def start(config: Numbered, host: Host) -> int:
        return config.n

    @plugin.shutdown
    async def stop(state: int) -> None:
        stopped.append(state)

    async with served(plugin) as (client, _):
        for n in range(16):
            await client.initialize(str(n), {"n": n}, f"gateway-{n}")
        await client.tool_call(digest="0")
        await client.initialize("16", {"n": 16})
        assert await failure(client.tool_call(digest="1")) == UNKNOWN
        for digest in ("0", "2", "16"):
            await client.tool_call(digest=digest)
        assert stopped == [1]
        assert any("too many configurations" in record.message for record in caplog.records)


class Secret(BaseModel, extra="forbid"):
    key: str
    even: int = 2

    @field_validator("even")
    @classmethod
    def check_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"key": 7, "even": 3}, "config: field `key`: Input should be a valid string; field `even`: is refused"),
        ({"key": "abcd", "more": "SECRET"}, "config: field `more`: Extra inputs are not permitted"),
        ({"key": "abc"}, "config field `key`: at least 4 characters"),
        ('{"key": "abcd", "even": NaN}', "config: the value is not JSON: NaN is no number"),
    ],
)
async def test_a_configuration_that_does_not_fit_is_refused_by_its_field_without_its_value(
    config: object, message: str
) -> None:
    plugin = plugin_of(pass_on, config=Secret)

    @plugin.initialize
    async def start(config: Secret, host: Host) -> None:
        if len(config.key) < 4:
            raise PluginError.config("key", "at least 4 characters")

    async with served(plugin) as (client, _):
        assert await failure(client.initialize("d", config)) == ("INVALID_ARGUMENT", message)


async def test_a_failed_start_is_repeated_at_the_next_initialize() -> None:
    failures = [PluginError.unavailable("no database"), RuntimeError("boom")]
    plugin = plugin_of(pass_on)

    @plugin.initialize
    async def start(config: None, host: Host) -> None:
        if failures:
            raise failures.pop()

    async with served(plugin) as (client, _):
        assert await failure(client.initialize()) == ("ABORTED", "RuntimeError: boom")
        assert await failure(client.initialize()) == ("UNAVAILABLE", "no database")
        await client.initialize()
        await client.tool_call()


def raise_(error: BaseException) -> Any:
    raise error


def host_unavailable() -> Any:
    try:
        raise HostError("unavailable", "no gateway")
    except HostError as error:
        raise RuntimeError("no quota") from error


REPLIES: dict[str, Any] = {
    "forgotten": lambda: None,
    "forged": lambda: {"cancelled": None},
    "thrown": lambda: raise_(RuntimeError("x" * 5000)),
    "exit": lambda: raise_(SystemExit(1)),
    "unavailable": lambda: raise_(PluginError.unavailable("no database")),
    "invalid": lambda: raise_(PluginError.invalid("no such city")),
    "host": host_unavailable,
    "unknown": lambda: proceed({"arg": 1}),
    "mistyped": lambda: proceed({"tool_name": 7}),
    "no JSON": lambda: proceed({"args": {"at": object()}}),
    "no patch": lambda: proceed(None),  # type: ignore[call-overload]
    "cancelled": lambda: raise_(asyncio.CancelledError()),
}

STATUSES = {
    "forgotten": ("INTERNAL", "before_tool_call returned None: return what proceed(), cancel() or answer() makes"),
    "forged": (
        "INTERNAL",
        "before_tool_call returned a value of the type dict: return what proceed(), cancel() or answer() makes",
    ),
    "thrown": ("ABORTED", f"RuntimeError: {'x' * 1007}…"),
    "exit": ("ABORTED", "SystemExit: 1"),
    "unavailable": ("UNAVAILABLE", "no database"),
    "invalid": ("INVALID_ARGUMENT", "no such city"),
    "host": ("UNAVAILABLE", "RuntimeError: no quota"),
    "unknown": ("ABORTED", "TypeError: a patch at before_tool_call has no member 'arg': it has tool_name, args, extra"),
    "mistyped": ("ABORTED", "TypeError: `tool_name` of the patch must be a text, not of the type int"),
    "no JSON": ("ABORTED", "JsonError: args.at is of the type object, which JSON doesn't have"),
    "no patch": ("ABORTED", "TypeError: the patch of `proceed` is None: leave it out, or give a dict"),
    "cancelled": ("ABORTED", "CancelledError: "),
}


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_an_error_becomes_a_status_and_a_reply_that_nothing_made_is_an_error(kind: str) -> None:
    async def in_loop(call: BeforeToolCall, ctx: Context) -> Any:
        return REPLIES[call.tool_name]()

    def in_thread(call: BeforeToolCall, ctx: Context) -> Any:
        return REPLIES[call.tool_name]()

    async with served(plugin_of(in_loop if kind == "coroutine" else in_thread)) as (client, _):
        await client.initialize()
        names = [name for name in REPLIES if kind == "coroutine" or name != "cancelled"]
        found = {name: await failure(client.tool_call(name)) for name in names}
        assert found == {name: STATUSES[name] for name in names}


async def test_a_patch_where_the_plugin_only_reads_is_an_error() -> None:
    plugin = Plugin("p", version="1.0.0")

    @plugin.before_tool_call(access="read")
    async def patch(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return cancel("NO", "m", patch={"args": 1}) if call.tool_name == "cancel" else proceed({"args": 1})

    async with served(plugin) as (client, _):
        await client.initialize()
        status, message = await failure(client.tool_call())
        assert status == "INTERNAL"
        assert message.endswith("returned a patch, but the plugin offers it with access `read`")
        assert await client.message("cancel") == "m"


async def test_large_integers_null_and_half_surrogates_pass_as_the_protocol_wants_them() -> None:
    async def patch(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        assert isinstance(call.args, dict)
        return proceed({"tool_name": "to\ud83d", "args": {**call.args, "cut": "a\ud83d"}})

    async with served(plugin_of(patch)) as (client, _):
        await client.initialize()
        reply = await client.tool_call("t", '{"id":9007199254740993,"none":null,"e":1e2}')
        assert reply.modify.args.decode() == '{"id":9007199254740993,"none":null,"e":100.0,"cut":"a\ufffd"}'
        assert reply.modify.tool_name == "to\ufffd"


async def test_a_coroutine_learns_the_time_left_and_is_cancelled_when_the_gateway_gives_up() -> None:
    seen: list[float | None] = []
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        seen.append(ctx.time_left_ms)
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return proceed()

    async with served(plugin_of(wait)) as (client, _):
        await client.initialize()
        call = client.tool_call(timeout=30)
        await running.wait()
        call.cancel()
        await asyncio.wait_for(cancelled.wait(), 10)
        assert seen[0] is not None
        # gRPC rounds a time-out up.
        assert 10_000 < seen[0] <= 31_000


async def test_a_thread_learns_that_the_gateway_gave_up_and_its_instance_lives_as_long_as_it_runs() -> None:
    running, ended, stopped = threading.Event(), threading.Event(), threading.Event()
    seen: list[bool] = []

    def wait(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        if call.tool_name != "slow":
            return proceed()
        running.set()
        while not ctx.cancelled:
            ended.wait(0.005)
        ended.wait(10)
        seen.append(stopped.is_set())
        return proceed()

    plugin = plugin_of(wait)

    @plugin.shutdown
    async def stop(state: None) -> None:
        stopped.set()

    async with served(plugin) as (client, _):
        await client.initialize()
        call = client.tool_call("slow")
        await asyncio.to_thread(running.wait)
        call.cancel()
        released = asyncio.ensure_future(client.release())
        await until_unknown(client)
        ended.set()
        await released
        assert seen == [False]
        assert stopped.is_set()


async def test_calls_run_at_the_same_time_in_threads_and_in_the_loop() -> None:
    meeting = threading.Barrier(20, timeout=10)

    def meet(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        meeting.wait()
        return cancel("MET", call.tool_name)

    async with served(plugin_of(meet)) as (client, _):
        await client.initialize()
        names = [str(number) for number in range(20)]
        assert await asyncio.gather(*(client.message(name) for name in names)) == names


async def test_the_context_tells_the_caller_and_what_to_forward() -> None:
    seen: list[Context] = []

    async def keep(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        seen.append(ctx)
        return proceed()

    async with served(plugin_of(keep)) as (client, _):
        await client.initialize()
        metadata = [("traceparent", "00-1-2-01"), ("hookgate-depth", "2")]
        await client.tool_call(metadata=metadata)
        await client.tool_call()
        first, second = seen
        assert (first.tenant, first.operator, first.request_id) == ("acme", "op", "r-1")
        assert (first.caller.tenant, first.caller.labels, first.caller.session_id) == ("acme", {}, None)
        assert (first.traceparent, first.tracestate, first.depth) == ("00-1-2-01", None, 2)
        assert (second.traceparent, second.depth, second.chain_result) == (None, 0, None)


async def test_a_tenant_configuration_is_checked_and_gets_its_defaults() -> None:
    class TenantConfig(BaseModel, extra="forbid"):
        mode: Literal["a", "b"] = "a"

    async def show(call: BeforeToolCall, ctx: Context[None, TenantConfig]) -> ToolCallReply:
        return cancel("MODE", ctx.tenant_config.mode)

    async with served(plugin_of(show, tenant_config=TenantConfig)) as (client, _):
        await client.initialize()
        configs: list[Any] = [None, {"mode": "b"}, {}, {"mode": "b"}]
        assert [await client.message(tenant_config=config) for config in configs] == ["a", "b", "a", "b"]
        status, message = await failure(client.tool_call(tenant_config={"mode": "c"}))
        assert (status, message) == (
            "INVALID_ARGUMENT",
            "tenant-level config: field `mode`: Input should be 'a' or 'b'",
        )


async def test_notices_and_answers_reach_the_gateway() -> None:
    async def reply(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        notices = [Notice("warn", "careful", code="W", details={"n": 2**60}), Notice("info", "fine")]
        return answer({"known": None}, "cached", notices=notices)

    async with served(plugin_of(reply)) as (client, _):
        await client.initialize()
        answered = await client.tool_call()
        assert (answered.cancel.result, answered.cancel.message) == (b'{"known":null}', "cached")
        warn, info = answered.notices
        assert (warn.kind, warn.code, warn.details) == (types_pb2.NOTICE_KIND_WARN, "W", b'{"n":1152921504606846976}')
        assert (info.HasField("code"), info.details) == (False, b"")


async def test_a_call_without_a_context_or_a_payload_is_invalid() -> None:
    async with served(plugin_of(pass_on)) as (client, _):
        await client.initialize()
        empty = plugin_pb2.BeforeToolCallRequest()
        assert await failure(client.call("BeforeToolCall", empty)) == ("INVALID_ARGUMENT", "`call.context` is missing")
        without = plugin_pb2.BeforeToolCallRequest(call=call_of("d"))
        assert await failure(client.call("BeforeToolCall", without)) == ("INVALID_ARGUMENT", "`payload` is missing")
        assert await failure(client.initialize("")) == ("INVALID_ARGUMENT", "`config_digest` is missing")
