"""What a plugin author writes: a `Plugin` with decorated functions, or with a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from hookgate._calling import Handler
from hookgate._decorators import Decorators
from hookgate._definition import ON_HOOK, check_class, check_parameters, check_values, members_of
from hookgate._schema import Model, schema_bytes
from hookgate.context import ConfigT, TenantConfigT
from hookgate.host import Host
from hookgate.point import POINTS, Capability, Offer, PointName, check_offer
from hookgate.tool import Tool

_AnyTool: TypeAlias = Tool[Any]
_ToolSource: TypeAlias = Sequence[_AnyTool] | Callable[..., Sequence[_AnyTool]]


@dataclass(frozen=True, slots=True)
class Instance:
    """A plugin with one configuration."""

    points: Mapping[PointName, Handler]
    hooks: Mapping[str, Handler]
    tools: Mapping[str, _AnyTool]
    config: Any
    state: Any
    shutdown: Callable[[], Any] | None
    """Flushes what the instance holds."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a plugin says of itself."""

    name: str
    version: str
    capabilities: Sequence[str]
    config: Model | None
    tenant_config: Model | None
    config_schema: bytes
    tenant_config_schema: bytes
    points: Mapping[PointName, Offer]
    hooks: Mapping[str, Offer]
    tool_names: Sequence[str]


