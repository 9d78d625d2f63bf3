"""Answers the calls of gateways for one plugin. Owns its instances, one per digest; knows nothing of sockets."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, TypeAlias

import grpc

from hookgate._frozen import freeze
from hookgate._proto import plugin_pb2, types_pb2
from hookgate._schema import SchemaError, check
from hookgate._server.instances import HeldInstance, Instances
from hookgate._server.manifest import describe
from hookgate._server.status import StatusError
from hookgate._server.windows import check_window, consumed_in_window
from hookgate._server.wire import POINT_WIRES, hook_reply_to_wire, reply_to_wire
from hookgate.context import CallInfo, Context
from hookgate.errors import PluginError, shorten, status_of
from hookgate.host import Host
from hookgate.host._links import HostLinks, HostOffer
from hookgate.payload import HookPayload
from hookgate.plugin import Plugin
from hookgate.point import PointName
from hookgate.reply import HookReply, Reply
from hookgate.tool import Tool, run_tool

logger = logging.getLogger("hookgate")

_MAX_FLUSH: Final = 5.0
"""How long the shutdown waits for an instance to flush, in seconds: as long as a gateway waits for Shutdown."""

_MAX_TENANT_CONFIGS: Final = 1024
"""How many tenant-level configurations are kept checked. With more tenants, some are checked again."""

_AnyContext: TypeAlias = Context[Any, Any, Any]
_PointRequest: TypeAlias = (
    plugin_pb2.BeforeLlmRequestRequest
    | plugin_pb2.BeforeToolCallRequest
    | plugin_pb2.AfterToolResultRequest
    | plugin_pb2.BeforeResponseRequest
)

_NOT_INITIALIZED: Final = (("hookgate-reason", "NOT_INITIALIZED"),)


class PluginHost:
    """Answers the calls of gateways for one plugin."""

    def __init__(self, plugin: Plugin[Any, Any], make_links: Callable[[], HostLinks] = HostLinks) -> None:
        """Takes the plugin as it is now: later decorators have no effect.

        :raises TypeError: If it can't work.
        """
        self.plugin = plugin
        self.manifest = plugin._manifest()
        self._described = describe(self.manifest).SerializeToString()
        self._make_links = make_links
        self._instances = Instances()
        self._tenant_configs: OrderedDict[str, tuple[bytes, object]] = OrderedDict()
        """By digest: the text, and what it is when it has been checked."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def describe(self) -> bytes:
        return self._described

    async def initialize(self, request: plugin_pb2.InitializeRequest) -> bytes:
        if not request.config_digest:
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, "`config_digest` is missing")
        # A start goes on when the gateway stops waiting. It asks again.
        return await asyncio.shield(self._spawn(self._initialize(request)))

    async def _initialize(self, request: plugin_pb2.InitializeRequest) -> bytes:
        offer = HostOffer(request.gateway_instance_id, request.host_endpoint, request.host_token)
        held, left = await self._instances.start(request.config_digest, offer, lambda: self._start(request, offer))
        if left is not None:
            # Initialize doesn't wait for the calls of the instance that made room.
            if left is not held:
                self._warn("too many configurations: the one whose last call was the longest ago is shut down", None)
            self._spawn(self._flush(left))
        tools = [_tool_to_wire(tool) for tool in held.instance.tools.values()]
        return plugin_pb2.InitializeResponse(tools=tools).SerializeToString()

    async def call_point(self, point: PointName, request: _PointRequest, info: CallInfo) -> bytes:
        call = request.call
        if not call.HasField("context"):
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, "`call.context` is missing")
        if not request.HasField("payload"):
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, "`payload` is missing")
        if call.run_tool and isinstance(request, plugin_pb2.BeforeToolCallRequest):
            return await self._run_tool(request.payload, call, info)
        offer = self.manifest.points.get(point)
        if offer is None:
            raise self._not_offered(point)
        check_window(call, offer)

        async def answer(held: HeldInstance, ctx: _AnyContext) -> bytes:
            payload = POINT_WIRES[point].payload(request)
            reply = await held.instance.points[point].call(payload, ctx, _calls=ctx._calls)
            if not isinstance(reply, Reply):
                made = "return what proceed(), cancel() or answer() makes"
                raise PluginError.internal(f"{point} returned {_describe_value(reply)}: {made}")
            if reply.patch is not None and offer.access == "read" and reply.cancelled is None:
                raise PluginError.internal(f"{point} returned a patch, but the plugin offers it with access `read`")
            consumed = consumed_in_window(point, reply, request)
            return reply_to_wire(point, reply, held.max_reply_bytes, self._warn_of_part, consumed)

        return await self._answer(call, info, answer)

    async def on_hook(self, request: plugin_pb2.OnHookRequest, info: CallInfo) -> bytes:
        call = request.call
        if not call.HasField("context"):
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, "`call.context` is missing")
        if not request.HasField("payload"):
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, "`payload` is missing")
        hook = request.payload.hook
        if hook not in self.manifest.hooks:
            raise self._not_offered(hook)

        async def answer(held: HeldInstance, ctx: _AnyContext) -> bytes:
            payload: HookPayload[Any] = HookPayload.from_message(request.payload)
            reply = await held.instance.hooks[hook].call(payload, ctx, _calls=ctx._calls)
            if not isinstance(reply, HookReply):
                made = "return what contribute() makes"
                raise PluginError.internal(f"the handler of {hook} returned {_describe_value(reply)}: {made}")
            return hook_reply_to_wire(reply)

        return await self._answer(call, info, answer)

    async def release(self, gateway: str, digest: str | None = None) -> None:
        """Ends a gateway's use of one configuration, or of all, and flushes what no gateway uses any more."""
        flushes = [self._spawn(self._flush(held)) for held in self._instances.release(gateway, digest)]
        if flushes:
            # Flushing goes on when the gateway stops waiting.
            await asyncio.wait(flushes)

    async def shutdown(self) -> None:
        """Shuts all instances down after the drain, for the end of the process."""
        for held in self._instances.take_all():
            self._spawn(self._flush(held, waits=False))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_MAX_FLUSH)

    async def _flush(self, held: HeldInstance, *, waits: bool = True) -> None:
        """Flushes an instance when its calls have ended."""
        if waits:
            await held.unused()
        try:
            if held.instance.shutdown is not None:
                await held.instance.shutdown()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # The event loop would end the process at a SystemExit.
            self._warn("the plugin failed at its shutdown", error)
        finally:
            held.links.close()
            # The last lines that it logs are sent in the background.
            await held.links.settled()

    async def _start(self, request: plugin_pb2.InitializeRequest, offer: HostOffer) -> HeldInstance:
        links = self._make_links()
        limits = request.limits
        try:
            links.add(offer)
            config = freeze(check(self.manifest.config, request.config, secret=True))
            max_payload_bytes = limits.max_reply_bytes - limits.max_notice_bytes
            host = Host(links, request.capabilities, max_payload_bytes if max_payload_bytes > 0 else None)
            instance = await self.plugin._start(config, host)
            return HeldInstance(instance, links, limits.max_reply_bytes or math.inf)
        except SchemaError as error:
            links.close()
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, shorten(f"config: {error}")) from None
        except BaseException as error:
            links.close()
            raise self._failure("the plugin failed at its start", error) from error

    async def _run_tool(self, payload: types_pb2.BeforeToolCallPayload, call: plugin_pb2.Call, info: CallInfo) -> bytes:
        name = payload.tool_name

        async def answer(held: HeldInstance, ctx: _AnyContext) -> bytes:
            called = held.instance.tools.get(name)
            if called is None:
                details = shorten(f"{self.plugin.name} does not provide the tool {name}")
                raise StatusError(grpc.StatusCode.NOT_FOUND, details)
            reply = await run_tool(called, payload.args, ctx)
            return reply_to_wire("before_tool_call", reply, held.max_reply_bytes, self._warn_of_part)

        return await self._answer(call, info, answer)

    async def _answer(
        self, call: plugin_pb2.Call, info: CallInfo, answer: Callable[[HeldInstance, _AnyContext], Awaitable[bytes]]
    ) -> bytes:
        held = self._instances.get(call.config_digest)
        if held is None:
            details = "no instance for this config digest"
            raise StatusError(grpc.StatusCode.FAILED_PRECONDITION, details, _NOT_INITIALIZED)
        tenant_config = self._tenant_config(call)
        instance = held.instance
        ctx: _AnyContext = Context(
            call, info, held.links, config=instance.config, tenant_config=tenant_config, state=instance.state
        )
        held.begin_call()
        try:
            return await answer(held, ctx)
        except (StatusError, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise self._failure("a call failed", error) from error
        finally:
            if ctx._calls.abandoned is None:
                held.end_call()
            else:
                _end_with(ctx._calls.abandoned, held)

    def _tenant_config(self, call: plugin_pb2.Call) -> object:
        """The checked configuration. All tenants with the same one share it, so nobody may change it."""
        if self.manifest.tenant_config is None:
            return None
        digest, data = call.tenant_config_digest, call.tenant_config
        known = self._tenant_configs.get(digest)
        if known is not None and known[0] == data:
            return known[1]
        try:
            checked = freeze(check(self.manifest.tenant_config, data))
        except BaseException as error:  # A validator of the author may raise anything.
            details = shorten(f"tenant-level config: {error}")
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, details) from error
        if len(self._tenant_configs) >= _MAX_TENANT_CONFIGS:
            self._tenant_configs.popitem(last=False)
        if digest:
            self._tenant_configs[digest] = (data, checked)
        return checked

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        """Runs work that goes on even if the gateway stops waiting for it."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever waits for it has it. Otherwise asyncio would report it.

    def _not_offered(self, site: str) -> StatusError:
        return StatusError(grpc.StatusCode.UNIMPLEMENTED, shorten(f"{self.plugin.name} does not answer at {site}"))

    def _failure(self, what: str, error: BaseException) -> StatusError:
        self._warn(what, error)
        code, details = status_of(error)
        return StatusError(code, details)

    def _warn_of_part(self, error: BaseException) -> None:
        self._warn("a part of a cancel was left out", error)

    def _warn(self, message: str, error: BaseException | None) -> None:
        logger.warning(message, exc_info=error, extra={"attributes": {"plugin": self.plugin.name}})


def _end_with(thread: Future[Any], held: HeldInstance) -> None:
    """Ends the call when the thread does, which is when the instance may be shut down."""
    loop = asyncio.get_running_loop()

    def end(_: Future[Any]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(held.end_call)

    thread.add_done_callback(end)


def _tool_to_wire(tool: Tool[Any]) -> types_pb2.Tool:
    message = types_pb2.Tool(name=tool.name, description=tool.description, input_schema=tool.input.schema)
    if tool.annotations is not None:
        given = {name: getattr(tool.annotations, name) for name in tool.annotations.__slots__}
        message.annotations.CopyFrom(types_pb2.ToolAnnotations(**given))
    return message


def _describe_value(value: object) -> str:
    return "None" if value is None else f"a value of the type {type(value).__name__}"
