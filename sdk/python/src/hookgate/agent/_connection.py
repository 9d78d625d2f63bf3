"""Connections to a gateway, one per event loop: a channel of gRPC belongs to the loop that it was made in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager

import grpc.aio

from hookgate._address import Address
from hookgate._channel import TlsFiles, dial


class Connection:
    """A channel with the calls that are in flight on it."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._methods: dict[str, grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = {}
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def method(self, path: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
        """A method that takes and gives encoded messages."""
        method = self._methods.get(path)
        if method is None:
            method = self._methods[path] = self._channel.unary_unary(path)
        return method

    @contextmanager
    def call(self) -> Iterator[None]:
        """Counts a call as in flight."""
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    async def close(self) -> None:
        """Closes the channel after the calls in flight."""
        await self._idle.wait()
        await self._channel.close()


class Connections:
    """The connections of an agent."""

    def __init__(self, address: Address, files: TlsFiles) -> None:
        self._address = address
        self._files = files
        self._by_loop: dict[asyncio.AbstractEventLoop, Connection] = {}
        self._pid = 0
        self._closed = False

    def current(self) -> Connection:
        """The connection of the running loop. It connects with the first call, and again after a loss.

        :raises RuntimeError: The agent is closed, or was used before the process was forked.
        """
        if self._closed:
            raise RuntimeError("the agent is closed")
        if self._pid not in (0, os.getpid()):
            # The threads of gRPC, which end calls also when their time is over, are in the parent only.
            raise RuntimeError("the agent was used before this process was forked: make one in each process")
        loop = asyncio.get_running_loop()
        connection = self._by_loop.get(loop)
        if connection is None:
            for other in [other for other in self._by_loop.copy() if other.is_closed()]:
                self._by_loop.pop(other, None)
            self._pid = os.getpid()
            connection = self._by_loop[loop] = Connection(dial(self._address, self._files))
        return connection

    async def close(self) -> None:
        """Closes the connection of the running loop after its calls in flight. Those of other loops end with theirs."""
        self._closed = True
        connection = self._by_loop.pop(asyncio.get_running_loop(), None)
        self._by_loop.clear()
        if connection is not None and self._pid == os.getpid():
            await connection.close()
