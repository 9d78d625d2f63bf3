"""Errors of calls and starts, as a gateway sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final, TypeVar

import grpc

from hookgate._server.status import StatusError
from hookgate.errors import status_of

_T = TypeVar("_T")

_MAX_END: Final = 5.0
"""How long a call that was given up may take to end, in seconds."""


class CallError(Exception):
    """Why a call or a start failed, as a gateway sees it. `code` is one of these:

    - `ABORTED`: the plugin raised an exception. It is the `__cause__`.
    - `UNAVAILABLE`, `INVALID_ARGUMENT`, `INTERNAL`: the plugin raised the `PluginError` of this kind, or a gateway
      would reject its reply (`INTERNAL`) or its configuration (`INVALID_ARGUMENT`).
    - `UNIMPLEMENTED`, `NOT_FOUND`: the plugin doesn't answer there, or has no such tool.
    - `FAILED_PRECONDITION`: a gateway would reject the plugin's manifest or tools, or the plugin was shut down.
    - `DEADLINE_EXCEEDED`: the time of `with_time_left` was over.
    """

    code: grpc.StatusCode
    """Why, for programs."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        """Only the SDK makes it."""
        super().__init__(message)
        self.code = code


def rejected(fault: str) -> CallError:
    """A manifest or tools that every gateway would reject."""
    return CallError(grpc.StatusCode.FAILED_PRECONDITION, fault)


def bad_reply(fault: str) -> CallError:
    """A reply that a gateway would reject."""
    return CallError(grpc.StatusCode.INTERNAL, fault)


async def as_gateway(call: Coroutine[None, None, _T], time_left: float | None = None) -> _T:
    """Makes a call of the plugin, and gives it up after `time_left` seconds, or when the caller is cancelled.

    :raises CallError: If it fails.
    """
    # In a task of its own, as a server runs it: a cancellation of the call is then no cancellation of the test.
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait([task], timeout=time_left)
    except asyncio.CancelledError:
        await _give_up(task)
        raise
    if not task.done():
        await _give_up(task)
        raise CallError(grpc.StatusCode.DEADLINE_EXCEEDED, f"no reply within {(time_left or 0) * 1000:g} ms")
    try:
        return task.result()
    except StatusError as error:
        raise CallError(error.code, error.details) from error.__cause__
    except asyncio.CancelledError as error:
        # Something that the plugin waited for was cancelled.
        raise CallError(*status_of(error)) from error


async def _give_up(task: asyncio.Task[_T]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=_MAX_END)
    if task.done() and not task.cancelled():
        task.exception()  # Nobody else asks for it.
