"""Serving plugins: addresses, health, reflection, and the stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]
from support.certificates import Ca
from support.fake_host import until
from support.gateway_client import GatewayClient, failure, served, status_of

from hookgate import BeforeToolCall, Context, Plugin, TlsOptions, ToolCallReply, proceed, serve
from hookgate._address import parse_address


async def pass_on(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
    return proceed()


def plugin_named(name: str, handler: Any = pass_on) -> Plugin[None, None]:
    plugin = Plugin(name, version="1.0.0")
    plugin.before_tool_call(handler)
    return plugin


async def test_several_plugins_share_an_address_and_each_call_names_its_own() -> None:
    async with served([plugin_named("one"), plugin_named("two")]) as (_, server):

        async def describe(name: str | None) -> str:
            client = GatewayClient.connect(server.address, name)
            try:
                return (await client.describe()).name
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"
            finally:
                await client.channel.close()

        assert [await describe(name) for name in ("one", "two", "three", None)] == [
            "one",
            "two",
            "NOT_FOUND: no plugin `three` is served here, only `one`, `two`",
            "NOT_FOUND: the metadata `hookgate-plugin` must name one of the plugins that are served here: `one`, `two`",
        ]
        with pytest.raises(ValueError, match="two of the plugins are named `one`"):
            await serve([plugin_named("one"), plugin_named("one")], server.address)
        with pytest.raises(ValueError, match="there is no plugin"):
            await serve([], server.address)


async def test_a_single_plugin_answers_calls_that_name_none_but_not_those_for_another() -> None:
    async with served(plugin_named("one")) as (client, server):
        assert (await client.describe()).name == "one"
        other = GatewayClient.connect(server.address, "two")
        assert (await failure(other.describe()))[0] == "NOT_FOUND"
        await other.channel.close()


async def test_a_unix_socket_is_for_user_and_group_a_stale_one_is_replaced_and_one_in_use_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "p.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(OSError, match=f"can't listen at unix://{path}: another process listens there"):
            await serve(plugin_named("p"), f"unix://{path}", signals=False)
    assert path.is_socket()
    async with served(plugin_named("p"), f"unix://{path}") as (client, _):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert (await client.describe()).name == "p"
    assert not path.exists()
    with pytest.raises(OSError, match="can't listen at"):
        await serve(plugin_named("p"), f"unix://{tmp_path}/none/p.sock", signals=False)


async def health_of(server_address: str) -> int:
    async with grpc.aio.insecure_channel(parse_address(server_address).target) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        return int(answer.status)


async def test_health_changes_at_the_stop_which_finishes_the_calls_in_flight(tmp_path: Path) -> None:
    running, let_go, flushed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    path = tmp_path / "p.sock"

    async def wait(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        running.set()
        await let_go.wait()
        assert not flushed.is_set()
        return proceed()

    plugin = plugin_named("p", wait)

    @plugin.shutdown
    async def stop(state: None) -> None:
        flushed.set()

    async with served(plugin, f"unix://{path}") as (client, server):
        assert await health_of(server.address) == health_pb2.HealthCheckResponse.SERVING
        watched = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watched.read()).status == health_pb2.HealthCheckResponse.SERVING
        await client.initialize()
        call = client.tool_call()
        await running.wait()
        stopping = asyncio.ensure_future(server.stop())
        assert (await watched.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await until(lambda: not path.exists())
        # A successor listens while the old process still finishes its calls, and keeps its socket.
        async with served(plugin_named("successor"), f"unix://{path}") as (next_client, _):
            let_go.set()
            assert (await call).WhichOneof("verdict") == "continue"
            await asyncio.wait_for(stopping, 10)
            await server.stopped()
            assert flushed.is_set()
            assert (await next_client.describe()).name == "successor"
            fresh = GatewayClient.connect(f"unix://{path}")
            assert (await fresh.describe()).name == "successor"
            await fresh.channel.close()


async def test_a_call_that_does_not_end_is_given_up_after_the_drain(caplog: pytest.LogCaptureFixture) -> None:
    running = asyncio.Event()

    async def hang(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        running.set()
        await asyncio.Event().wait()
        return proceed()

    async with served(plugin_named("p", hang), drain_ms=50) as (client, server):
        await client.initialize()
        call = client.tool_call()
        await running.wait()
        await server.stop()
        assert (await failure(call))[0] in ("CANCELLED", "UNAVAILABLE")
        assert any(record.message.startswith("calls are still in flight") for record in caplog.records)


async def test_new_calls_are_refused_after_the_stop() -> None:
    async with served(plugin_named("p")) as (client, server):
        await client.initialize()
        await asyncio.gather(server.stop(), server.stop())
        assert (await status_of(client.tool_call(timeout=2)))[0] == "UNAVAILABLE"


async def test_tcp_serves_on_a_free_port_and_shares_it_only_if_told_to() -> None:
    async with served(plugin_named("p"), "http://127.0.0.1:0") as (client, server):
        assert server.address.startswith("http://127.0.0.1:")
        assert not server.address.endswith(":0")
        assert (await client.describe()).name == "p"
        with pytest.raises(OSError, match=f"can't listen at {server.address}: "):
            await serve(plugin_named("p"), server.address, signals=False)
    async with (
        served(plugin_named("p"), "http://127.0.0.1:0", reuse_port=True) as (_, server),
        served(plugin_named("p"), server.address, reuse_port=True) as (_, other),
    ):
        assert other.address == server.address


async def test_tls_needs_a_certificate_and_may_ask_for_one(tmp_path: Path) -> None:
    ca = Ca(tmp_path)
    pair, client_pair = ca.issue("localhost"), ca.issue("gateway")
    tls = TlsOptions(certificate=pair.certificate, key=pair.key)
    async with served(plugin_named("p"), "https://localhost:0", tls=tls) as (_, server):
        trusting = GatewayClient.connect(server.address, "p", grpc.ssl_channel_credentials(ca.certificate))
        assert (await trusting.describe()).name == "p"
        await trusting.channel.close()
    strict = TlsOptions(certificate=pair.certificate, key=pair.key, client_ca=ca.certificate)
    async with served(plugin_named("p"), "https://localhost:0", tls=strict) as (_, server):
        unknown = GatewayClient.connect(server.address, "p", grpc.ssl_channel_credentials(ca.certificate))
        known = GatewayClient.connect(
            server.address,
            "p",
            grpc.ssl_channel_credentials(ca.certificate, client_pair.key, client_pair.certificate),
        )
        assert (await known.describe()).name == "p"
        assert (await failure(unknown.describe()))[0] == "UNAVAILABLE"
        await known.channel.close()
        await unknown.channel.close()
    with pytest.raises(ValueError, match="https://localhost:0 needs a certificate and a key"):
        await serve(plugin_named("p"), "https://localhost:0")
    with pytest.raises(ValueError, match="a certificate and a key need an https:// address"):
        await serve(plugin_named("p"), "http://localhost:0", tls=tls)


@pytest.mark.parametrize("address", ["/tmp/p.sock", "unix://p.sock", "unix:///", "http://a/b", "ftp://a", ""])
async def test_an_address_is_unix_http_or_https(address: str) -> None:
    with pytest.raises(ValueError, match="is neither unix:///path, http://host:port nor https://host:port"):
        await serve(plugin_named("p"), address)


async def test_reflection_lists_the_services() -> None:
    async with served(plugin_named("p")) as (client, _):
        stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        stream = stub.ServerReflectionInfo()
        await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = [service.name for service in (await stream.read()).list_services_response.service]
        assert "hookgate.plugin.v1.PluginService" in names
        symbol = "hookgate.plugin.v1.PluginService"
        await stream.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
        assert (await stream.read()).file_descriptor_response.file_descriptor_proto
        await stream.done_writing()


async def test_sigterm_stops_the_server() -> None:
    server = await serve(plugin_named("p"), "http://127.0.0.1:0")
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(server.stopped(), 10)


async def test_the_largest_call_is_answered() -> None:
    async def size(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        assert isinstance(call.args, str)
        return proceed({"args": len(call.args)})

    async with served(plugin_named("p", size)) as (client, _):
        await client.initialize()
        reply = await client.tool_call("t", '"' + "x" * 16_500_000 + '"', timeout=30)
        assert reply.modify.args == b"16500000"
