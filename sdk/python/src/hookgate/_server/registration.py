"""Registers a plugin's process with a gateway, for plugins with `self_registration: true` (docs/protocol.md)."""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import logging
import os
import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

import grpc

from hookgate._address import TcpAddress, parse_address
from hookgate._proto import host_pb2
from hookgate._server.registration_stream import RegistrationStream, StreamEnd
from hookgate.host._dial import DialError, Endpoint, read_endpoint
from hookgate.host._links import bearer

logger = logging.getLogger("hookgate.registration")

TokenSource: TypeAlias = str | os.PathLike[str] | Callable[[], str | Awaitable[str]]
"""A token, the path of a file that contains it (`pathlib.Path`), or a function that returns it.

The file is read, and the function called, for every registration, so the token may be replaced while the plugin is
served.
"""


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """Where and how a process registers itself."""

    gateway: str
    """The gateway's host endpoint: `unix:///path`, `http://host:port` or `https://host:port`.

    `HOOKGATE_HOST_CA_FILE` names the CAs to trust at `https://`; without it, those of the machine.
    `HOOKGATE_HOST_CERT_FILE` and `HOOKGATE_HOST_KEY_FILE` name the client certificate.
    """
    token: TokenSource = field(repr=False)
    """A token of one of the gateway's issuers, with the scope `hookgate:plugin`."""
    endpoint: str | None = None
    """Where gateways reach this process: `unix:///path`, `http://host:port` or `https://host:port`, at most 400 bytes.

    By default the address at which the process listens.
    """


@dataclass(frozen=True, slots=True)
class RegistrationAnswer:
    """What the gateway answered to a registration."""

    lease_ms: int
    """The lease ends this many milliseconds after its last renewal."""
    approval_pending: bool
    """An operator has not approved the plugin yet, so it is called at no point."""


class RegistrationError(Exception):
    """Why a process can't register itself, and what to do."""


@dataclass(frozen=True, slots=True)
class RegistrationTimes:
    """A registration's times in seconds; other than the default only in tests."""

    answer: float = 5.0
    """How long the gateway may take to answer a registration or a renewal."""
    refusal_retry: float = 15.0
    """When to register again after a refusal, which an operator may repair."""


_MAX_ENDPOINT_BYTES: Final = 400
_MIN_BACKOFF: Final = 0.1
"""The wait after the first failure, in seconds."""
_MAX_BACKOFF: Final = 10.0

_LOST_REASON: Final = "Internal error from Core"
"""What grpcio says of a stream that ended while a message was written to it. The gateway's own reason is lost."""

_TRANSIENT_CODES: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNKNOWN,
    }
)


def start_registration(
    plugin: str,
    address: str,
    options: RegistrationOptions,
    times: RegistrationTimes | None = None,
) -> Registration:
    """Begins to register a plugin that listens at `address`.

    :raises RegistrationError: If the gateway or the endpoint can't be used.
    """
    endpoint = address if options.endpoint is None else options.endpoint
    problem = _endpoint_problem(endpoint)
    if problem is not None:
        raise RegistrationError(f"can't register the endpoint `{endpoint}`{problem}")
    _read_gateway(options.gateway)
    return Registration(_Target(plugin, endpoint, options.gateway), options.token, times or RegistrationTimes())


def _endpoint_problem(endpoint: str) -> str | None:
    """Why gateways certainly can't reach `endpoint`; `None` if they may."""
    malformed = ": write unix:///absolute/path, http://host:port or https://host:port, at most 400 bytes"
    try:
        address = parse_address(endpoint)
        is_short = len(endpoint.encode()) <= _MAX_ENDPOINT_BYTES
    except ValueError:
        return malformed
    if not is_short or (isinstance(address, TcpAddress) and address.port == 0):
        return malformed
    if isinstance(address, TcpAddress) and _is_wildcard(address.host):
        options = "`--register-endpoint` on the command line, or with `endpoint` of RegistrationOptions in a program"
        remedy = f"say where they reach this process, for example http://10.1.2.3:7000: with {options}"
        return f", which is no address that gateways can reach: {remedy}"
    return None


def _is_wildcard(host: str) -> bool:
    """Whether the host means all addresses of a machine."""
    try:
        # It knows the short forms, such as `0`, too.
        return not any(socket.inet_aton(host))
    except OSError:
        pass
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped
    return address.is_unspecified or (mapped is not None and mapped.is_unspecified)


def _read_gateway(gateway: str) -> Endpoint:
    try:
        return read_endpoint(gateway)
    except DialError as error:
        raise RegistrationError(f"can't register the plugin with the gateway `{gateway}`: {error}") from error


@dataclass(frozen=True, slots=True)
class _Target:
    """What is registered where."""

    plugin: str
    endpoint: str
    gateway: str

    def __str__(self) -> str:
        return f"{self.plugin} as {self.endpoint} with the gateway {self.gateway}"


class _NotRegisteredError(Exception):
    """Why a process isn't registered."""

    def __init__(
        self,
        kind: Literal["token", "broken", "lost", "refused"],
        message: str,
        code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
    ) -> None:
        """`token`: it can't be read or sent. `broken`: the gateway can't be reached, or the stream ended.

        `lost`: the stream ended, and nobody knows why. `refused`: trying again soon is useless.
        """
        super().__init__(message)
        self.kind = kind
        self.code = code


