"""A definition that can't work is refused, by the name of what is wrong, before anything is served."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field
from support.gateway_client import failure, served

from hookgate import (
    BeforeToolCall,
    Context,
    Host,
    Notice,
    Offer,
    Plugin,
    ResponseReply,
    ToolCallReply,
    cancel,
    contribute,
    proceed,
    serve,
    tool,
)
from hookgate._proto import plugin_pb2, types_pb2


class Handler:
    async def before_tool_call(self, call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return proceed()


class Plural(Handler):
    async def before_tool_calls(self, call: Any, ctx: Any) -> ToolCallReply:
        return proceed()


class CamelCase(Handler):
    async def beforeResponse(self, call: Any, ctx: Any) -> ToolCallReply:  # noqa: N802
        return proceed()


class Unknown(Handler):
    async def after_response(self, call: Any, ctx: Any) -> ToolCallReply:
        return proceed()


class NoMethod(Handler):
    before_response = None


class OneParameter:
    async def before_tool_call(self, call: Any) -> ToolCallReply:
        return proceed()


class Hooked(Handler):
    async def on_hook(self, call: Any, ctx: Any) -> Any:
        return contribute()


class NoSchema(BaseModel, arbitrary_types_allowed=True):
    function: Callable[[], int]
    handler: Handler


class Large(BaseModel):
    text: str = Field(description="x" * 70_000)


def make(**options: Any) -> Plugin[Any, Any]:
    return Plugin(**{"name": "p", "version": "1.0.0", **options})


UNNAMED: Any = object()


def point(function: Any) -> None:
    make().before_tool_call(function)


def decorate(*functions: Callable[[Plugin[Any, Any]], object]) -> Plugin[Any, Any]:
    plugin = make()
    for function in functions:
        function(plugin)
    return plugin


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda: make(name=""), "`name` is missing"),
        (
            lambda: make(name="bad name"),
            "^`name` is `bad name`: it must be a letter, then up to 63 letters, digits, `_`",
        ),
        (lambda: make(name="1p"), "`name` is `1p`: it must be a letter"),
        (lambda: make(name="p\n"), "it must be a letter"),
        (lambda: make(name="p" * 65), "it must be a letter"),
        (lambda: make(version=None), "`version` is missing"),
        (lambda: make(version="1.0"), "`version` is `1.0`, which isn't a semantic version such as 1.0.0"),
        (lambda: make(version="1.0.0-01"), "isn't a semantic version"),
        (lambda: make(version=f"1.0.0-{'a' * 256}"), "isn't a semantic version"),
        (lambda: make(capabilities=["storage"]), "there is no capability 'storage'"),
        (lambda: make(capabilities="log"), "`capabilities` must be a list"),
        (lambda: make(config=dict), "`config` must be a class that inherits from pydantic's BaseModel"),
        (lambda: make(config=NoSchema), "`config` has no JSON Schema"),
        (lambda: make(tenant_config=Large), "`tenant_config` has 70.* bytes as a JSON Schema, more than 65536"),
        (lambda: make(points={"before_tool_call": Offer()}), "`points` and `hooks` are for a class"),
        (lambda: make(handler=Handler, points={"before_tool": Offer()}), "'before_tool', which is no point"),
        (
            lambda: make(handler=Handler, points={"before_response": Offer()}),
            "has `before_response`, which has no handler",
        ),
        (lambda: make(handler=Handler, points={"before_tool_call": "read"}), "must be an Offer"),
        (lambda: make(handler=Handler, hooks={"recall": Offer()}), "`hooks` and `on_hook` need each other"),
        (lambda: make(handler=Hooked), "`hooks` and `on_hook` need each other"),
        (lambda: make(handler=Handler()), "`handler` must be a class"),
        (lambda: make(handler=Plural), "`before_tool_calls` is never called: write `before_tool_call`"),
        (lambda: make(handler=CamelCase), "`beforeResponse` is never called: write `before_response`"),
        (lambda: make(handler=Unknown), "`after_response` is never called: the points are"),
        (lambda: make(handler=NoMethod), "`before_response` is of the type NoneType, not a method"),
        (
            lambda: make(handler=OneParameter),
            r"`before_tool_call` must take \(self, call, ctx\), but it takes \(self, call",
        ),
        (lambda: make(handler=Handler).before_tool_call(pass_on), "`before_tool_call` stands beside a class"),
        (lambda: point("x"), "`before_tool_call` is 'x', not a function"),
        (lambda: point(lambda call: proceed()), r"must take \(call, ctx\), but it takes \(call\)"),
        (lambda: make().hook(UNNAMED), 'write `@plugin.hook\\("recall"\\)`'),
        (lambda: make().tool(UNNAMED), 'write `@tool\\("plugin.name"\\)`'),
        (lambda: decorate(twice), "`before_tool_call` has a function already"),
        (lambda: decorate(two_hooks), "the hook `recall` has a handler already"),
        (lambda: decorate(two_tools), "two of the plugin's tools are named `p.t`"),
        (lambda: tool("p.t")(lambda: None), "the tool p.t has no description"),
        (lambda: tool("p.t", description="d")(lambda a: None), "the parameter `a` of the tool p.t has no type"),
        (lambda: tool("p.t", description="d")(lambda **a: None), "can't be called with the parameter `a`"),
    ],
)
def test_a_definition_that_can_not_work_is_refused(define: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        define()


def test_a_name_and_a_version_have_every_form_that_the_protocol_allows() -> None:
    plugin = make(name="P" + "_-9" * 21, version="1.0.0-rc.1+build.7")
    assert (len(plugin.name), plugin.version) == (64, "1.0.0-rc.1+build.7")


async def pass_on(call: BeforeToolCall, ctx: Context[Any, Any]) -> ToolCallReply:
    return proceed()


def twice(plugin: Plugin[Any, Any]) -> None:
    plugin.before_tool_call(pass_on)
    plugin.before_tool_call(pass_on)


def two_hooks(plugin: Plugin[Any, Any]) -> None:
    for _ in range(2):
        plugin.hook("recall")(lambda call, ctx: contribute())


def two_tools(plugin: Plugin[Any, Any]) -> None:
    for _ in range(2):
        plugin.tool("p.t", description="d")(lambda: None)


def test_an_offer_of_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match="`access` must be"):
        Offer(access="Read")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`side_effects` must be"):
        make().before_response(side_effects="no")  # type: ignore[call-overload]


def test_names_that_a_point_can_not_read_are_refused() -> None:
    def decorate(reads: Any) -> None:
        make().before_tool_call(reads=reads)(pass_on)

    with pytest.raises(ValueError, match=r"`reads` of before_tool_call names 'text': choose from args, extra"):
        decorate(["text"])
    with pytest.raises(ValueError, match="`reads` of before_tool_call names 'args' twice"):
        decorate(["args", "args"])
    with pytest.raises(ValueError, match="`reads` must be a list of names, not 'args'"):
        decorate("args")

    class Handler:
        async def before_response(self, call: Any, ctx: Any) -> ToolCallReply:
            return proceed()

    with pytest.raises(ValueError, match="`reads` of before_response names 'args'"):
        make(handler=Handler, points={"before_response": Offer(reads=["args"])})


async def test_describe_tells_apart_reading_nothing_some_members_and_all() -> None:
    plugin = make()
    plugin.before_tool_call(reads=())(pass_on)
    plugin.before_llm_request(reads=["text", "messages"])(lambda call, ctx: proceed())
    plugin.before_response(lambda call, ctx: proceed())
    async with served(plugin) as (client, _):
        described = await client.describe()
    reads = [list(it.reads.names) if it.HasField("reads") else None for it in described.points]
    assert reads == [["text", "messages"], [], None]


async def test_a_plugin_that_does_nothing_or_hides_its_tools_is_not_served() -> None:
    with pytest.raises(TypeError, match="the plugin p does nothing"):
        await serve(make(), "unix:///tmp/never", signals=False)
    with pytest.raises(TypeError, match="`tool_names` is missing"):
        await serve(make(tools=lambda config, state: []), "unix:///tmp/never", signals=False)


class Config(BaseModel):
    when: datetime
    limit: int = Field(default=3, description="How many.")


async def test_describe_tells_points_hooks_tools_capabilities_and_schemas() -> None:
    plugin = Plugin("p", version="1.2.3", config=Config, capabilities=["storage:read", "log"])
    plugin.before_tool_call(access="read", side_effects="none")(pass_on)
    plugin.before_response(lambda call, ctx: proceed())
    plugin.hook("recall", side_effects="none")(lambda call, ctx: contribute())
    plugin.tool("p.t", description="d")(lambda: None)
    async with served(plugin) as (client, _):
        described = await client.describe()
    assert (described.name, described.version, list(described.protocol_versions)) == ("p", "1.2.3", [1])
    assert list(described.capabilities) == ["storage:read", "log"]
    assert [(it.point, it.access, it.side_effects) for it in described.points] == [
        (types_pb2.EXTENSION_POINT_BEFORE_TOOL_CALL, plugin_pb2.ACCESS_READ, plugin_pb2.SIDE_EFFECTS_NONE),
        (types_pb2.EXTENSION_POINT_BEFORE_RESPONSE, plugin_pb2.ACCESS_MODIFY, plugin_pb2.SIDE_EFFECTS_SOME),
    ]
    assert [(it.hook, it.side_effects) for it in described.hooks] == [("recall", plugin_pb2.SIDE_EFFECTS_NONE)]
    assert list(described.tools) == ["p.t"]
    assert b'"required":["when"]' in described.config_schema
    assert described.tenant_config_schema == b'{"type":"object","additionalProperties":false}'


class Counter:
    def __init__(self, config: Any, host: Host) -> None:
        self.step: int = config.limit
        self.calls = 0
        self.capabilities = host.capabilities

    async def initialize(self) -> None:
        self.calls = 100

    async def before_tool_call(self, call: BeforeToolCall, ctx: Context[Any]) -> ToolCallReply:
        self.calls += self.step
        return cancel("N", str(self.calls), notices=[Notice("info", ",".join(self.capabilities))])

    def on_hook(self, call: Any, ctx: Any) -> Any:
        return contribute()

    @tool("p.count")
    async def count(self, by: int) -> int:
        """Counts."""
        self.calls += by
        return self.calls

    def shutdown(self) -> None:
        STOPPED.append(self.calls)


STOPPED: list[int] = []


async def test_a_class_has_one_object_per_configuration() -> None:
    plugin = Plugin(
        "p",
        version="1.0.0",
        config=Config,
        handler=Counter,
        points={"before_tool_call": Offer(access="read")},
        hooks={"recall": Offer()},
    )
    config = {"when": "2026-01-01T00:00:00Z", "limit": 5}
    async with served(plugin) as (client, _):
        described = await client.describe()
        assert (described.points[0].access, list(described.tools)) == (plugin_pb2.ACCESS_READ, ["p.count"])
        await client.initialize("one", config, capabilities=["log"])
        await client.initialize("two", {**config, "limit": 7})
        await client.tool_call(digest="one")
        assert await client.message(digest="one") == "110"
        assert await client.message(digest="two") == "107"
        counted = await client.tool_call("p.count", {"by": 1000}, digest="two", run_tool=True)
        assert counted.cancel.result == b"1107"
        await client.release(digest="one")
        assert STOPPED == [110]


async def test_a_handler_that_only_the_object_has_is_refused_at_the_start() -> None:
    class Hidden(Handler):
        def __init__(self, config: object, host: Host) -> None:
            self.before_response: Any = pass_on

    async with served(make(handler=Hidden)) as (client, _):
        status, message = await failure(client.initialize())
        assert status == "ABORTED"
        assert message.endswith("`before_response` of Hidden is set on the object: write it as a method")


class Unbound:
    @staticmethod
    async def before_tool_call(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return cancel("STATIC", "s")

    @classmethod
    async def before_response(cls, call: Any, ctx: Context) -> ResponseReply:
        return proceed()


class UnboundWithSelf:
    @staticmethod
    async def before_tool_call(self: Any, call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return proceed()


async def test_a_static_method_of_a_class_is_a_handler() -> None:
    async with served(Plugin("p", version="1.0.0", handler=Unbound)) as (client, _):
        await client.initialize()
        assert (await client.tool_call()).cancel.code == "STATIC"
    with pytest.raises(TypeError, match=r"must take \(call, ctx\)"):
        Plugin("p", version="1.0.0", handler=UnboundWithSelf)
