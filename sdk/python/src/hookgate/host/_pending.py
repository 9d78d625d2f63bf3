"""Calls of the gateway's services that wait to be awaited."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from typing_extensions import ParamSpec

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Pending(Coroutine[Any, Any, _T], Generic[_T]):
    """A coroutine without a truth value, and equal to nothing.

    `if ctx.storage.add("calls", 1, limit=5)` without `await` would be true for every call, so that a limit never holds.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, _T]) -> None:
        self._coroutine = coroutine

    def __bool__(self) -> NoReturn:
        self._coroutine.close()
        raise TypeError("a call of the gateway's services has no truth value before it is awaited")

    def __eq__(self, other: object) -> NoReturn:
        self._coroutine.close()
        raise TypeError("a call of the gateway's services can't be compared before it is awaited")

    __hash__ = object.__hash__

    def __await__(self) -> Generator[Any, Any, _T]:
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        return self._coroutine.send(value)

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> Any:
        # One argument is the form that Python 3.12 and newer want.
        if isinstance(typ, BaseException):
            return self._coroutine.throw(typ)
        return self._coroutine.throw(typ, val, tb)

    def close(self) -> None:
        self._coroutine.close()


def pending(function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Pending[_T]]:
    """A coroutine function whose calls have no truth value."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> Pending[_T]:
        return Pending(function(*args, **kwargs))

    return call


class PendingEntries(AsyncIterable[_T], Generic[_T]):
    """What `async for` reads; without a truth value, because it isn't read yet."""

    __slots__ = ("_entries",)

    def __init__(self, entries: AsyncGenerator[_T, None]) -> None:
        self._entries = entries

    def __aiter__(self) -> AsyncGenerator[_T, None]:
        return self._entries

    def __bool__(self) -> NoReturn:
        raise TypeError("a list of entries has no truth value before `async for` reads it")
