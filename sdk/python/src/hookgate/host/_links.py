"""What gateways offer to one instance of a plugin, and the tokens for the plugin's own data."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Final

import grpc.aio

from hookgate._proto import host_pb2
from hookgate.host._connection import (
    Connect,
    ConnectError,
    HostConnection,
    acquire_connection,
)
from hookgate.host._dial import DialError
from hookgate.host._errors import HostError, not_offered
from hookgate.host._methods import RENEW_TOKEN

logger = logging.getLogger("hookgate.host")

_INITIAL_LIFE: Final = 24 * 60 * 60.0
"""How long the token of Initialize is valid, in seconds."""
_RENEWAL_RETRY: Final = 60.0
"""Seconds after which a renewal is tried again after a failure."""
_MAX_RENEWAL: Final = 5.0
"""How long a renewal may take, in seconds."""
_HEADER_TEXT: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class HostOffer:
    """What a gateway offers, as it says in Initialize."""

    gateway: str
    """The gateway's instance id."""
    endpoint: str
    """Where its services are; empty if it offers none."""
    token: str
    """The token for the plugin's own data; empty if the gateway can't sign tokens yet. A secret."""

    def __repr__(self) -> str:
        return f"HostOffer(gateway={self.gateway!r}, endpoint={self.endpoint!r})"


@dataclass(frozen=True, slots=True)
class _PluginToken:
    """The token for the plugin's own data. Times are those of `time.monotonic()`."""

    header: str
    expires_at: float
    renew_at: float


def bearer(token: str) -> str | None:
    """The value of the `authorization` header; `None` if there is no token, or no header can carry it."""
    return f"Bearer {token}" if _HEADER_TEXT.fullmatch(token) else None


def _plugin_token(token: str, life: float, now: float) -> _PluginToken | None:
    """A token with `life` seconds left is renewed after half of it."""
    header = bearer(token)
    return None if header is None else _PluginToken(header, now + life, now + life / 2)


