"""The gateway's services of the test kit, as a real gRPC server at a Unix socket."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio

from hookgate.host import Storage
from hookgate.host._client import CallAccess, HostClient
from hookgate.host._links import HostLinks, HostOffer
from hookgate.point import CAPABILITIES, Capability
from hookgate.testing._host_services import HostCall, HostServices
from hookgate.testing._host_status import HostStatusError

ALL: tuple[Capability, ...] = ("storage:read", "storage:write", "log", "emit")
assert set(ALL) == set(CAPABILITIES)

Behaviour = Callable[[bytes, "grpc.aio.ServicerContext[bytes, bytes]"], Awaitable[bytes]]


class FakeHost(HostServices):
    """A gateway's host services at a Unix socket."""

    def __init__(self, socket: Path | None = None, quota_bytes: float = float("inf")) -> None:
        super().__init__(quota_bytes)
        self._folder = tempfile.TemporaryDirectory(prefix="fake-host-")
        self.socket = socket or Path(self._folder.name, "host.sock")
        self.endpoint = f"unix://{self.socket}"
        self._links: list[HostLinks] = []
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        handlers = {path: self._unary(path) for path in self.handlers}
        self._server.add_generic_rpc_handlers((_Handlers(handlers),))

    async def __aenter__(self) -> FakeHost:
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Ends all connections."""
        for links in self._links:
            links.close()
        await self._server.stop(None)
        self._folder.cleanup()

    def offer(self, token: str = "", gateway: str = "g") -> HostOffer:
        """What a gateway says in Initialize."""
        return HostOffer(gateway, self.endpoint, token)

    def client_of(
        self, plugin: str, tenant: str | None = None, capabilities: tuple[Capability, ...] = ALL
    ) -> HostClient:
        """Calls these services for a plugin."""
        links = HostLinks()
        self._links.append(links)
        links.add(self.offer())
        return HostClient(links, CallAccess(self.issue_token(plugin, tenant, capabilities)))

    def storage_of(self, plugin: str, tenant: str | None = None) -> Storage:
        """A plugin's data, for a test to prepare or to read."""
        return Storage(self.client_of(plugin, tenant))

    def _unary(self, path: str) -> Behaviour:
        async def behave(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            received = context.invocation_metadata() or ()
            headers = {key: value for key, value in received if isinstance(value, str)}
            time_left = context.time_remaining()
            call = HostCall(path, headers, float("inf") if time_left is None else time_left)
            try:
                return await self.answer(call, request)
            except HostStatusError as status:
                await context.abort(status.code, status.details, status.trailing_metadata)

        return behave


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, behaviours: dict[str, Behaviour]) -> None:
        self._behaviours = behaviours

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        behaviour = self._behaviours.get(handler_call_details.method)
        return behaviour and grpc.unary_unary_rpc_method_handler(behaviour)


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition, for at most 10 s."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 10 s"
        await asyncio.sleep(0.005)
