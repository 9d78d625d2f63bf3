"""Connections to a gateway's host services. All users of one endpoint in an event loop share one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import grpc
import grpc.aio

from hookgate._channel import dial
from hookgate.host._dial import read_endpoint
from hookgate.host._methods import A, Q, UnaryMethod

Metadata: TypeAlias = tuple[tuple[str, str], ...]

CONNECT_TIMEOUT: Final = 2.0
"""Seconds after which a gateway that accepts connections, but doesn't serve, is given up."""

_REASON_METHOD: Final = "/grpc.health.v1.Health/Check"
_UNREACHED: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
_REASON_PREFIX: Final = "failed to connect to all addresses; last error: "


class ConnectError(Exception):
    """The gateway was not reached, so it certainly did not make the call."""


class HostConnection(Protocol):
    """The way to the services of one gateway."""

    async def call(self, method: UnaryMethod[Q, A], request: Q, *, metadata: Metadata, deadline: float) -> A:
        """Makes one call, until `deadline` of `time.monotonic()`.

        :raises ConnectError: If the gateway certainly did not make the call.
        :raises grpc.aio.AioRpcError: Otherwise.
        """
        ...

    def release(self) -> None:
        """Ends the use of the connection."""
        ...


Connect: TypeAlias = Callable[[str], HostConnection]
"""Finds the connection to an endpoint. Raises an exception if the endpoint can't be used."""

_connections: dict[tuple[asyncio.AbstractEventLoop, str], Connection] = {}
_closing: set[asyncio.Task[None]] = set()


def acquire_connection(endpoint: str) -> Connection:
    """The connection to an endpoint. Release it after use.

    :raises DialError: If the endpoint or a TLS file can't be used.
    """
    key = asyncio.get_running_loop(), endpoint
    connection = _connections.get(key)
    if connection is None:
        parts = read_endpoint(endpoint)
        connection = _connections[key] = Connection(key, dial(parts.address, parts.files))
    connection.retain()
    return connection


class Connection:
    """A connection that is closed after its last use. It is made by the first call."""

    __slots__ = ("_channel", "_key", "_users")

    def __init__(self, key: tuple[asyncio.AbstractEventLoop, str], channel: grpc.aio.Channel) -> None:
        self._key = key
        self._channel = channel
        self._users = 0

    def retain(self) -> None:
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        if self._users > 0:
            return
        del _connections[self._key]
        loop, _ = self._key
        if loop.is_closed():
            return
        # No call is in flight, so nothing waits for the end of this.
        task = loop.create_task(self._channel.close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    async def call(self, method: UnaryMethod[Q, A], request: Q, *, metadata: Metadata, deadline: float) -> A:
        if self._users == 0:
            raise ConnectError("the gateway has released the plugin")
        self.retain()
        try:
            # First, so that a failure afterwards is the call's own: it may have been made.
            if self._channel.get_state() is not grpc.ChannelConnectivity.READY:
                await self._connect(deadline)
            send: grpc.aio.UnaryUnaryMultiCallable[Q, A] = self._channel.unary_unary(
                method.path, method.request.SerializeToString, method.answer.FromString
            )
            return await send(request, timeout=max(0.0, deadline - time.monotonic()), metadata=metadata)
        finally:
            self.release()

    async def _connect(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        try:
            await asyncio.wait_for(self._until_ready(), min(CONNECT_TIMEOUT, left))
        except asyncio.TimeoutError:
            seconds = f"{CONNECT_TIMEOUT:g} s" if left > CONNECT_TIMEOUT else "the time of the call"
            raise ConnectError(f"{self._key[1]}: no connection within {seconds}") from None

    async def _until_ready(self) -> None:
        state = self._channel.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await self._check_failure()
                return
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=True)

    async def _check_failure(self) -> None:
        """Finds out why the channel isn't connected: gRPC says it only to calls, and this one changes nothing.

        :raises ConnectError: Unless it is connected by now.
        """
        try:
            send: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(_REASON_METHOD)
            await send(b"", timeout=CONNECT_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            if error.code() in _UNREACHED:
                reason = (error.details() or error.code().name).removeprefix(_REASON_PREFIX)
                raise ConnectError(f"{self._key[1]}: {reason}") from error
