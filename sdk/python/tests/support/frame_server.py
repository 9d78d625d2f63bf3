"""A server that sees the frames of HTTP/2, which gRPC's own servers hide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hookgate._proto import host_pb2

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING = 0, 1, 3, 4, 6
_END_STREAM = _ACK = 1
_END_HEADERS = 4
# `:status: 200` and `content-type: application/grpc`, without compression.
_HEAD = b"\x88\x0f\x10\x10application/grpc"
# `grpc-status: 0`
_TRAILERS = b"\x00\x0bgrpc-status\x010"


class FrameServer:
    """Takes registrations. It tells an orderly end of the requests from a reset."""

    def __init__(self) -> None:
        self.answers = False
        """Whether it answers messages."""
        self.asked = asyncio.Event()
        """A message came."""
        self.broken = asyncio.Event()
        """A stream was reset before the client had closed its side."""
        self.closed = asyncio.Event()
        """The client closed its side of a stream."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Listens, and gives the address."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_frame(_SETTINGS, 0, 0, b""))
        assert await reader.readexactly(len(_PREFACE)) == _PREFACE
        try:
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                self._take(writer, head[3], head[4], int.from_bytes(head[5:], "big"), payload)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _take(self, writer: asyncio.StreamWriter, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            writer.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _RST_STREAM:
            self.broken.set()
        elif kind == _DATA and flags & _END_STREAM:
            self.closed.set()
            writer.write(_frame(_HEADERS, _END_HEADERS | _END_STREAM, stream, _TRAILERS))
        elif kind == _DATA:
            self.asked.set()
            if self.answers:
                answer = host_pb2.RegisterResponse(lease_ms=30_000).SerializeToString()
                message = b"\0" + len(answer).to_bytes(4, "big") + answer
                writer.write(_frame(_HEADERS, _END_HEADERS, stream, _HEAD) + _frame(_DATA, 0, stream, message))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
