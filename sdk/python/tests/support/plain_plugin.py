"""A plugin without the SDK's server, that shows what a gateway hands over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.message import Message

from hookgate._proto import plugin_pb2 as pb
from hookgate._proto import types_pb2
from hookgate.host._methods import A, Q

_Context = grpc.aio.ServicerContext[object, object]


class PlainPlugin:
    """Lets every tool call pass, and keeps what it was told."""

    def __init__(self, name: str, socket: Path, capabilities: Sequence[str] = ()) -> None:
        self.name = name
        self.endpoint = f"unix://{socket}"
        self.initialized: asyncio.Queue[pb.InitializeRequest] = asyncio.Queue()
        self.calls: asyncio.Queue[pb.Call] = asyncio.Queue()
        self._capabilities = capabilities
        self._socket = socket

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves it until the end of the block."""
        server = grpc.aio.server()
        handlers = {
            "Describe": _handler(self._describe, pb.DescribeRequest),
            "Initialize": _handler(self._initialize, pb.InitializeRequest),
            "BeforeToolCall": _handler(self._before_tool_call, pb.BeforeToolCallRequest),
            "Shutdown": _handler(self._shutdown, pb.ShutdownRequest),
        }
        service = grpc.method_handlers_generic_handler("hookgate.plugin.v1.PluginService", handlers)
        server.add_generic_rpc_handlers((service,))
        server.add_insecure_port(f"unix:{self._socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    async def _describe(self, _request: pb.DescribeRequest, _context: _Context) -> pb.DescribeResponse:
        offer = pb.PointOffer(
            point=types_pb2.EXTENSION_POINT_BEFORE_TOOL_CALL,
            access=pb.ACCESS_READ,
            side_effects=pb.SIDE_EFFECTS_SOME,
        )
        return pb.DescribeResponse(
            name=self.name,
            version="1.0.0",
            protocol_versions=[1],
            points=[offer],
            capabilities=self._capabilities,
        )

    async def _initialize(self, request: pb.InitializeRequest, _context: _Context) -> pb.InitializeResponse:
        self.initialized.put_nowait(request)
        return pb.InitializeResponse()

    async def _before_tool_call(
        self, request: pb.BeforeToolCallRequest, _context: _Context
    ) -> pb.BeforeToolCallResponse:
        self.calls.put_nowait(request.call)
        response = pb.BeforeToolCallResponse()
        # The name of this field is a word of Python's own.
        getattr(response, "continue").SetInParent()
        return response

    async def _shutdown(self, _request: pb.ShutdownRequest, _context: _Context) -> pb.ShutdownResponse:
        return pb.ShutdownResponse()


def _handler(
    behaviour: Callable[[Q, _Context], Awaitable[A]], request: type[Q]
) -> grpc.RpcMethodHandler[Message, Message]:
    handler: grpc.RpcMethodHandler[Message, Message] = grpc.unary_unary_rpc_method_handler(
        behaviour, request.FromString, lambda answer: answer.SerializeToString()
    )
    return handler
