"""The methods of the gateway's services, in memory.

A storage with the rules of the real one, and a log and events without limits per second.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import grpc

from hookgate._proto import host_pb2 as pb
from hookgate.host import _methods as methods
from hookgate.host._methods import A, Q, UnaryMethod
from hookgate.host._record import WrongField, check_event, check_line
from hookgate.point import Capability
from hookgate.testing._host_rules import WireOperation, check, check_keys, check_operation, check_operations
from hookgate.testing._host_status import HostStatusError, wrong_field
from hookgate.testing._memory import Memory, Rejection, Result, Scope
from hookgate.testing._records import EmittedEvent, LogLine, event_from_wire, line_from_wire

_START_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, in milliseconds since 1970: the beginning of a minute and of a day."""
_TOKEN_LIFE_MS: Final = 24 * 60 * 60 * 1000
_MAX_RECORDS: Final = 100
_MAX_KEYS: Final = 32
_MAX_PAGE_SIZE: Final = 100

Headers: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TokenScope:
    """What a token gives access to."""

    plugin: str
    tenant: str | None
    """`None` for the plugin's own data."""
    capabilities: tuple[Capability, ...]


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call that arrived."""

    path: str
    """The method's path, such as `/hookgate.host.v1.StorageService/Get`."""
    headers: Headers
    time_left: float
    """In seconds; infinity without a deadline."""