class Clock:
    """The time, and waiting for it. Another one only in tests."""

    def now(self) -> float:
        """Seconds since any fixed moment, as `time.monotonic()`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class HostLink:
    """What one gateway offers."""

    __slots__ = ("_clock", "_connection", "_renewal", "_token", "gateway", "has_failed")

    def __init__(self, offer: HostOffer, connect: Connect, clock: Clock) -> None:
        self.gateway = offer.gateway
        self._connection = _connection_to(offer.endpoint, connect)
        self.has_failed = False
        """Whether the last call failed. Other gateways are tried before this one, until it answers again."""
        self._clock = clock
        self._token = _plugin_token(offer.token, _INITIAL_LIFE, clock.now())
        self._renewal: asyncio.Task[None] | None = None

    @property
    def authorization(self) -> str | None:
        """The header for the plugin's own data; `None` if the gateway sent no token."""
        return None if self._token is None else self._token.header

    def connection(self) -> HostConnection:
        """The connection.

        :raises HostError: If there is none.
        """
        if self._connection is None:
            raise not_offered()
        if isinstance(self._connection, DialError):
            raise HostError("unavailable", str(self._connection))
        return self._connection

    def keep_token(self) -> None:
        """From now on renews the token at half of its life."""
        connection = self._connection
        if self._renewal is None and connection is not None and not isinstance(connection, DialError):
            self._renewal = asyncio.get_running_loop().create_task(self._keep_token(connection))

    def close(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        if self._connection is not None and not isinstance(self._connection, DialError):
            self._connection.release()

    async def _keep_token(self, connection: HostConnection) -> None:
        # An expired token can't be renewed any more.
        while self._token is not None and self._token.renew_at < self._token.expires_at:
            await self._clock.sleep(self._token.renew_at - self._clock.now())
            renewed = await self._renew(connection, self._token)
            self._token = renewed or replace(self._token, renew_at=self._clock.now() + _RENEWAL_RETRY)

    async def _renew(self, connection: HostConnection, token: _PluginToken) -> _PluginToken | None:
        metadata = (("authorization", token.header),)
        deadline = time.monotonic() + _MAX_RENEWAL
        try:
            request = host_pb2.RenewTokenRequest()
            answer = await connection.call(RENEW_TOKEN, request, metadata=metadata, deadline=deadline)
        except (ConnectError, grpc.aio.AioRpcError) as error:
            reason = f"{error.code().name}: {error.details()}" if isinstance(error, grpc.aio.AioRpcError) else error
            logger.warning("can't renew the token for host services of the gateway %s: %s", self.gateway, reason)
            return None
        return _plugin_token(answer.token, answer.expires_in_ms / 1000, self._clock.now())


def _connection_to(endpoint: str, connect: Connect) -> HostConnection | DialError | None:
    if not endpoint:
        return None
    try:
        return connect(endpoint)
    except DialError as error:
        return error


class HostLinks:
    """What the gateways that hold an instance offer.

    A call doesn't say which gateway made it, so any of them may get the plugin's calls; gateways with the same database
    accept each other's tokens. It belongs to one event loop.
    """

    __slots__ = ("_clock", "_connect", "_holders", "_keeps_tokens", "_links", "_tasks", "is_closed", "loop")

    def __init__(self, connect: Connect = acquire_connection, clock: Clock | None = None) -> None:
        self.loop = _running_loop()
        """The loop in which it is used; `None` if it was made outside of one."""
        self.is_closed = False
        """Whether `close` was called."""
        self._connect = connect
        self._clock = clock or Clock()
        self._links: list[HostLink] = []
        """The most recently added one first."""
        self._keeps_tokens = False
        self._holders = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, offer: HostOffer) -> None:
        """Adds what a gateway offers, in place of an earlier offer of the same gateway."""
        if self.is_closed:
            return
        # Before the earlier link is closed, so that they share a connection.
        link = HostLink(offer, self._connect, self._clock)
        self._drop(offer.gateway)
        self._links.insert(0, link)
        if self._keeps_tokens:
            link.keep_token()

    def remove(self, gateway: str) -> None:
        """Removes what a gateway offers, unless it is the last one, which the plugin may need to flush."""
        if len(self._links) > 1:
            self._drop(gateway)

    def candidates(self) -> list[HostLink]:
        """The links in the order in which to try them: the newest first, and those that failed last."""
        return sorted(self._links, key=lambda link: link.has_failed)

    def keep_tokens(self) -> None:
        """From now on, keeps the tokens for the plugin's own data valid. Any thread may call it."""
        if not self._keeps_tokens:
            self._keeps_tokens = True
            run_in(self.loop, self._keep_tokens)

    def close(self) -> None:
        """Ends the use of all gateways.

        Calls in flight end normally, and queued log lines are still sent; later calls fail.
        """
        self.is_closed = True
        if self._holders == 0:
            self._close_links()

    async def settled(self) -> None:
        """Waits until the work in the background has ended, so until log lines are sent.

        A process that ends before would lose them.
        """
        if self._tasks:
            await asyncio.wait(self._tasks)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Runs work in the background, and keeps the gateways usable until it ends, even if `close` is called."""
        self._holders += 1
        task = asyncio.get_running_loop().create_task(self._hold_during(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hold_during(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        finally:
            # At once, so that whoever waits for the work finds the links closed.
            self._holders -= 1
            if self.is_closed and self._holders == 0:
                self._close_links()

    def _keep_tokens(self) -> None:
        for link in self._links:
            link.keep_token()

    def _close_links(self) -> None:
        for link in self._links:
            link.close()
        self._links.clear()

    def _drop(self, gateway: str) -> None:
        for link in [link for link in self._links if link.gateway == gateway]:
            self._links.remove(link)
            link.close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def run_in(loop: asyncio.AbstractEventLoop | None, action: Callable[[], None]) -> None:
    """Runs an action in a loop: at once if it is the running one, or if there is none, otherwise soon."""
    if loop is None or _running_loop() is loop:
        action()
    else:
        loop.call_soon_threadsafe(action)
