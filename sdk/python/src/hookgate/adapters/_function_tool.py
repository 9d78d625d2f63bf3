"""Functions that are tools, for code that runs them itself."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec, TypeVar, cast, overload

from hookgate.adapters._guard import (
    BlockedTool,
    FailedTool,
    Gateway,
    OwnResult,
    PatchError,
    Points,
    ReplacedResult,
    ToolCall,
    ToolOutput,
    async_points,
    blocking_points,
    guard_tool_run,
    run_blocking,
)
from hookgate.adapters._values import to_text

P = ParamSpec("P")
R = TypeVar("R")

_UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class ToolError(Exception):
    """A tool raised an error, and a plugin changed what it says. `str()` of it is what the model may read."""


@overload
def guard_tool(gateway: Gateway, function: Callable[P, R], /, *, name: str | None = None) -> Callable[P, R]: ...


@overload
def guard_tool(gateway: Gateway, /, *, name: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def guard_tool(
    gateway: Gateway, function: Callable[..., object] | None = None, /, *, name: str | None = None
) -> Callable[..., object]:
    """A function behind the gateway: `before_tool_call` before it runs, `after_tool_result` on success and on failure.
    Without the function, it is a decorator.

    - Plugins see the arguments by their names. The arguments and the result must be values that JSON has, or that
      pydantic makes some of. A plugin's arguments and results are plain JSON: check their types in the function, for
      instance with `pydantic.validate_call`.
    - A plugin may give the result instead of the function, or change it. It can't change the tool's name.
    - A block raises the `Blocked`. With the scope `step`, give the model its message as the tool's result; with the
      scope `run`, end the run.
    - An error of the function is raised as it is, unless a plugin changed what it says: then a `ToolError`.
    - A missing decision raises the `NoDecision`. Then the run must end.
    - If one of these, or a `PatchError`, ends a run within the function, such as that of an agent, it is raised
      whatever the function makes of it.

    :param gateway: An agent of `hookgate.agent.sync`, or of `hookgate.agent` for an async function.
    :param name: The tool's name. The default is the function's.
    :raises TypeError: A parameter has no name, the function is a generator, or the gateway is no agent for it.
    """
    if function is None:
        return lambda decorated: guard_tool(gateway, decorated, name=name)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError("a generator can't be guarded: its result isn't known before it is used")
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind in _UNNAMED:
            raise TypeError(f"the parameter {parameter.name} has no name in a call, so plugins can't see it")
    tool = _FunctionTool(name or str(getattr(function, "__name__", "tool")), signature)
    if inspect.iscoroutinefunction(function):
        run = cast("Callable[..., Awaitable[object]]", function)
        points = async_points(gateway)

        @functools.wraps(function)
        async def guarded(*args: object, **kwargs: object) -> object:
            return await tool.call(points, run, args, kwargs)

        return guarded
    own_points = blocking_points(gateway)

    async def call(**arguments: object) -> object:
        return function(**arguments)

    @functools.wraps(function)
    def guarded_blocking(*args: object, **kwargs: object) -> object:
        return run_blocking(tool.call(own_points, call, args, kwargs))

    return guarded_blocking


class _FunctionTool:
    def __init__(self, name: str, signature: inspect.Signature) -> None:
        self._name = name
        self._signature = signature

    async def call(
        self,
        points: Points,
        function: Callable[..., Awaitable[object]],
        args: tuple[object, ...],
        kwargs: Mapping[str, Any],
    ) -> object:
        own = self._named(args, kwargs)

        async def run(name: str, arguments: object) -> ToolOutput[object]:
            if name != self._name:
                raise PatchError(f"a plugin changed the call to one of {name}, and there is only {self._name}")
            if not isinstance(arguments, dict):
                raise PatchError("a plugin changed a tool's arguments to what is no object")
            value = await function(**arguments)
            return ToolOutput(value=value, result=value)

        match await guard_tool_run(points, ToolCall(tool_name=self._name, args=own), run):
            case OwnResult(value):
                return value
            case FailedTool(error):
                raise error
            case BlockedTool(blocked):
                raise blocked
            case ReplacedResult(result, success):
                if success:
                    return result
                raise ToolError(to_text(result))

    def _named(self, args: tuple[object, ...], kwargs: Mapping[str, Any]) -> dict[str, object]:
        """The arguments by their names."""
        named = self._signature.bind(*args, **kwargs).arguments
        for parameter in self._signature.parameters.values():
            if parameter.kind == inspect.Parameter.VAR_KEYWORD:
                named |= named.pop(parameter.name, {})
        return named
