"""The connection to services in the same process. Messages are encoded and decoded as on a socket."""

from __future__ import annotations

import asyncio
import time

import grpc

from hookgate.host._connection import Metadata
from hookgate.host._methods import A, Q, UnaryMethod
from hookgate.testing._host_services import HostCall, HostServices
from hookgate.testing._host_status import HostStatusError


class InProcessConnection:
    """The connection to services in the same process."""

    def __init__(self, services: HostServices) -> None:
        self._services = services

    async def call(self, method: UnaryMethod[Q, A], request: Q, *, metadata: Metadata, deadline: float) -> A:
        time_left = max(0.0, deadline - time.monotonic())
        call = HostCall(method.path, dict(metadata), time_left)
        try:
            answering = self._services.answer(call, request.SerializeToString())
            return method.answer.FromString(await asyncio.wait_for(answering, time_left))
        except HostStatusError as status:
            raise status.to_rpc_error() from None
        except asyncio.TimeoutError:
            raise HostStatusError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded").to_rpc_error() from None

    def release(self) -> None:
        """Nothing to do: the services belong to the test."""
