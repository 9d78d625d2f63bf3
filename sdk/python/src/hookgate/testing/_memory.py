"""The entries of a test host: what the storage's methods do, without tokens and sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import grpc

from hookgate._proto import host_pb2 as pb
from hookgate.testing._host_rules import MAX_COUNTER, WireOperation
from hookgate.testing._host_status import HostStatusError

_MAX_PAGE_BYTES: Final = 1 << 20
_DEFAULT_PAGE_SIZE: Final = 100

Scope: TypeAlias = tuple[str, str | None]
"""Whose data it is: the plugin and the tenant; without one, the plugin's own."""
Result: TypeAlias = pb.Written | pb.Deleted | pb.Added
"""What became of one operation."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a write changed nothing."""

    index: int
    reason: pb.Conflict | pb.LimitReached


@dataclass(frozen=True, slots=True)
class _Stored:
    content: bytes | int
    version: int
    expires_at: int | None

    def size(self, key: str) -> int:
        """A counter counts as 8 bytes."""
        return len(key.encode()) + (8 if isinstance(self.content, int) else len(self.content))


_Entries: TypeAlias = dict[str, _Stored]


class Memory:
    """The entries of all plugins and tenants."""

    def __init__(self, now: Callable[[], int], quota_bytes: float = math.inf) -> None:
        """`now` is the clock in milliseconds since 1970, `quota_bytes` what a scope may hold."""
        self._now = now
        self._quota_bytes = quota_bytes
        self._scopes: dict[Scope, _Entries] = {}
        self._version = 0

    def get(self, scope: Scope, key: str) -> pb.Entry | None:
        entry = self._alive(scope).get(key)
        return None if entry is None else self._to_wire(key, entry)

    def page(self, scope: Scope, request: pb.ListRequest) -> pb.ListResponse:
        entries = self._alive(scope)
        # Code points have the order of their UTF-8.
        found = sorted(key for key in entries if key.startswith(request.prefix) and key > request.after)
        page = pb.ListResponse()
        size = 0
        for key in found:
            # The entry that reaches the size is the last one, and another one must follow for there to be a next page.
            if len(page.entries) == (request.page_size or _DEFAULT_PAGE_SIZE) or size >= _MAX_PAGE_BYTES:
                page.next_after = page.entries[-1].key
                break
            size += entries[key].size(key)
            page.entries.append(self._to_wire(key, entries[key]))
        return page

    def write(self, scope: Scope, operations: Sequence[WireOperation]) -> list[Result] | Rejection:
        """Makes all of the operations or none."""
        entries = dict(self._alive(scope))
        version = self._version
        results: list[Result] = []
        for index, operation in enumerate(operations):
            version += 1
            result = self._apply(entries, operation, version)
            if isinstance(result, (pb.Conflict, pb.LimitReached)):
                return Rejection(index, result)
            results.append(result)
        if sum(entry.size(key) for key, entry in entries.items()) > self._quota_bytes:
            raise HostStatusError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "the plugin's data for the tenant exceeds its quota"
            )
        self._version = version
        self._scopes[scope] = entries
        return results

    def _apply(
        self, entries: _Entries, operation: WireOperation, version: int
    ) -> Result | pb.Conflict | pb.LimitReached:
        match operation:
            case pb.PutRequest():
                return self._put(entries, operation, version)
            case pb.DeleteRequest():
                return self._delete(entries, operation)
            case pb.AddRequest():
                return self._add(entries, operation, version)

    def _put(self, entries: _Entries, put: pb.PutRequest, version: int) -> pb.Written | pb.Conflict:
        conflict = _conflict(entries, put)
        if conflict is not None:
            return conflict
        expires_at = self._now() + put.ttl_ms if put.HasField("ttl_ms") else None
        entries[put.key] = _Stored(put.value, version, expires_at)
        return pb.Written(version=version)

    def _delete(self, entries: _Entries, delete: pb.DeleteRequest) -> pb.Deleted | pb.Conflict:
        conflict = _conflict(entries, delete)
        return conflict or pb.Deleted(existed=entries.pop(delete.key, None) is not None)

    def _add(self, entries: _Entries, add: pb.AddRequest, version: int) -> pb.Added | pb.LimitReached:
        entry = entries.get(add.key)
        if entry is None:
            counter, expires_at = 0, self._window_end(add)
        elif isinstance(entry.content, int):
            counter, expires_at = entry.content, entry.expires_at
        else:
            raise HostStatusError(grpc.StatusCode.FAILED_PRECONDITION, f"`{add.key}` holds a value")
        resets_in_ms = None if expires_at is None else expires_at - self._now()
        sum_ = counter + add.delta
        if sum_ > (add.limit if add.HasField("limit") else MAX_COUNTER) or abs(sum_) > MAX_COUNTER:
            return pb.LimitReached(counter=counter, resets_in_ms=resets_in_ms)
        entries[add.key] = _Stored(sum_, version, expires_at)
        return pb.Added(counter=sum_, version=version, resets_in_ms=resets_in_ms)

    def _window_end(self, add: pb.AddRequest) -> int | None:
        if not add.HasField("window_ms"):
            return None
        return (self._now() // add.window_ms + 1) * add.window_ms

    def _alive(self, scope: Scope) -> _Entries:
        """The entries that have not expired."""
        now = self._now()
        entries = self._scopes.get(scope, {})
        return {key: entry for key, entry in entries.items() if entry.expires_at is None or entry.expires_at > now}

    def _to_wire(self, key: str, entry: _Stored) -> pb.Entry:
        expires_in_ms = None if entry.expires_at is None else entry.expires_at - self._now()
        wire = pb.Entry(key=key, version=entry.version, expires_in_ms=expires_in_ms)
        if isinstance(entry.content, int):
            wire.counter = entry.content
        else:
            wire.value = entry.content
        return wire


def _conflict(entries: _Entries, operation: pb.PutRequest | pb.DeleteRequest) -> pb.Conflict | None:
    actual = entries[operation.key].version if operation.key in entries else 0
    is_expected = not operation.HasField("expected_version") or operation.expected_version == actual
    return None if is_expected else pb.Conflict(version=actual)
