"""Calls a plugin as a gateway does, over a real socket."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from hookgate import Plugin, Server, serve
from hookgate._address import parse_address
from hookgate._proto import plugin_pb2, plugin_pb2_grpc, types_pb2

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))


def json_bytes(value: object) -> bytes:
    """JSON text in bytes, without the SDK's own rules. A text is taken as JSON."""
    return (value if isinstance(value, str) else json.dumps(value)).encode()


class GatewayClient:
    """A connection to a plugin."""

    def __init__(self, channel: grpc.aio.Channel, plugin: str | None = None) -> None:
        self.channel = channel
        self._stub: Any = plugin_pb2_grpc.PluginServiceStub(channel)
        self._metadata = () if plugin is None else (("hookgate-plugin", plugin),)

    @classmethod
    def connect(
        cls, address: str, plugin: str | None = None, credentials: grpc.ChannelCredentials | None = None
    ) -> GatewayClient:
        target = parse_address(address).target
        if credentials is not None:
            return cls(grpc.aio.secure_channel(target, credentials, _OPTIONS), plugin)
        return cls(grpc.aio.insecure_channel(target, _OPTIONS), plugin)

    def call(
        self, method: str, request: Any, *, timeout: float = 10.0, metadata: Sequence[tuple[str, str]] = ()
    ) -> grpc.aio.UnaryUnaryCall[Any, Any]:
        call: grpc.aio.UnaryUnaryCall[Any, Any] = getattr(self._stub, method)(
            request, timeout=timeout, metadata=(*self._metadata, *metadata)
        )
        return call

    async def describe(self) -> plugin_pb2.DescribeResponse:
        answer: plugin_pb2.DescribeResponse = await self.call("Describe", plugin_pb2.DescribeRequest())
        return answer

    async def initialize(
        self, digest: str = "d", config: object = None, gateway: str = "gateway-1", **more: Any
    ) -> plugin_pb2.InitializeResponse:
        request = plugin_pb2.InitializeRequest(
            config=json_bytes({} if config is None else config),
            config_digest=digest,
            gateway_instance_id=gateway,
            **more,
        )
        answer: plugin_pb2.InitializeResponse = await self.call("Initialize", request)
        return answer

    async def release(self, gateway: str = "gateway-1", digest: str = "d") -> None:
        await self.call("Release", plugin_pb2.ReleaseRequest(gateway_instance_id=gateway, config_digest=digest))

    def tool_call(
        self,
        tool_name: str = "t",
        args: object = None,
        *,
        digest: str = "d",
        tenant_config: object = None,
        run_tool: bool = False,
        timeout: float = 10.0,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> grpc.aio.UnaryUnaryCall[Any, plugin_pb2.BeforeToolCallResponse]:
        """Calls at `before_tool_call`."""
        call = call_of(digest, tenant_config, run_tool=run_tool)
        payload = types_pb2.BeforeToolCallPayload(tool_name=tool_name, args=json_bytes({} if args is None else args))
        request = plugin_pb2.BeforeToolCallRequest(call=call, payload=payload)
        return self.call("BeforeToolCall", request, timeout=timeout, metadata=metadata)

    async def message(self, *args: Any, **named: Any) -> str:
        """The message of the cancel at `before_tool_call`."""
        reply = await self.tool_call(*args, **named)
        assert reply.WhichOneof("verdict") == "cancel", reply
        return reply.cancel.message

    async def on_hook(self, hook: str, body: object) -> plugin_pb2.OnHookResponse:
        payload = types_pb2.HookPayload(hook=hook, body=json_bytes(body))
        request = plugin_pb2.OnHookRequest(call=call_of("d"), payload=payload)
        answer: plugin_pb2.OnHookResponse = await self.call("OnHook", request)
        return answer


def call_of(digest: str, tenant_config: object = None, *, run_tool: bool = False) -> plugin_pb2.Call:
    context = plugin_pb2.CallContext(tenant="acme", operator="op", request_id="r-1")
    call = plugin_pb2.Call(context=context, config_digest=digest, run_tool=run_tool)
    if tenant_config is not None:
        call.tenant_config = json_bytes(tenant_config)
        call.tenant_config_digest = json.dumps(tenant_config)
    return call


async def status_of(call: Awaitable[object]) -> tuple[str, str]:
    """The status of a call, and its message."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    return "OK", ""


async def failure(call: Awaitable[object]) -> tuple[str, str]:
    """The status of a call that fails, and its message."""
    status = await status_of(call)
    assert status[0] != "OK"
    return status


@asynccontextmanager
async def served(
    plugins: Plugin[Any, Any] | Sequence[Plugin[Any, Any]], address: str | None = None, **options: Any
) -> AsyncIterator[tuple[GatewayClient, Server]]:
    """Serves plugins, and connects to them."""
    with tempfile.TemporaryDirectory(prefix="hookgate-test-") as folder:
        where = address or f"unix://{folder}/s"
        server = await serve(plugins, where, **{"signals": False, "drain_ms": 5_000, **options})
        client = GatewayClient.connect(server.address)
        try:
            yield client, server
        finally:
            await client.channel.close()
            await server.stop()
