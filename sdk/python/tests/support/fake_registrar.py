"""A gateway that takes registrations as a test tells it, as a real gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc
import grpc.aio

from hookgate._proto import host_pb2

_PATH = "/hookgate.host.v1.RegistrationService/Register"
Event: TypeAlias = tuple[str, ...]
"""`stream` with its `authorization`, `registration` with the plugin and the endpoint, `renewal`, or `ended`.

gRPC doesn't tell a server whether the client closed its side or broke the stream.
"""
Refusal: TypeAlias = tuple[grpc.StatusCode, str]
_Context: TypeAlias = "grpc.aio.ServicerContext[host_pb2.RegisterRequest, host_pb2.RegisterResponse]"


class FakeRegistrar(grpc.GenericRpcHandler):
    """A gateway that takes registrations as a test tells it."""

    def __init__(self) -> None:
        self.answer: host_pb2.RegisterResponse | None = host_pb2.RegisterResponse(lease_ms=300)
        """What it answers to each message; `None`: nothing."""
        self.refusal: Refusal | None = None
        """How it refuses streams."""
        self.ends_closed_streams = True
        """Whether it ends a stream that the client closed."""
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self,))
        self._end: asyncio.Future[Refusal] = asyncio.get_running_loop().create_future()

    async def listen(self, target: str = "127.0.0.1:0", tls: grpc.ServerCredentials | None = None) -> str:
        """Starts to listen, and returns its endpoint."""
        port = self._server.add_secure_port(target, tls) if tls else self._server.add_insecure_port(target)
        await self._server.start()
        if target.startswith("unix:"):
            return f"unix://{target.removeprefix('unix:')}"
        return f"{'https' if tls else 'http'}://{target.removesuffix(':0')}:{port}"

    async def stop(self) -> None:
        await self._server.stop(None)

    def end_stream(self, code: grpc.StatusCode, details: str) -> None:
        """Ends the open stream with a status. What its client does afterwards is no event."""
        self._end.set_result((code, details))
        self._end = asyncio.get_running_loop().create_future()

    async def next(self) -> Event:
        """The next event."""
        return await asyncio.wait_for(self._events.get(), 10)

    async def next_but_renewal(self) -> Event:
        """The next event that is no renewal, which may be under way at any moment."""
        while True:
            event = await self.next()
            if event != ("renewal",):
                return event

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[host_pb2.RegisterRequest, host_pb2.RegisterResponse] | None:
        if handler_call_details.method != _PATH:
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._serve, host_pb2.RegisterRequest.FromString, host_pb2.RegisterResponse.SerializeToString
        )

    async def _serve(self, _requests: AsyncIterator[host_pb2.RegisterRequest], context: _Context) -> None:
        headers = dict(context.invocation_metadata() or ())
        self._events.put_nowait(("stream", str(headers["authorization"])))
        if self.refusal is not None:
            await context.abort(*self.refusal)
        end = self._end
        taking = asyncio.ensure_future(self._take(context))
        try:
            both: list[asyncio.Future[None] | asyncio.Future[Refusal]] = [taking, end]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not end.done() and not self.ends_closed_streams:
                await end
        finally:
            taking.cancel()
        if end.done() and end.result()[0] is not grpc.StatusCode.OK:
            await context.abort(*end.result())

    async def _take(self, context: _Context) -> None:
        while True:
            message = await context.read()
            if not isinstance(message, host_pb2.RegisterRequest):
                break
            is_renewal = message == host_pb2.RegisterRequest()
            event = ("renewal",) if is_renewal else ("registration", message.plugin, message.endpoint)
            self._events.put_nowait(event)
            if self.answer is not None:
                await context.write(self.answer)
        self._events.put_nowait(("ended",))
