"""The connection of the blocking agent, which threads share."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import grpc

from hookgate._address import Address
from hookgate._channel import TlsFiles, dial_blocking


class BlockingConnection:
    """A channel with the calls that are in flight on it."""

    def __init__(self, address: Address, files: TlsFiles) -> None:
        self._address = address
        self._files = files
        self._closed = False
        self._channel: grpc.Channel | None = None
        self.forget()
        _connections.add(self)

    def forget(self) -> None:
        """Begins anew in a process that was forked: the channel is the parent's, and so is who holds the lock."""
        if self._channel is not None:
            # To close it here would need threads of gRPC that are in the parent only.
            _abandoned.append(self._channel)
        self._channel = None
        self._lock = threading.Lock()
        self._in_flight = 0

    @contextmanager
    def call(self) -> Iterator[grpc.Channel]:
        """Counts a call as in flight. The channel connects with the first call, and again after a loss.

        :raises RuntimeError: The agent is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the agent is closed")
            if self._channel is None:
                self._channel = dial_blocking(self._address, self._files)
            channel = self._channel
            self._in_flight += 1
        try:
            yield channel
        finally:
            with self._lock:
                self._in_flight -= 1
                self._close_if_unused()

    def close(self) -> None:
        """Closes the channel, after the calls that are in flight."""
        with self._lock:
            self._closed = True
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._closed and self._in_flight == 0 and self._channel is not None:
            self._channel.close()
            self._channel = None


_abandoned: Final[list[grpc.Channel]] = []
"""Channels of the parent process."""

_connections: Final[weakref.WeakSet[BlockingConnection]] = weakref.WeakSet()


def _forget_connections() -> None:
    for connection in _connections:
        connection.forget()


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_forget_connections)
