"""Calls to the gateway's services: with which token, how long, and at which gateway."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import grpc
import grpc.aio

from hookgate.host._connection import ConnectError, Metadata
from hookgate.host._errors import HostError, from_status, not_offered
from hookgate.host._links import HostLink, HostLinks, bearer
from hookgate.host._methods import A, Q, UnaryMethod

_MAX_CALL: Final = 5.0
"""How long a call to the gateway may take, in seconds."""
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class CallAccess:
    """What a plugin's call says about its calls to the gateway."""

    token: str = field(repr=False)
    """The call's `host_token`; empty if the gateway sent none. A secret."""
    deadline: float = math.inf
    """When the gateway gives up the plugin's call, as `time.monotonic()`; infinity if never."""
    forwarded: Mapping[str, str] = field(default_factory=dict)
    """Metadata that a plugin passes on from the call that it got: `traceparent`, `tracestate` and `hookgate-depth`."""


class HostClient:
    """Calls the gateway's services, for a call or for the plugin itself."""

    __slots__ = ("_access", "_authorization", "_deadline", "links")

    def __init__(self, links: HostLinks, access: CallAccess | None) -> None:
        """Calls for the tenant of a plugin's call, or, without `access`, for the plugin itself."""
        self.links = links
        self._access = access
        # The plugin's own token is known by each link.
        self._authorization = None if access is None else bearer(access.token)
        self._deadline = math.inf if access is None else access.deadline

    def without_deadline(self) -> HostClient:
        """The same permission without the deadline of the plugin's call, for work that goes on after it."""
        access = self._access
        return HostClient(self.links, access and CallAccess(access.token, forwarded=access.forwarded))

    async def call(self, method: UnaryMethod[Q, A], request: Q) -> A:
        """Makes one call.

        Tries the next gateway if one certainly didn't make it. Ends after the time that the plugin's own call has left,
        and after at most 5 s.

        :raises HostError: If no gateway made it.
        """
        deadline = min(self._deadline, time.monotonic() + _MAX_CALL)
        is_closed = self.links.is_closed
        failure = HostError("unavailable", "the plugin has been shut down") if is_closed else not_offered()
        for link in self.links.candidates():
            authorization = link.authorization if self._access is None else self._authorization
            try:
                connection = link.connection()
            except HostError as error:
                failure = error
                continue
            if authorization is None:
                failure = HostError("unavailable", "the gateway can't sign tokens for host services yet")
                continue
            if time.monotonic() >= deadline:
                raise HostError("unavailable", "the time of the call is over")
            metadata = self._metadata(authorization)
            try:
                answer = await connection.call(method, request, metadata=metadata, deadline=deadline)
            except (ConnectError, grpc.aio.AioRpcError) as error:
                failure = _record_failure(link, error, is_write=method.is_write)
                if not _was_not_made(error):
                    raise failure from error
            else:
                link.has_failed = False
                return answer
        raise failure

    def _metadata(self, authorization: str) -> Metadata:
        forwarded = {} if self._access is None else self._access.forwarded
        # gRPC refuses other characters. A call is worth more than its trace.
        passed_on = [(key, value) for key, value in forwarded.items() if _HEADER_VALUE.fullmatch(value)]
        return ("authorization", authorization), *passed_on


def _record_failure(link: HostLink, error: ConnectError | grpc.aio.AioRpcError, *, is_write: bool) -> HostError:
    if isinstance(error, ConnectError):
        failure = HostError("unavailable", str(error))
    else:
        failure = from_status(error, is_write=is_write)
    if failure.is_unavailable:
        link.has_failed = True
    return failure


def _was_not_made(error: ConnectError | grpc.aio.AioRpcError) -> bool:
    """Whether the gateway certainly didn't make the call: it wasn't connected, or refused the token.

    Another gateway may have another database, and other tokens.
    """
    return isinstance(error, ConnectError) or error.code() is grpc.StatusCode.PERMISSION_DENIED
