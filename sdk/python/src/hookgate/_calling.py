"""Calls what an author wrote: coroutine functions in the event loop, plain functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

_MAX_THREADS: Final = 64
"""As many calls as a gateway makes at the same time by default. Threads are started when they are needed."""

_threads: Final = ThreadPoolExecutor(_MAX_THREADS, "hookgate")

_loop_of_call: Final[ContextVar[asyncio.AbstractEventLoop]] = ContextVar("hookgate_loop_of_call")
"""The event loop that serves the plugin, in the threads of plain functions."""


def wait(pending: Coroutine[Any, Any, _T]) -> _T:
    """Waits for a call of the gateway's services in a handler that is a plain function.

        def before_tool_call(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
            counted = wait(ctx.storage.add("calls", 1, limit=100, window="day"))

    :raises RuntimeError: In a coroutine, which has to use `await`, and in threads that the plugin started itself.
    """
    loop = _loop_of_call.get(None)
    try:
        asyncio.get_running_loop()
        mistake: str | None = "wait is for plain functions: use await in a coroutine"
    except RuntimeError:
        mistake = None if loop is not None else "wait works in the thread of a handler only"
    if loop is None or mistake is not None:
        pending.close()
        raise RuntimeError(mistake)
    return asyncio.run_coroutine_threadsafe(pending, loop).result()


class Calls:
    """What goes on in threads for one call of a gateway. A thread can't be interrupted."""

    __slots__ = ("abandoned", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        """Whether the gateway gave up the call."""
        self.abandoned: Future[Any] | None = None
        """The thread that still runs after the gateway gave up the call."""


@dataclass(frozen=True, slots=True)
class Handler:
    """What an author wrote."""

    function: Callable[..., Any]
    is_async: bool
    """Whether calling it returns at once, with something to wait for."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Handler:
        inner = function
        while isinstance(inner, functools.partial):
            inner = inner.func
        call: object = getattr(inner, "__call__", None)  # noqa: B004 - the method itself is needed
        return cls(function, inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(call))

    async def call(self, /, *args: Any, _calls: Calls | None = None, **named: Any) -> Any:
        """Calls it and waits for what it returns. Its context variables are those of the caller."""
        if self.is_async:
            return await self.function(*args, **named)
        result = await _run_in_thread(functools.partial(self.function, *args, **named), _calls)
        # A lambda that calls a coroutine function is a plain function too.
        return await result if inspect.isawaitable(result) else result


def _without_stop_iteration(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except StopIteration as error:
        # A future can't hold it, so the call would hang.
        raise RuntimeError("the handler raised StopIteration") from error


async def _run_in_thread(function: Callable[[], Any], calls: Calls | None) -> Any:
    context = contextvars.copy_context()
    context.run(_loop_of_call.set, asyncio.get_running_loop())
    thread = _threads.submit(context.run, _without_stop_iteration, function)
    try:
        return await asyncio.wrap_future(thread)
    except asyncio.CancelledError:
        if calls is not None:
            calls.cancelled = True
            calls.abandoned = thread
        raise
