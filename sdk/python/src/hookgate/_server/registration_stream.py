"""One stream of registrations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from hookgate._channel import dial
from hookgate._proto import host_pb2
from hookgate.host._dial import Endpoint

_METHOD: Final = "/hookgate.host.v1.RegistrationService/Register"
_MAX_CLOSE: Final = 1.0
"""How long the gateway may take to remove the endpoint at the end, in seconds."""
_MIN_RENEWAL: Final = 0.05
"""The renewal's shortest interval in seconds, whatever lease the gateway answers."""
_MAX_RENEWAL: Final = 600.0

_Call: TypeAlias = grpc.aio.StreamStreamCall[host_pb2.RegisterRequest, host_pb2.RegisterResponse]
_Asking: TypeAlias = asyncio.Future[host_pb2.RegisterResponse | None]
OnAnswer: TypeAlias = Callable[[host_pb2.RegisterResponse, bool], None]
"""Gets each answer, and whether it is one to a renewal."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a stream ended that was not stopped."""

    code: grpc.StatusCode
    message: str
    was_registered: bool
    """Whether the gateway had answered."""


class RegistrationStream:
    """One stream of registrations. It ends itself when the gateway is silent, and at the stop."""

    def __init__(
        self, request: host_pb2.RegisterRequest, answer_time: float, stop: asyncio.Event, on_answer: OnAnswer
    ) -> None:
        """`answer_time` is how long the gateway may take to answer, in seconds."""
        self._request = request
        self._answer_time = answer_time
        self._stop = stop
        self._on_answer = on_answer
        self._is_registered = False
        self._written = asyncio.Event()

    async def run(self, gateway: Endpoint, authorization: str) -> StreamEnd | None:
        """Registers, and renews until the stop; then removes the endpoint. `None` after a stop."""
        # A connection of its own: an earlier one may lead to a gateway that is about to end.
        channel = dial(gateway.address, gateway.files)
        register: grpc.aio.StreamStreamMultiCallable[host_pb2.RegisterRequest, host_pb2.RegisterResponse]
        register = channel.stream_stream(
            _METHOD, host_pb2.RegisterRequest.SerializeToString, host_pb2.RegisterResponse.FromString
        )
        call = register(metadata=(("authorization", authorization),))
        stopping: asyncio.Future[object] = asyncio.ensure_future(self._stop.wait())
        ending: asyncio.Future[object] = asyncio.ensure_future(call.code())
        try:
            return await self._converse(call, stopping, ending)
        except grpc.aio.AioRpcError as error:
            end = StreamEnd(error.code(), error.details() or "", self._is_registered)
            return None if self._stop.is_set() else end
        finally:
            stopping.cancel()
            ending.cancel()
            # If it is still open, this breaks it, which is no orderly end: the gateway would remove the endpoint,
            # perhaps after another replica has registered it again.
            call.cancel()
            await channel.close()

    async def _converse(
        self, call: _Call, stopping: asyncio.Future[object], ending: asyncio.Future[object]
    ) -> StreamEnd | None:
        request = self._request
        while True:
            asking = asyncio.ensure_future(self._ask(call, request))
            await _first_of(asking, stopping, self._answer_time)
            if self._stop.is_set():
                await self._close(call, asking)
                return None
            if not asking.done():
                asking.cancel()
                reason = f"no answer within {self._answer_time * 1000:g} ms"
                return StreamEnd(grpc.StatusCode.DEADLINE_EXCEEDED, reason, self._is_registered)
            answer = asking.result()
            if answer is None:
                return StreamEnd(grpc.StatusCode.OK, "", self._is_registered)
            self._on_answer(answer, self._is_registered)
            self._is_registered = True
            interval = min(max(answer.lease_ms / 3000, _MIN_RENEWAL), _MAX_RENEWAL)
            # The gateway says nothing unasked, so nothing but the end of the stream comes before.
            await _first_of(ending, stopping, interval)
            if self._stop.is_set():
                await self._close(call, None)
                return None
            request = host_pb2.RegisterRequest()

    async def _ask(self, call: _Call, request: host_pb2.RegisterRequest) -> host_pb2.RegisterResponse | None:
        """Sends a message, and returns the answer; `None` if the gateway ended the stream without an error."""
        self._written.clear()
        with suppress(asyncio.InvalidStateError):  # The call has ended. Reading says why.
            await call.write(request)
        self._written.set()
        answer = await call.read()
        return answer if isinstance(answer, host_pb2.RegisterResponse) else None

    async def _close(self, call: _Call, asking: _Asking | None) -> None:
        """Removes the endpoint, and waits until the gateway has done so."""

        async def end() -> None:
            # The answer to the message may never come, so only its writing is awaited.
            if asking is not None:
                await _first_of(asking, written, _MAX_CLOSE)
            await call.done_writing()
            # Each call may be read by one at a time.
            if asking is not None:
                await asking
            while isinstance(await call.read(), host_pb2.RegisterResponse):
                pass

        written: asyncio.Future[object] = asyncio.ensure_future(self._written.wait())
        try:
            with suppress(grpc.aio.AioRpcError, asyncio.TimeoutError, asyncio.InvalidStateError):
                await asyncio.wait_for(end(), _MAX_CLOSE)
        finally:
            written.cancel()


async def _first_of(one: asyncio.Future[Any], other: asyncio.Future[Any], timeout: float) -> None:
    """Waits until one of both is done, for at most this many seconds."""
    await asyncio.wait([one, other], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
