"""The decorators of `Plugin`, which keep the types of the functions that they take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, overload

from hookgate.context import ConfigT, Context, TenantConfigT
from hookgate.host import Host
from hookgate.payload import AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, HookPayload
from hookgate.point import (
    Access,
    LlmRequestField,
    Offer,
    PointName,
    ResponseField,
    SideEffects,
    ToolCallField,
    ToolResultField,
)
from hookgate.reply import HookReply, LlmRequestReply, ResponseReply, ToolCallReply, ToolResultReply
from hookgate.tool import Tool, ToolAnnotations, tool

_C = TypeVar("_C")
_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., object])
_LlmR = TypeVar("_LlmR", bound=Awaitable[LlmRequestReply] | LlmRequestReply)
_CallR = TypeVar("_CallR", bound=Awaitable[ToolCallReply] | ToolCallReply)
_ResultR = TypeVar("_ResultR", bound=Awaitable[ToolResultReply] | ToolResultReply)
_ResponseR = TypeVar("_ResponseR", bound=Awaitable[ResponseReply] | ResponseReply)
_HookR = TypeVar("_HookR", bound=Awaitable[HookReply] | HookReply)
_StartR = TypeVar("_StartR")
_EndR = TypeVar("_EndR", bound=Awaitable[None] | None)

_LlmHandler: TypeAlias = Callable[[BeforeLlmRequest, Context[_C, _T, Any]], _LlmR]
_CallHandler: TypeAlias = Callable[[BeforeToolCall, Context[_C, _T, Any]], _CallR]
_ResultHandler: TypeAlias = Callable[[AfterToolResult, Context[_C, _T, Any]], _ResultR]
_ResponseHandler: TypeAlias = Callable[[BeforeResponse, Context[_C, _T, Any]], _ResponseR]
_HookHandler: TypeAlias = Callable[[HookPayload[Any], Context[_C, _T, Any]], _HookR]


class Decorators(Generic[ConfigT, TenantConfigT]):
    """The decorators of a plugin. A decorated function stays what it is."""

    @overload
    def before_llm_request(
        self, function: _LlmHandler[ConfigT, TenantConfigT, _LlmR], /
    ) -> _LlmHandler[ConfigT, TenantConfigT, _LlmR]: ...

    @overload
    def before_llm_request(
        self,
        /,
        *,
        access: Access = "modify",
        side_effects: SideEffects = "some",
        reads: Sequence[LlmRequestField] | None = None,
    ) -> Callable[[_LlmHandler[ConfigT, TenantConfigT, _LlmR]], _LlmHandler[ConfigT, TenantConfigT, _LlmR]]: ...

    def before_llm_request(
        self,
        function: Any = None,
        /,
        *,
        access: Access = "modify",
        side_effects: SideEffects = "some",
        reads: Sequence[LlmRequestField] | None = None,
    ) -> Any:
        """The function is called when an agent is about to send user input to a model.

        :param access: `read`: it may look and cancel. `modify`: it may also patch the payload.
        :param side_effects: Whether a call counts, stores or sends something.
        :param reads: The large members of the payload that it reads; the gateway sends no others. By default all.
        """
        return self._at_point("before_llm_request", function, Offer(access, side_effects, reads))

    @overload
    def before_tool_call(
        self, function: _CallHandler[ConfigT, TenantConfigT, _CallR], /
    ) -> _CallHandler[ConfigT, TenantConfigT, _CallR]: ...

    @overload
    def before_tool_call(
        self,
        /,
        *,
        access: Access = "modify",
        side_effects: SideEffects = "some",
        reads: Sequence[ToolCallField] | None = None,
    ) -> Callable[[_CallHandler[ConfigT, TenantConfigT, _CallR]], _CallHandler[ConfigT, TenantConfigT, _CallR]]: ...

    def before_tool_call(
        self,
        function: Any = None,
        /,
        *,
        access: Access = "modify",
        side_effects: SideEffects = "some",
        reads: Sequence[ToolCallField] | None = None,
    ) -> Any:
        """The function is called when an agent is about to run a tool. See `before_llm_request`."""
        return self._at_point("before_tool_call", function, Offer(access, side_effects, reads))

    @overload
    def after_tool_result(
        self, function: _ResultHandler[ConfigT, TenantConfigT, _ResultR], /
    ) -> _ResultHandler[ConfigT, TenantConfigT, _ResultR]: ...

    @overload
    def after_tool_result(
        self,
        /,
        *,
        access: Access = "modify",
        side_effects: SideEffects = "some",
        reads: Sequence[ToolResultField] | None = None,
    ) -> Callable[
        [_ResultHandler[ConfigT, TenantConfigT, _ResultR]], _ResultHandler[ConfigT, TenantConfigT, _ResultR]
    ]: ...

    def after_tool_result(
        self,
        function: Any = None,
        /,
        *,
        access: Access = "modify",
        side_effects: SideEffects = "some",
        reads: Sequence[ToolResultField] | None = None,
    ) -> Any:
        """The function is called when an agent is about to hand a tool's result, or its failure, back to the model.

        See `before_llm_request`.
        """
        return self._at_point("after_tool_result", function, Offer(access, side_effects, reads))

    @overload
    def before_response(
        self, function: _ResponseHandler[ConfigT, TenantConfigT, _ResponseR], /
    ) -> _ResponseHandler[ConfigT, TenantConfigT, _ResponseR]: ...

    @overload
    def before_response(
        self,
        /,
        *,
        access: Access = "modify",
        side_effects: SideEffects = "some",
        reads: Sequence[ResponseField] | None = None,
        windows: bool = False,
    ) -> Callable[
        [_ResponseHandler[ConfigT, TenantConfigT, _ResponseR]], _ResponseHandler[ConfigT, TenantConfigT, _ResponseR]
    ]: ...

    def before_response(
        self,
        function: Any = None,
        /,
        *,
        access: Access = "modify",
        side_effects: SideEffects = "some",
        reads: Sequence[ResponseField] | None = None,
        windows: bool = False,
    ) -> Any:
        """The function is called when an agent is about to show the answer to the user. See `before_llm_request`.

        :param windows: Whether it also judges an answer in parts (`call.window`), while the model still writes it.
        """
        return self._at_point("before_response", function, Offer(access, side_effects, reads, windows))

    def hook(
        self, name: str, *, side_effects: SideEffects = "some"
    ) -> Callable[[_HookHandler[ConfigT, TenantConfigT, _HookR]], _HookHandler[ConfigT, TenantConfigT, _HookR]]:
        """The function is called when something happened in the agent's life. Nothing is decided.

        It returns what `contribute` makes.

        :param name: `[a-z][a-z0-9_]{0,63}`, such as `recall` (docs/protocol.md, section 9).
        :param side_effects: Whether a call counts, stores or sends something.
        """
        if not isinstance(name, str):
            raise TypeError('a hook needs its name: write `@plugin.hook("recall")`')

        def add(
            function: _HookHandler[ConfigT, TenantConfigT, _HookR],
        ) -> _HookHandler[ConfigT, TenantConfigT, _HookR]:
            self._add_hook(name, function, Offer(side_effects=side_effects))
            return function

        return add

    def tool(
        self, name: str, *, description: str | None = None, annotations: ToolAnnotations | None = None
    ) -> Callable[[_F], Tool[_F]]:
        """Makes a tool of a function, and adds it to the plugin. See `hookgate.tool`."""
        make = tool(name, description=description, annotations=annotations)

        def add(function: _F) -> Tool[_F]:
            made = make(function)
            self._add_tool(made)
            return made

        return add

    def initialize(self, function: Callable[[ConfigT, Host], _StartR], /) -> Callable[[ConfigT, Host], _StartR]:
        """The function starts the plugin with a configuration; what it returns is `ctx.state`.

        It is called once per configuration; several may exist side by side. It has 10 s. It raises `PluginError.config`
        if the configuration is wrong.
        """
        self._set("initialize", function, ("config", "host"))
        return function

    def shutdown(self, function: Callable[[Any], _EndR], /) -> Callable[[Any], _EndR]:
        """The function is called with `ctx.state` when no gateway uses the configuration any more, or at the end.

        It flushes within 5 s, and doesn't exit: calls that began earlier may still be running.
        """
        self._set("shutdown", function, ("state",))
        return function

    def _at_point(self, point: PointName, function: Any, offer: Offer) -> Any:
        def add(function: Any) -> Any:
            self._add_point(point, function, offer)
            return function

        return add if function is None else add(function)

    def _add_point(self, point: PointName, function: Callable[..., object], offer: Offer) -> None:
        raise NotImplementedError

    def _add_hook(self, name: str, function: Callable[..., object], offer: Offer) -> None:
        raise NotImplementedError

    def _add_tool(self, tool: Tool[Any]) -> None:
        raise NotImplementedError

    def _set(self, name: str, function: Callable[..., object], parameters: tuple[str, ...]) -> None:
        raise NotImplementedError