class HostServices:
    """The gateway's services in memory."""

    def __init__(self, quota_bytes: float = math.inf) -> None:
        """`quota_bytes` is how much a plugin may store for a tenant; a counter counts as 8 bytes."""
        self.is_available = True
        """Whether the services answer. Otherwise each call fails as if the database didn't answer."""
        self.now_ms = _START_MS
        """The clock, in milliseconds since 1970."""
        self.on_call: Callable[[HostCall], Awaitable[None] | None] | None = None
        """Runs before each call, and may wait or raise a `HostStatusError`."""
        self.dropped_lines = 0
        """How many lines of the next requests the log drops."""
        self.log_listeners: set[Callable[[], None]] = set()
        """Run after new log lines."""
        self.calls: list[HostCall] = []
        self.log_lines: list[LogLine] = []
        self.events: list[EmittedEvent] = []
        self.handlers: dict[str, Callable[[bytes, Headers], bytes]] = {}
        """By the path of the method."""
        self._storage = Memory(lambda: self.now_ms, quota_bytes)
        self._tokens: dict[str, TokenScope] = {}
        self._issued = 0
        self._add_handlers()

    async def answer(self, call: HostCall, request: bytes) -> bytes:
        """Answers one call.

        :raises HostStatusError: If it fails.
        """
        self.calls.append(call)
        if self.on_call is not None:
            waiting = self.on_call(call)
            if inspect.isawaitable(waiting):
                await waiting
        if not self.is_available:
            raise HostStatusError(grpc.StatusCode.UNAVAILABLE, "the test made the services unavailable")
        handler = self.handlers.get(call.path)
        if handler is None:
            raise HostStatusError(grpc.StatusCode.UNIMPLEMENTED, f"no method {call.path}")
        return handler(request, call.headers)

    def issue_token(self, plugin: str, tenant: str | None, capabilities: tuple[Capability, ...]) -> str:
        """A new token."""
        self._issued += 1
        token = f"test-token-{self._issued}"
        self._tokens[token] = TokenScope(plugin, tenant, capabilities)
        return token

    def revoke_token(self, token: str) -> None:
        del self._tokens[token]

    def _add_handlers(self) -> None:
        self._handle(methods.GET, self._get)
        self._handle(methods.GET_MANY, self._get_many)
        self._handle(methods.LIST, self._list)
        self._handle(methods.PUT, self._put)
        self._handle(methods.DELETE, self._delete)
        self._handle(methods.ADD, self._add)
        self._handle(methods.TRANSACT, self._transact)
        self._handle(methods.WRITE_LOG, self._write_log)
        self._handle(methods.EMIT_EVENT, self._emit_event)
        self._handle(methods.RENEW_TOKEN, self._renew_token)

    def _handle(self, method: UnaryMethod[Q, A], handler: Callable[[Q, Headers], A]) -> None:
        def handle(request: bytes, headers: Headers) -> bytes:
            return handler(method.request.FromString(request), headers).SerializeToString()

        self.handlers[method.path] = handle

    def _get(self, request: pb.GetRequest, headers: Headers) -> pb.GetResponse:
        scope = self._scope(headers, "storage:read")
        check_keys([request.key])
        return pb.GetResponse(entry=self._storage.get(scope, request.key))

    def _get_many(self, request: pb.GetManyRequest, headers: Headers) -> pb.GetManyResponse:
        scope = self._scope(headers, "storage:read")
        check(1 <= len(request.keys) <= _MAX_KEYS, "keys", "1 to 32 keys")
        check_keys(request.keys)
        entries = (self._storage.get(scope, key) for key in request.keys)
        return pb.GetManyResponse(entries=[entry for entry in entries if entry is not None])

    def _list(self, request: pb.ListRequest, headers: Headers) -> pb.ListResponse:
        scope = self._scope(headers, "storage:read")
        check(request.page_size <= _MAX_PAGE_SIZE, "page_size", "at most 100")
        check_keys(key for key in (request.prefix, request.after) if key)
        return self._storage.page(scope, request)

    def _put(self, request: pb.PutRequest, headers: Headers) -> pb.PutResponse:
        result = self._write_one(request, headers)
        if isinstance(result, pb.Conflict):
            return pb.PutResponse(conflict=result)
        return pb.PutResponse(written=result if isinstance(result, pb.Written) else None)

    def _delete(self, request: pb.DeleteRequest, headers: Headers) -> pb.DeleteResponse:
        result = self._write_one(request, headers)
        if isinstance(result, pb.Conflict):
            return pb.DeleteResponse(conflict=result)
        return pb.DeleteResponse(deleted=result if isinstance(result, pb.Deleted) else None)

    def _add(self, request: pb.AddRequest, headers: Headers) -> pb.AddResponse:
        result = self._write_one(request, headers)
        if isinstance(result, pb.LimitReached):
            return pb.AddResponse(limit_reached=result)
        return pb.AddResponse(added=result if isinstance(result, pb.Added) else None)

    def _write_one(self, operation: WireOperation, headers: Headers) -> Result | pb.Conflict | pb.LimitReached:
        scope = self._scope(headers, "storage:write")
        check_operation(operation)
        outcome = self._storage.write(scope, [operation])
        return outcome.reason if isinstance(outcome, Rejection) else outcome[0]

    def _transact(self, request: pb.TransactRequest, headers: Headers) -> pb.TransactResponse:
        scope = self._scope(headers, "storage:write")
        outcome = self._storage.write(scope, check_operations(request.operations))
        if isinstance(outcome, Rejection):
            return pb.TransactResponse(rejected=_rejected(outcome))
        results = [_operation_result(result) for result in outcome]
        return pb.TransactResponse(committed=pb.Committed(results=results))

    def _write_log(self, request: pb.WriteLogRequest, headers: Headers) -> pb.WriteLogResponse:
        scope = self._permitted(headers, "log")
        check(1 <= len(request.records) <= _MAX_RECORDS, "records", "1 to 100 lines")
        for record in request.records:
            _reject_wrong(check_line(record))
        dropped = min(self.dropped_lines, len(request.records))
        self.dropped_lines -= dropped
        for record in request.records[: len(request.records) - dropped]:
            self.log_lines.append(line_from_wire(scope.plugin, scope.tenant, record))
        for listener in list(self.log_listeners):
            listener()
        return pb.WriteLogResponse(dropped=dropped)

    def _emit_event(self, request: pb.EmitEventRequest, headers: Headers) -> pb.EmitEventResponse:
        scope = self._permitted(headers, "emit")
        _reject_wrong(check_event(request))
        self.events.append(event_from_wire(scope.plugin, scope.tenant, request))
        return pb.EmitEventResponse()

    def _renew_token(self, _request: pb.RenewTokenRequest, headers: Headers) -> pb.RenewTokenResponse:
        scope = self._token(headers)
        token = self.issue_token(scope.plugin, scope.tenant, scope.capabilities)
        return pb.RenewTokenResponse(token=token, expires_in_ms=_TOKEN_LIFE_MS)

    def _scope(self, headers: Headers, capability: Capability) -> Scope:
        """Names the data of the request's token."""
        scope = self._permitted(headers, capability)
        return scope.plugin, scope.tenant

    def _permitted(self, headers: Headers, capability: Capability) -> TokenScope:
        scope = self._token(headers)
        if capability not in scope.capabilities:
            raise HostStatusError(grpc.StatusCode.PERMISSION_DENIED, f"the plugin lacks the capability `{capability}`")
        return scope

    def _token(self, headers: Headers) -> TokenScope:
        scope = self._tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        if scope is None:
            raise HostStatusError(grpc.StatusCode.PERMISSION_DENIED, "no token of these services")
        return scope


def _rejected(rejection: Rejection) -> pb.Rejected:
    if isinstance(rejection.reason, pb.Conflict):
        return pb.Rejected(index=rejection.index, conflict=rejection.reason)
    return pb.Rejected(index=rejection.index, limit_reached=rejection.reason)


def _operation_result(result: Result) -> pb.OperationResult:
    match result:
        case pb.Written():
            return pb.OperationResult(written=result)
        case pb.Deleted():
            return pb.OperationResult(deleted=result)
        case pb.Added():
            return pb.OperationResult(added=result)


def _reject_wrong(wrong: WrongField | None) -> None:
    if wrong is not None:
        raise wrong_field(wrong.field, wrong.range)