class Plugin(Decorators[ConfigT, TenantConfigT]):
    """A plugin that can be served and tested.

        plugin = Plugin("no-shell", version="1.0.0", config=Config)

        @plugin.before_tool_call(access="read", side_effects="none")
        async def refuse(call: BeforeToolCall, ctx: Context[Config]) -> ToolCallReply:
            if call.tool_name not in ctx.config.refused_tools:
                return proceed()
            return cancel("TOOL_NOT_ALLOWED", f"Agents may not use {call.tool_name}.")

    Only the points for which there is a handler are called. A handler returns what `proceed`, `cancel` or `answer`
    makes: anything else fails the call. Calls run at the same time. A handler that is no coroutine function runs in a
    thread.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        config: type[ConfigT] | None = None,
        tenant_config: type[TenantConfigT] | None = None,
        capabilities: Sequence[Capability] = (),
        handler: type | None = None,
        points: Mapping[PointName, Offer] | None = None,
        hooks: Mapping[str, Offer] | None = None,
        tools: _ToolSource = (),
        tool_names: Sequence[str] | None = None,
    ) -> None:
        """Defines a plugin.

        :param name: The name under which it is registered at the gateway.
        :param version: Its semantic version.
        :param config: A pydantic model of the plugin-level configuration. The gateway's operator sets it, and it may
            hold secrets. Without a model there is none. Its lists, dicts and sets can't be changed, because all calls
            share it.
        :param tenant_config: A model of the tenant-level configuration. It comes with each call, holds no secrets, and
            has no member with the same name as one of `config`.
        :param capabilities: What it asks for; the gateway rejects the plugin if they are not granted.
        :param handler: A class instead of decorated functions, of which there is one object per configuration. It is
            called with the configuration and a `Host`, unless it has no `__init__`. Its methods are named like the
            points, and `on_hook`; `initialize` is called after `__init__`, `shutdown` at the end.
        :param points: With `handler`: what it offers at each point. By default it asks for the most: `modify`, with
            side effects, and all of the payload.
        :param hooks: With `handler`: the lifecycle hooks at which `on_hook` answers.
        :param tools: The tools that it provides, at most 64, besides decorated functions and methods; or a function
            from the configuration and the state to them, which is called after `initialize`.
        :param tool_names: The names that its tools may have, as globs with `*`, `?` and `[..]`, such as `memory.*`.
            Operators approve them. By default the names of the tools; required if `tools` is a function.
        :raises TypeError: If it can't work. The message names what is wrong.
        """
        check_values(name, version, capabilities, points or {}, hooks or {})
        self._name = name
        self._version = version
        self._capabilities = tuple(capabilities)
        self._config = cast("Model | None", config)
        self._tenant_config = cast("Model | None", tenant_config)
        self._config_schema = schema_bytes(self._config, "`config`")
        self._tenant_config_schema = schema_bytes(self._tenant_config, "`tenant_config`")
        self._class = handler
        self._offers: dict[PointName, Offer] = {}
        self._hooks: dict[str, Offer] = dict(hooks or {})
        self._functions: dict[str, Handler] = {}
        self._hook_functions: dict[str, Handler] = {}
        self._make_tools = tools if callable(tools) else None
        self._tools: list[_AnyTool] = [] if callable(tools) else list(tools)
        self._tool_names = None if tool_names is None else tuple(tool_names)
        if handler is not None:
            self._read_class(handler, points or {})
        elif points or hooks:
            raise TypeError(
                "`points` and `hooks` are for a class: give a decorator `access`, `side_effects`, `reads` and `windows`"
            )

    @property
    def name(self) -> str:
        """The name under which it is registered at the gateway."""
        return self._name

    @property
    def version(self) -> str:
        """Its semantic version."""
        return self._version

    def _manifest(self) -> Manifest:
        """What it says of itself, when all functions are decorated.

        :raises TypeError: If it can't work.
        """
        tool_names = self._tool_names
        if tool_names is None:
            if self._make_tools is not None:
                raise TypeError("`tool_names` is missing: the names that the tools may have, as globs")
            tool_names = tuple(tool.name for tool in self._tools)
        if not (self._offers or self._hooks or tool_names):
            raise TypeError(f"the plugin {self._name} does nothing: it needs a handler of a point, a hook, or a tool")
        return Manifest(
            self._name,
            self._version,
            self._capabilities,
            self._config,
            self._tenant_config,
            self._config_schema,
            self._tenant_config_schema,
            {point: self._offers[point] for point in POINTS if point in self._offers},
            self._hooks,
            tool_names,
        )

    async def _start(self, config: object, host: Host) -> Instance:
        """Starts an instance with a configuration that has been checked."""
        if self._class is not None:
            return await self._start_object(self._class, config, host)
        start = self._functions.get("initialize")
        state = None if start is None else await start.call(config, host)
        shutdown = self._functions.get("shutdown")
        points = {point: self._functions[point] for point in self._offers}
        flush = None if shutdown is None else lambda: shutdown.call(state)
        try:
            tools = self._tools_of(None, config, state)
        except BaseException:
            # What `initialize` made must not stay behind.
            if flush is not None:
                await flush()
            raise
        return Instance(points, self._hook_functions, tools, config, state, flush)

    async def _start_object(self, handler: type, config: object, host: Host) -> Instance:
        takes_config = handler.__init__ is not object.__init__  # type: ignore[misc]
        owner = handler(config, host) if takes_config else handler()
        hidden = next((it for it in POINTS if it not in self._offers and callable(getattr(owner, it, None))), None)
        if hidden is not None:
            # The manifest lists the methods of the class. A handler that only the object has would never be called.
            raise TypeError(f"`{hidden}` of {handler.__name__} is set on the object: write it as a method")
        if hasattr(owner, "initialize"):
            await Handler.of(owner.initialize).call()
        points = {point: Handler.of(getattr(owner, point)) for point in self._offers}
        hooks = {hook: Handler.of(owner.on_hook) for hook in self._hooks}
        shutdown = getattr(owner, "shutdown", None)
        flush = None if shutdown is None else Handler.of(shutdown).call
        return Instance(points, hooks, self._tools_of(owner, config, None), config, None, flush)

    def _tools_of(self, owner: object, config: object, state: object) -> dict[str, _AnyTool]:
        made = () if self._make_tools is None else self._make_tools(config, state)
        tools = [*self._tools, *made]
        if self._class is not None:
            methods = set(map(id, _tools_in(self._class)))
            tools = [tool.bound_to(owner) if id(tool) in methods else tool for tool in tools]
        _check_tool_names(tools)
        return {tool.name: tool for tool in tools}

    def _read_class(self, handler: type, points: Mapping[PointName, Offer]) -> None:
        check_class(handler)
        for point in POINTS:
            if callable(getattr(handler, point, None)):
                _check_method(handler, point)
                self._offers[point] = points.get(point, Offer())
        for point in points:
            if point not in self._offers:
                raise TypeError(f"`points` has `{point}`, which has no handler: write `def {point}(self, call, ctx)`")
        has_method = callable(getattr(handler, ON_HOOK, None))
        if bool(self._hooks) != has_method:
            raise TypeError(
                "`hooks` and `on_hook` need each other: the first names the hooks, the second answers at them"
            )
        if has_method:
            _check_method(handler, ON_HOOK)
        self._tools.extend(_tools_in(handler))

    def _add_point(self, point: PointName, function: Callable[..., object], offer: Offer) -> None:
        check_offer(point, offer)
        self._set(point, function, ("call", "ctx"))
        self._offers[point] = offer

    def _add_hook(self, name: str, function: Callable[..., object], offer: Offer) -> None:
        self._check_function(function, f"the handler of `{name}`", ("call", "ctx"))
        if name in self._hooks:
            raise TypeError(f"the hook `{name}` has a handler already: the first one would never be called")
        self._hooks[name] = offer
        self._hook_functions[name] = Handler.of(function)

    def _add_tool(self, tool: _AnyTool) -> None:
        if self._class is not None:
            raise TypeError("a tool stands beside a class: write it as a method of the class")
        _check_tool_names([*self._tools, tool])
        self._tools.append(tool)

    def _set(self, name: str, function: Callable[..., object], parameters: tuple[str, ...]) -> None:
        self._check_function(function, f"`{name}`", parameters)
        if name in self._functions:
            raise TypeError(f"`{name}` has a function already: the first one would never be called")
        self._functions[name] = Handler.of(function)

    def _check_function(self, function: Callable[..., object], what: str, parameters: Sequence[str]) -> None:
        if self._class is not None:
            raise TypeError(f"{what} stands beside a class: write it as a method of the class")
        if not callable(function):
            raise TypeError(f"{what} is {function!r}, not a function")
        check_parameters(function, what, parameters)


def _check_method(handler: type, name: str) -> None:
    is_bound = isinstance(members_of(handler).get(name), (staticmethod, classmethod))
    expected = ("call", "ctx") if is_bound else ("self", "call", "ctx")
    check_parameters(getattr(handler, name), f"`{name}`", expected)


def _tools_in(handler: type) -> list[_AnyTool]:
    """The methods of a class that are tools."""
    return [member for member in members_of(handler).values() if isinstance(member, Tool)]


def _check_tool_names(tools: Sequence[_AnyTool]) -> None:
    names = [tool.name for tool in tools]
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise TypeError(f"two of the plugin's tools are named `{twice}`")
