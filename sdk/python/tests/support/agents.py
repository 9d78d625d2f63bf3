"""Calls the async and the blocking agent alike."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, TypeAlias, cast

from typing_extensions import Self

from hookgate import agent
from hookgate.agent import sync

Kind: TypeAlias = Literal["async", "blocking"]


def make_agent(kind: Kind, gateway: str, **options: object) -> agent.Agent:
    """An agent. The blocking one is called in threads, with the caller's context, and so looks like the async one."""
    options = {"token": "token", **options}
    if kind == "async":
        return agent.Agent(gateway, **options)  # type: ignore[arg-type]
    return cast("agent.Agent", _InThreads(sync.Agent(gateway, **options)))  # type: ignore[arg-type]


@dataclass
class PluginCall:
    """A call that a plugin is handling, as the agent's option `caller` takes it."""

    time_left_ms: float | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    depth: int = 0


class _InThreads:
    def __init__(self, blocking: sync.Agent) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Callable[..., Coroutine[object, object, object]]:
        method: Callable[..., object] = getattr(self._blocking, name)
        assert inspect.ismethod(method)

        async def call(*args: object, **kwargs: object) -> object:
            return await asyncio.to_thread(method, *args, **kwargs)

        return call

    async def __aenter__(self) -> Self:
        self._blocking.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._blocking.__exit__(kind, error, traceback)
