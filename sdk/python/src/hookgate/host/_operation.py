"""Writes to the storage, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hookgate._proto import host_pb2
from hookgate.host._argument import is_integer, wrong_type
from hookgate.host._errors import HostError, invalid, no_result
from hookgate.host._key import check_key
from hookgate.host._period import check_ttl, check_window

_MAX_COUNTER: Final = 2**53
_MAX_VERSION: Final = 2**64 - 1
_MAX_VALUE_BYTES: Final = 64 << 10
_MAX_OPERATIONS: Final = 32


@dataclass(frozen=True, slots=True)
class Put:
    """Writes a value, also in place of a counter."""

    key: str
    """1 to 512 bytes, no control characters."""
    value: bytes | str
    """At most 64 KiB. A text is written as UTF-8."""
    expected_version: int | None = None
    """Writes only if the entry has this version; 0: only if there is no entry."""
    ttl_ms: float | None = None
    """The entry expires after this many milliseconds, 1 to 31,622,400,000 (366 days), rounded up. By default never."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes an entry."""

    key: str
    """1 to 512 bytes, no control characters."""
    expected_version: int | None = None
    """Deletes only if the entry has this version, at least 1."""


@dataclass(frozen=True, slots=True)
class Add:
    """Adds to a counter. A counter that doesn't exist is 0."""

    key: str
    """1 to 512 bytes, no control characters."""
    delta: int
    """Between -2^53 and 2^53; may be negative, or 0."""
    limit: int | None = None
    """Adds nothing if the counter would exceed this number, between -2^53 and 2^53."""
    window: float | str | None = None
    """The counter expires at the end of the window in which it was created.

    Windows of this length, 1 ms to 366 days, follow each other from 1970-01-01T00:00:00Z on: `"day"` are UTC days,
    `"minute"` full minutes. A number is in milliseconds. Without a window, the counter never expires.
    """


Operation: TypeAlias = Put | Delete | Add
"""One change of a transaction."""


@dataclass(frozen=True, slots=True)
class PutResult:
    """The result of a put. It is true if the value was written."""

    written: bool
    """`False` if the entry has another version than expected; impossible without an expected version."""
    version: int
    """The entry's version: the new one if it was written, otherwise that which it has, 0 if there is no entry."""

    def __bool__(self) -> bool:
        return self.written


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The result of a deletion. It is true unless an expected version was not the entry's."""

    deleted: bool
    """`True` if there is no such entry any more, also if there was none before.

    `False` if the entry has another version than expected, or if there is no entry that could have it. Impossible
    without an expected version.
    """
    existed: bool
    """Whether there was an entry, deleted or not. An entry was deleted if both are true."""
    version: int | None = None
    """If `deleted` is `False`: the version that the entry has, 0 if there is none. Otherwise `None`."""

    def __bool__(self) -> bool:
        return self.deleted


@dataclass(frozen=True, slots=True)
class AddResult:
    """The result of an addition. It is true if the delta was added."""

    added: bool
    """`False` if the counter would have exceeded the limit, or left the range of counters."""
    counter: int
    """The counter's value; unchanged if nothing was added."""
    version: int | None
    """The entry's new version; `None` if nothing was added."""
    remaining: int | None = None
    """How much more can be added before the limit is reached, at least 0. `None` without a limit."""
    resets_in_ms: int | None = None
    """Milliseconds until the counter expires and starts again from 0. `None` if it never does."""

    def __bool__(self) -> bool:
        return self.added


OperationResult: TypeAlias = PutResult | DeleteResult | AddResult
"""The result of one operation of a transaction."""


@dataclass(frozen=True, slots=True)
class TransactResult:
    """The result of a transaction. It is true if it was committed."""

    committed: bool
    """`False` if no change was made."""
    results: tuple[OperationResult, ...] = ()
    """If it was committed, one for each operation, in their order."""
    index: int | None = None
    """If not: the operation because of which no change was made, from 0."""
    reason: Literal["conflict", "limit_reached"] | None = None
    """If not: `conflict`, or `limit_reached` of an addition."""
    rejection: OperationResult | None = None
    """If not: what that operation found, as its method would have answered."""

    def __bool__(self) -> bool:
        return self.committed


def put_to_wire(put: Put) -> host_pb2.PutRequest:
    value = _value_bytes(put.value)
    if len(value) > _MAX_VALUE_BYTES:
        raise invalid("value", "at most 64 KiB")
    return host_pb2.PutRequest(
        key=check_key(put.key),
        value=value,
        expected_version=_check_version(put.expected_version, 0),
        ttl_ms=check_ttl(put.ttl_ms),
    )


def delete_to_wire(delete: Delete) -> host_pb2.DeleteRequest:
    version = _check_version(delete.expected_version, 1)
    return host_pb2.DeleteRequest(key=check_key(delete.key), expected_version=version)


def add_to_wire(add: Add) -> host_pb2.AddRequest:
    return host_pb2.AddRequest(
        key=check_key(add.key),
        delta=_check_counter("delta", add.delta),
        limit=None if add.limit is None else _check_counter("limit", add.limit),
        window_ms=check_window(add.window),
    )


