"""Calls a plugin in a test as a gateway does, without a socket."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, JsonValue

from hookgate._json import dumps
from hookgate._proto import plugin_pb2, types_pb2
from hookgate._server.plugin_host import PluginHost
from hookgate._server.wire import POINT_WIRES
from hookgate.context import ChainResult
from hookgate.host import Storage
from hookgate.host._links import HostLinks
from hookgate.media import Media
from hookgate.payload import ResponseWindow, TokenUsage
from hookgate.plugin import Plugin
from hookgate.point import FIELDS, Capability, Offer, PointName
from hookgate.reply import (
    ABSENT,
    HookReply,
    LlmRequestReply,
    Reply,
    ResponseReply,
    ToolCallReply,
    ToolResultReply,
)
from hookgate.testing._call_error import as_gateway
from hookgate.testing._call_settings import CallSettings
from hookgate.testing._in_process import InProcessConnection
from hookgate.testing._manifest_rules import check_manifest, check_tools
from hookgate.testing._replies import ProvidedTool, hook_reply_from_wire, reply_from_wire, tool_from_wire
from hookgate.testing._reply_rules import (
    LIMITS,
    PointResponse,
    check_hook_reply,
    check_point_reply,
    check_reply_size,
    check_result_size,
)
from hookgate.testing._test_host import TestHost, services_of
from hookgate.testing._windows import WindowedResponse, Windows
from hookgate.tool import ToolError

_GATEWAY: Final = "test"

Config = BaseModel | Mapping[str, object]
"""A configuration: a model, or its JSON form, which a model with secrets needs."""


@dataclass(frozen=True, slots=True)
class _Started:
    """A plugin that was described and initialized."""

    plugin_host: PluginHost
    host: TestHost
    capabilities: tuple[Capability, ...]
    tools: tuple[ProvidedTool, ...]

    @property
    def name(self) -> str:
        return self.plugin_host.plugin.name


class TestPlugin:
    """A plugin that was described and initialized, ready for calls.

    They go through the SDK as a gateway's do, with messages encoded and decoded, and what a gateway rejects is an
    error. The `with_` methods return another handle to the same instance, for another tenant, configuration or limit.
    Calls fail with a `CallError`. A call whose task is cancelled ends as one whose agent hung up.

        async def test_a_shell_is_refused() -> None:
            plugin = await TestPlugin.start(no_shell, {"refused_tools": ["shell.exec"]})
            reply = await plugin.with_tenant("acme").before_tool_call("shell.exec", {"cmd": "ls"})
            assert reply.cancelled is not None
            assert reply.cancelled.code == "TOOL_NOT_ALLOWED"
    """

    # Not a class of tests, whatever pytest thinks of its name.
    __test__ = False

    def __init__(self, started: _Started, settings: CallSettings) -> None:
        """Only the SDK makes it."""
        self._started = started
        self._settings = settings

    @classmethod
    async def start(
        cls, plugin: Plugin[Any, Any], config: Config | None = None, *, host: TestHost | None = None
    ) -> TestPlugin:
        """Checks the plugin's manifest, then starts the plugin with a plugin-level configuration.

        :param config: By default `{}`.
        :param host: The gateway's services. By default new ones.
        :raises CallError: FAILED_PRECONDITION if a gateway would reject the manifest or the tools, INVALID_ARGUMENT if
            the configuration doesn't fit its model, and otherwise the error of `initialize`.
        """
        host = host or TestHost()
        services = services_of(host)
        plugin_host = PluginHost(plugin, lambda: HostLinks(lambda _endpoint: InProcessConnection(services)))
        manifest = plugin_pb2.DescribeResponse.FromString(plugin_host.describe())
        check_manifest(manifest)
        capabilities = cast("tuple[Capability, ...]", tuple(manifest.capabilities))
        data = dumps({} if config is None else config, "config")
        request = plugin_pb2.InitializeRequest(
            config=data,
            config_digest=_digest_of(data),
            capabilities=capabilities,
            gateway_instance_id=_GATEWAY,
            # As of a gateway, which offers its services only to plugins with capabilities.
            host_endpoint="test" if capabilities else "",
            host_token=services.issue_token(plugin.name, None, capabilities) if capabilities else "",
            limits=LIMITS,
        )
        initialized = plugin_pb2.InitializeResponse.FromString(await as_gateway(plugin_host.initialize(request)))
        check_tools(manifest.tools, initialized.tools)
        tools = tuple(tool_from_wire(tool) for tool in initialized.tools)
        started = _Started(plugin_host, host, capabilities, tools)
        return cls(started, CallSettings(config_digest=request.config_digest))

    def with_tenant(self, tenant: str) -> TestPlugin:
        """Calls for this tenant. The default is `test-tenant`."""
        return self.with_context(tenant=tenant)

    def with_tenant_config(self, config: Config) -> TestPlugin:
        """Calls with this tenant-level configuration. The default is `{}`."""
        data = dumps(config, "tenant_config")
        return self._with(tenant_config=data, tenant_config_digest=_digest_of(data))

    def with_context(
        self, *, traceparent: str | None = None, tracestate: str | None = None, **members: object
    ) -> TestPlugin:
        """Calls with these members of the context, besides those so far.

        :param traceparent: W3C trace context.
        :param tracestate: W3C trace state.
        :param members: Those of `Caller`, such as `operator`, `labels` or `session_id`, and `request_id`.
        :raises TypeError: If there is no such member.
        """
        known = plugin_pb2.CallContext.DESCRIPTOR.fields_by_name
        unknown = next((name for name in members if name not in known), None)
        if unknown is not None:
            raise TypeError(f"a context has no member {unknown!r}: it has {', '.join(known)}")
        trace = {"traceparent": traceparent, "tracestate": tracestate}
        given = {name: value for name, value in trace.items() if value is not None}
        metadata = {**self._settings.metadata, **given}
        return self._with(context={**self._settings.context, **members}, metadata=metadata)

    def with_chain_result(
        self,
        decision: Literal["continue", "block", "answer"] | None,
        *,
        plugin: str | None = None,
        code: str | None = None,
    ) -> TestPlugin:
        """Calls it as an observer, after a chain that ended like this."""
        return self._with(chain_result=ChainResult(decision, plugin, code))

    def with_time_left(self, ms: float) -> TestPlugin:
        """Gives each call this many milliseconds.

        Then the handler is cancelled, and the call fails with DEADLINE_EXCEEDED. By default there is no limit.
        """
        return self._with(time_left=ms / 1000)

    @property
    def host(self) -> TestHost:
        """The gateway's services that the plugin uses."""
        return self._started.host

    @property
    def storage(self) -> Storage:
        """The plugin's data for the tenant, to prepare or to read. It doesn't need the plugin's capabilities."""
        return self.host.storage_of(self._started.name, self._settings.tenant)

    @property
    def own_storage(self) -> Storage:
        """The plugin's own data, which belongs to no tenant, to prepare or to read.

        It doesn't need the plugin's capabilities.
        """
        return self.host.storage_of(self._started.name)

    @property
    def tools(self) -> Sequence[ProvidedTool]:
        """The tools that the plugin provides with its configuration."""
        return self._started.tools

    async def before_llm_request(
        self,
        text: str = "",
        *,
        images: Sequence[Media] = (),
        files: Sequence[Media] = (),
        system_prompt: str | None = None,
        messages: Sequence[object] | None = None,
        tools: Sequence[object] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> LlmRequestReply:
        """Calls it at `before_llm_request`."""
        payload = types_pb2.BeforeLlmRequestPayload(
            text=text,
            images=[_medium_to_wire(medium) for medium in images],
            files=[_medium_to_wire(medium) for medium in files],
            system_prompt=system_prompt,
            messages=_json(messages, "messages"),
            tools=_json(tools, "tools"),
            extra=_json(extra, "extra"),
        )
        request = plugin_pb2.BeforeLlmRequestRequest(call=self._call(), payload=payload)
        return await self._reply("before_llm_request", request)

    async def before_tool_call(
        self,
        tool_name: str,
        args: object = ABSENT,
        *,
        call_id: str | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> ToolCallReply:
        """Calls it at `before_tool_call`.

        :param args: Any JSON value. The default is `{}`.
        """
        payload = types_pb2.BeforeToolCallPayload(
            tool_name=tool_name,
            args=dumps({} if args is ABSENT else args, "args"),
            call_id=call_id,
            extra=_json(extra, "extra"),
        )
        request = plugin_pb2.BeforeToolCallRequest(call=self._call(), payload=payload)
        return await self._reply("before_tool_call", request)

    async def after_tool_result(
        self,
        tool_name: str,
        result: object = None,
        *,
        success: bool = True,
        args: object = ABSENT,
        call_id: str | None = None,
        duration_ms: int | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> ToolResultReply:
        """Calls it at `after_tool_result`.

        :param result: Any JSON value.
        :param args: The arguments as executed, any JSON value. By default the agent doesn't say.
        :param duration_ms: Whole milliseconds.
        """
        payload = types_pb2.AfterToolResultPayload(
            tool_name=tool_name,
            result=dumps(result, "result"),
            success=success,
            args=b"" if args is ABSENT else dumps(args, "args"),
            call_id=call_id,
            duration_ms=duration_ms,
            extra=_json(extra, "extra"),
        )
        request = plugin_pb2.AfterToolResultRequest(call=self._call(), payload=payload)
        return await self._reply("after_tool_result", request)

    async def before_response(
        self,
        content: str,
        *,
        reasoning: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        router: str | None = None,
        token_usage: TokenUsage | None = None,
        stop_reason: str | None = None,
        extra: Mapping[str, object] | None = None,
        window: ResponseWindow | None = None,
    ) -> ResponseReply:
        """Calls it at `before_response`.

        :param window: Which part of the answer's text `content` is. By default it is the whole text.
        """
        payload = types_pb2.BeforeResponsePayload(
            content=content,
            reasoning=reasoning,
            provider=provider,
            model=model,
            router=router,
            token_usage=None if token_usage is None else _usage_to_wire(token_usage),
            stop_reason=stop_reason,
            extra=_json(extra, "extra"),
        )
        request = plugin_pb2.BeforeResponseRequest(call=self._call(), payload=payload)
        if window is not None:
            request.call.window.CopyFrom(_window_to_wire(window))
        return await self._reply("before_response", request)

    async def before_response_in_windows(
        self,
        pieces: Iterable[str],
        *,
        reasoning: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        router: str | None = None,
        token_usage: TokenUsage | None = None,
        stop_reason: str | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> WindowedResponse:
        """Calls it at `before_response` with an answer in windows, as a gateway does while the model writes.

        It keeps what the plugin hasn't consumed, and shows it again with the next piece behind it. Call it with the
        same text in other pieces to test that nothing depends on the cuts.

        :param pieces: The text, cut anywhere; a `str` is a piece per character. The last piece is in the last window.
        :param reasoning: Shown whole, in the first window.
        :param token_usage: Shown in the last window, as `stop_reason` is.
        :raises CallError: If a gateway would reject one of the replies.
        """
        windows = Windows(pieces)
        for content, window in windows:
            reply = await self.before_response(
                content,
                reasoning=reasoning if window.seq == 0 else None,
                provider=provider,
                model=model,
                router=router,
                token_usage=token_usage if window.last else None,
                stop_reason=stop_reason if window.last else None,
                extra=extra,
                window=window,
            )
            windows.take(reply)
        return windows.response(reasoning)

    async def run_tool(self, name: str, args: Mapping[str, object] | BaseModel | None = None) -> JsonValue:
        """Runs one of the plugin's tools, as a gateway does after all other plugins have let the call pass.

        :param args: A JSON object. The default is `{}`.
        :returns: What the tool returned, after its way as JSON.
        :raises ToolError: What the model sees as the tool's error: the tool's own, or TOOL_ARGS_INVALID for arguments
            that don't fit.
        :raises CallError: Any other error of the tool, or NOT_FOUND if the plugin doesn't provide it.
        """
        payload = types_pb2.BeforeToolCallPayload(tool_name=name, args=dumps({} if args is None else args, "args"))
        request = plugin_pb2.BeforeToolCallRequest(call=self._call(run_tool=True), payload=payload)
        response = await self._call_point("before_tool_call", request)
        cancelled = reply_from_wire("before_tool_call", response).cancelled
        if cancelled is not None and cancelled.is_answer:
            return cast(JsonValue, cancelled.result)
        raise ToolError("", "") if cancelled is None else ToolError(cancelled.message, cancelled.code)

    async def on_hook(self, hook: str, body: Mapping[str, object] | BaseModel | None = None) -> HookReply:
        """Calls it at a lifecycle hook. The rules for the bodies of known hooks are not checked.

        :param body: A JSON object. The default is `{}`.
        """
        payload = types_pb2.HookPayload(hook=hook, body=dumps({} if body is None else body, "body"))
        request = plugin_pb2.OnHookRequest(call=self._call(), payload=payload)
        answering = self._started.plugin_host.on_hook(_recoded(request), self._settings.info())
        data = await as_gateway(answering, self._settings.time_left)
        check_reply_size(len(data))
        response = plugin_pb2.OnHookResponse.FromString(data)
        check_hook_reply(response)
        return hook_reply_from_wire(response)

    async def shutdown(self) -> None:
        """Shuts the plugin down, as a gateway does at its end. Calls fail afterwards."""
        await self._started.plugin_host.release(_GATEWAY)

    def _with(self, **change: Any) -> TestPlugin:
        return TestPlugin(self._started, dataclasses.replace(self._settings, **change))

    async def _reply(self, point: PointName, request: Any) -> Reply[Any]:
        self._leave_out_unread(point, request.payload)
        response = await self._call_point(point, request)
        access = self._started.plugin_host.manifest.points[point].access
        check_point_reply(self._started.name, point, access, response)
        return reply_from_wire(point, response)

    def _leave_out_unread(self, point: PointName, payload: Any) -> None:
        """A gateway doesn't send large members that the plugin doesn't read."""
        reads = self._started.plugin_host.manifest.points.get(point, Offer()).reads
        for name in FIELDS[point]:
            if reads is not None and name not in reads:
                payload.ClearField(name)

    async def _call_point(self, point: PointName, request: Any) -> PointResponse:
        answering = self._started.plugin_host.call_point(point, _recoded(request), self._settings.info())
        data = await as_gateway(answering, self._settings.time_left)
        check_reply_size(len(data))
        response = cast("type[PointResponse]", POINT_WIRES[point].response).FromString(data)
        if point == "before_tool_call":
            check_result_size(len(response.cancel.result), request.payload.ByteSize())
        return response

    def _call(self, *, run_tool: bool = False) -> plugin_pb2.Call:
        started = self._started
        token = ""
        if started.capabilities:
            services = services_of(started.host)
            token = services.issue_token(started.name, self._settings.tenant, started.capabilities)
        return self._settings.to_wire(token, run_tool=run_tool)


def _recoded(request: Any) -> Any:
    """The message after its way over a socket."""
    return type(request).FromString(request.SerializeToString())


def _digest_of(data: bytes) -> str:
    """Digests are opaque to a plugin, so the text itself can serve as its digest."""
    return data.decode()


def _json(value: object, name: str) -> bytes:
    """Empty if the value is absent."""
    return b"" if value is None else dumps(value, name)


def _usage_to_wire(usage: TokenUsage) -> types_pb2.TokenUsage:
    return types_pb2.TokenUsage(input=usage.input, output=usage.output)


def _window_to_wire(window: ResponseWindow) -> plugin_pb2.ResponseWindow:
    return plugin_pb2.ResponseWindow(seq=window.seq, before=window.before, offset=window.offset, last=window.last)


def _medium_to_wire(medium: Media) -> types_pb2.Media:
    message = types_pb2.Media(mime_type=medium.mime_type, filename=medium.filename)
    if medium.data is not None:
        message.data = medium.data
    elif medium.url is not None:
        message.url = medium.url
    return message
