"""The contract's gRPC service over one or several plugins. Each call names its plugin in its metadata."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

from hookgate._proto import plugin_pb2
from hookgate._server.plugin_host import PluginHost
from hookgate._server.spans import in_call_span, is_tracing
from hookgate._server.status import StatusError
from hookgate.context import CallInfo
from hookgate.errors import shorten, status_of
from hookgate.point import PointName

SERVICE: Final = plugin_pb2.DESCRIPTOR.services_by_name["PluginService"]

_PLUGIN: Final = "hookgate-plugin"
"""The metadata that names the plugin."""

_Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
_ServicerContext: TypeAlias = grpc.aio.ServicerContext[Any, Any]
_Answer: TypeAlias = Callable[[PluginHost, Any, CallInfo], Awaitable[bytes]]


class _CallInfo:
    """The info of a call of grpcio. Most plugins need no deadline, so it is asked for when it is first read."""

    __slots__ = ("_context", "metadata")

    def __init__(self, context: _ServicerContext, metadata: _Metadata) -> None:
        self._context = context
        self.metadata = metadata

    @property
    def deadline(self) -> float:
        left = self._context.time_remaining()
        return math.inf if left is None else time.monotonic() + left


async def _describe(host: PluginHost, _: plugin_pb2.DescribeRequest, __: CallInfo) -> bytes:
    return host.describe()


async def _initialize(host: PluginHost, request: plugin_pb2.InitializeRequest, _: CallInfo) -> bytes:
    return await host.initialize(request)


async def _on_hook(host: PluginHost, request: plugin_pb2.OnHookRequest, info: CallInfo) -> bytes:
    return await host.on_hook(request, info)


async def _release(host: PluginHost, request: plugin_pb2.ReleaseRequest, _: CallInfo) -> bytes:
    await host.release(request.gateway_instance_id, request.config_digest)
    return b""


async def _shutdown(host: PluginHost, request: plugin_pb2.ShutdownRequest, _: CallInfo) -> bytes:
    await host.release(request.gateway_instance_id)
    return b""


def _point(point: PointName) -> _Answer:
    return lambda host, request, info: host.call_point(point, request, info)


_ANSWERS: Final[Mapping[str, tuple[type[Message], _Answer, PointName | None]]] = {
    "Describe": (plugin_pb2.DescribeRequest, _describe, None),
    "Initialize": (plugin_pb2.InitializeRequest, _initialize, None),
    "OnHook": (plugin_pb2.OnHookRequest, _on_hook, None),
    "Release": (plugin_pb2.ReleaseRequest, _release, None),
    "Shutdown": (plugin_pb2.ShutdownRequest, _shutdown, None),
    "BeforeLlmRequest": (plugin_pb2.BeforeLlmRequestRequest, _point("before_llm_request"), "before_llm_request"),
    "BeforeToolCall": (plugin_pb2.BeforeToolCallRequest, _point("before_tool_call"), "before_tool_call"),
    "AfterToolResult": (plugin_pb2.AfterToolResultRequest, _point("after_tool_result"), "after_tool_result"),
    "BeforeResponse": (plugin_pb2.BeforeResponseRequest, _point("before_response"), "before_response"),
}
"""How each method is answered, and the point that it is for."""


class Load:
    """The calls in flight."""

    __slots__ = ("_calls", "_idle")

    def __init__(self) -> None:
        self._calls = 0
        self._idle: asyncio.Event | None = None

    def begin(self) -> None:
        self._calls += 1

    def end(self) -> None:
        self._calls -= 1
        if self._idle is not None and self._calls == 0:
            self._idle.set()

    async def idle(self) -> None:
        """Waits until no call is in flight."""
        if self._calls > 0:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()


def plugin_service(hosts: Sequence[PluginHost], load: Load) -> grpc.GenericRpcHandler:
    """Answers the calls for these plugins."""
    by_name = {host.plugin.name: host for host in hosts}
    methods = {method.name: _method(method.name, by_name, load) for method in SERVICE.methods}
    return grpc.method_handlers_generic_handler(SERVICE.full_name, methods)


def _method(name: str, hosts: Mapping[str, PluginHost], load: Load) -> grpc.RpcMethodHandler[Any, Any]:
    request_type, answer, point = _ANSWERS[name]
    full_name = f"{SERVICE.full_name}/{name}"

    async def handle(request: Any, context: _ServicerContext) -> bytes:
        metadata = cast(_Metadata, context.invocation_metadata() or ())
        load.begin()
        try:
            host = _route(hosts, metadata)
            info = _CallInfo(context, metadata)
            if not is_tracing():
                return await answer(host, request, info)
            attributes = _span_attributes(host, request, point)
            return await in_call_span(full_name, metadata, attributes, lambda: answer(host, request, info))
        except StatusError as error:
            await context.abort(error.code, error.details, error.trailing)
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # Something that the plugin waited for was cancelled. Without an answer the gateway would wait in vain.
            code, details = status_of(error)
            await context.abort(code, details)
        finally:
            load.end()
        raise AssertionError("abort() raises")

    return grpc.unary_unary_rpc_method_handler(handle, request_deserializer=request_type.FromString)


def _is_cancelled() -> bool:
    """Whether the gateway gave up the call."""
    task = asyncio.current_task()
    cancelling: Callable[[], int] | None = getattr(task, "cancelling", None)
    # Python 3.10 can't tell. An answer to a call that was given up does no harm.
    return cancelling is not None and cancelling() > 0


def _route(hosts: Mapping[str, PluginHost], metadata: _Metadata) -> PluginHost:
    asked = next((value for key, value in metadata if key == _PLUGIN), None)
    if isinstance(asked, bytes):
        asked = asked.decode("utf-8", "replace")
    if asked is None and len(hosts) == 1:
        return next(iter(hosts.values()))
    found = None if asked is None else hosts.get(asked)
    if found is not None:
        return found
    served = ", ".join(f"`{name}`" for name in hosts)
    if asked is None:
        details = f"the metadata `{_PLUGIN}` must name one of the plugins that are served here: {served}"
    else:
        details = f"no plugin `{asked}` is served here, only {served}"
    raise StatusError(grpc.StatusCode.NOT_FOUND, shorten(details))


def _span_attributes(host: PluginHost, request: Any, point: PointName | None) -> dict[str, str]:
    attributes = {"hookgate.plugin.name": host.plugin.name}
    if point is not None:
        attributes["hookgate.point"] = point
    elif isinstance(request, plugin_pb2.OnHookRequest):
        attributes["hookgate.hook"] = request.payload.hook
    return attributes