def _failure_from_end(end: StreamEnd) -> _NotRegisteredError:
    # An expired token may have a successor already.
    has_expired = end.was_registered and end.code is grpc.StatusCode.UNAUTHENTICATED
    if end.code is grpc.StatusCode.INTERNAL and end.message.startswith(_LOST_REASON):
        return _NotRegisteredError("lost", "the gateway ended the stream")
    if end.code in _TRANSIENT_CODES or has_expired:
        return _NotRegisteredError("broken", f"{end.code.name}: {end.message}")
    if end.code is grpc.StatusCode.OK:
        return _NotRegisteredError("broken", "the gateway ended the stream")
    return _NotRegisteredError("refused", end.message, end.code)


class Registration:
    """A registration that is renewed, and made again when the connection to the gateway breaks."""

    def __init__(self, target: _Target, token: TokenSource, times: RegistrationTimes) -> None:
        self._target = target
        self._token = token
        self._times = times
        self._stop = asyncio.Event()
        self._failures = 0
        self._is_reason_lost = False
        """Whether the last failure has no known reason."""
        self._logged_failure: str | None = None
        """What was logged last as the reason why the process isn't registered; `None` while it is."""
        self._approval_pending = False
        loop = asyncio.get_running_loop()
        self._first_answer: asyncio.Future[RegistrationAnswer | None] = loop.create_future()
        self._running = loop.create_task(self._run())

    async def first_answer(self) -> RegistrationAnswer | None:
        """The gateway's first answer; `None` if the registration was stopped before."""
        return await asyncio.shield(self._first_answer)

    async def stop(self) -> None:
        """Removes the endpoint, so that gateways stop calling it. Takes at most 1 s."""
        self._stop.set()
        await asyncio.wait([self._running])
        if not self._first_answer.done():
            self._first_answer.set_result(None)

    async def _run(self) -> None:
        while not self._stop.is_set():
            failure = await self._register()
            if failure is None or self._stop.is_set():
                return
            # The next try most likely tells the reason.
            if failure.kind != "lost" or self._is_reason_lost:
                self._log_failure(failure)
            self._is_reason_lost = failure.kind == "lost"
            wait = self._times.refusal_retry if failure.kind == "refused" else self._next_backoff()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), wait)

    async def _register(self) -> _NotRegisteredError | None:
        """Registers and renews until the stop, then removes the endpoint.

        Returns why the process isn't registered any more, or was not; `None` after the stop.
        """
        try:
            authorization = await self._authorization()
            if authorization is None:
                return None
            # Read again each time, because the TLS files may have been replaced.
            gateway = _read_gateway(self._target.gateway)
            request = host_pb2.RegisterRequest(plugin=self._target.plugin, endpoint=self._target.endpoint)
            stream = RegistrationStream(request, self._times.answer, self._stop, self._take)
            end = await stream.run(gateway, authorization)
        except _NotRegisteredError as failure:
            return failure
        except Exception as error:
            # Whatever it is, the process would never be registered again if this ended.
            return _NotRegisteredError("broken", str(error))
        return None if end is None else _failure_from_end(end)

    async def _authorization(self) -> str | None:
        """The token, as a header; `None` if the registration was stopped meanwhile.

        :raises _NotRegisteredError: If there is no token.
        """
        # A token's function may take as long as it likes.
        reading = asyncio.ensure_future(self._read_token())
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return None
            return reading.result()
        finally:
            reading.cancel()
            stopping.cancel()

    async def _read_token(self) -> str:
        token = self._token
        try:
            if isinstance(token, str):
                source, text = "the option `token`", token
            elif isinstance(token, os.PathLike):
                source = os.fspath(token)
                text = await asyncio.to_thread(Path(token).read_text, "utf-8")
            else:
                source = "the token's function"
                given = token()
                text = await given if inspect.isawaitable(given) else given
            header = bearer(text.strip())
        except Exception as error:
            raise _NotRegisteredError("token", f"can't get the token from {source}: {error}") from error
        if header is None:
            raise _NotRegisteredError("token", f"{source} has no token that a header can hold")
        return header

    def _take(self, answer: host_pb2.RegisterResponse, is_renewal: bool) -> None:
        # Not at the first answer: a gateway that breaks every stream after it isn't usable yet.
        if is_renewal:
            self._failures = 0
        else:
            logger.info("registered %s, for %d ms at a time", self._target, answer.lease_ms)
            self._logged_failure = None
        if answer.approval_pending != self._approval_pending:
            self._approval_pending = answer.approval_pending
            plugin, gateway = self._target.plugin, self._target.gateway
            if answer.approval_pending:
                logger.warning("%s waits for approval: run `hookgate plugin approve %s`", plugin, plugin)
            else:
                logger.info("%s was approved at the gateway %s", plugin, gateway)
        if not self._first_answer.done():
            self._first_answer.set_result(RegistrationAnswer(answer.lease_ms, answer.approval_pending))

    def _next_backoff(self) -> float:
        """A wait in seconds that doubles with every failure.

        It has jitter, so that processes that lost the same gateway don't return at the same moment.
        """
        wait = min(_MIN_BACKOFF * (1 << min(self._failures, 10)), _MAX_BACKOFF)
        self._failures += 1
        return random.uniform(wait / 2, wait)

    def _log_failure(self, failure: _NotRegisteredError) -> None:
        """Logs why the process isn't registered, unless it is logged already."""
        error = str(failure)
        if self._logged_failure == error:
            return
        self._logged_failure = error
        if failure.kind == "token":
            logger.error("can't register %s: %s", self._target, error)
        elif failure.kind in ("broken", "lost"):
            logger.warning("not registered: %s: %s; trying again", self._target, error)
        elif failure.code is grpc.StatusCode.UNIMPLEMENTED:
            remedy = "name that of `server.host_addr` or `server.host_socket`"
            logger.error("the address %s takes no registrations: %s", self._target.gateway, remedy)
        else:
            logger.error("the gateway refuses to register %s: %s: %s", self._target, failure.code.name, error)