def transact_to_wire(operations: Sequence[Operation]) -> host_pb2.TransactRequest:
    if not isinstance(operations, Sequence):
        raise wrong_type("operations", "a list of Put, Delete and Add", operations)
    if not 1 <= len(operations) <= _MAX_OPERATIONS:
        raise invalid("operations", "1 to 32 operations")
    wire = [_operation_to_wire(operation) for operation in operations]
    if len({operation.key for operation in operations}) != len(operations):
        raise invalid("operations", "each on another key")
    return host_pb2.TransactRequest(operations=wire)


def _operation_to_wire(operation: Operation) -> host_pb2.Operation:
    match operation:
        case Put():
            return host_pb2.Operation(put=put_to_wire(operation))
        case Delete():
            return host_pb2.Operation(delete=delete_to_wire(operation))
        case Add():
            return host_pb2.Operation(add=add_to_wire(operation))
    raise wrong_type("operations", "a list of Put, Delete and Add", operation)


def put_result(answer: host_pb2.PutResponse) -> PutResult:
    match answer.WhichOneof("result"):
        case "written":
            return PutResult(True, answer.written.version)
        case "conflict":
            return PutResult(False, answer.conflict.version)
    raise _unknown_result()


def delete_result(answer: host_pb2.DeleteResponse) -> DeleteResult:
    match answer.WhichOneof("result"):
        case "deleted":
            return DeleteResult(True, answer.deleted.existed)
        case "conflict":
            return _not_deleted(answer.conflict)
    raise _unknown_result()


def add_result(answer: host_pb2.AddResponse, limit: int | None) -> AddResult:
    match answer.WhichOneof("result"):
        case "added":
            return _added(answer.added, limit)
        case "limit_reached":
            return _limit_reached(answer.limit_reached, limit)
    raise _unknown_result()


def transact_result(answer: host_pb2.TransactResponse, operations: Sequence[Operation]) -> TransactResult:
    match answer.WhichOneof("result"):
        case "committed" if len(answer.committed.results) == len(operations):
            pairs = zip(operations, answer.committed.results, strict=True)
            return TransactResult(True, tuple(_operation_result(*pair) for pair in pairs))
        case "rejected" if answer.rejected.index < len(operations):
            return _rejection(answer.rejected, operations[answer.rejected.index])
    raise _unknown_result()


def _operation_result(operation: Operation, answer: host_pb2.OperationResult) -> OperationResult:
    match operation, answer.WhichOneof("result"):
        case Put(), "written":
            return PutResult(True, answer.written.version)
        case Delete(), "deleted":
            return DeleteResult(True, answer.deleted.existed)
        case Add(limit=limit), "added":
            return _added(answer.added, limit)
    raise _unknown_result()


def _rejection(rejected: host_pb2.Rejected, operation: Operation) -> TransactResult:
    found: OperationResult
    match operation, rejected.WhichOneof("reason"):
        case Put(), "conflict":
            found = PutResult(False, rejected.conflict.version)
        case Delete(), "conflict":
            found = _not_deleted(rejected.conflict)
        case Add(limit=limit), "limit_reached":
            found = _limit_reached(rejected.limit_reached, limit)
            return TransactResult(False, index=rejected.index, reason="limit_reached", rejection=found)
        case _:
            raise no_result()
    return TransactResult(False, index=rejected.index, reason="conflict", rejection=found)


def _not_deleted(conflict: host_pb2.Conflict) -> DeleteResult:
    # Only what doesn't exist has the version 0.
    return DeleteResult(False, existed=conflict.version != 0, version=conflict.version)


def _added(added: host_pb2.Added, limit: int | None) -> AddResult:
    resets_in_ms = added.resets_in_ms if added.HasField("resets_in_ms") else None
    return AddResult(True, added.counter, added.version, _remaining(added.counter, limit), resets_in_ms)


def _limit_reached(reached: host_pb2.LimitReached, limit: int | None) -> AddResult:
    resets_in_ms = reached.resets_in_ms if reached.HasField("resets_in_ms") else None
    return AddResult(False, reached.counter, None, _remaining(reached.counter, limit), resets_in_ms)


def _remaining(counter: int, limit: int | None) -> int | None:
    return None if limit is None else max(0, limit - counter)


def _unknown_result() -> HostError:
    return no_result(is_outcome_unknown=True)


def _value_bytes(value: bytes | str) -> bytes:
    try:
        return value.encode() if isinstance(value, str) else bytes(memoryview(value))
    except UnicodeEncodeError:
        raise invalid("value", "Unicode text without halves of surrogate pairs") from None
    except TypeError:
        raise wrong_type("value", "bytes or a text", value) from None


def _check_version(version: int | None, least: int) -> int | None:
    if version is None:
        return None
    if not is_integer(version):
        raise wrong_type("expected_version", "a version that the storage answered, which is an integer", version)
    if least <= version <= _MAX_VERSION:
        return version
    raise invalid("expected_version", f"a version that the storage answered, at least {least}")


def _check_counter(field: str, value: int) -> int:
    if not is_integer(value):
        raise wrong_type(field, "an integer", value)
    if abs(value) <= _MAX_COUNTER:
        return value
    raise invalid(field, "a whole number between -2^53 and 2^53")
