"""The ranges of requests to the gateway's storage (`host.proto`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from hookgate._proto import host_pb2 as pb
from hookgate.testing._host_status import wrong_field

MAX_COUNTER: Final = 2**53
"""Counters stay between minus this and this."""
_MAX_KEY_BYTES: Final = 512
_MAX_VALUE_BYTES: Final = 64 << 10
_MAX_PERIOD_MS: Final = 366 * 24 * 60 * 60 * 1000
_MAX_OPERATIONS: Final = 32
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")

WireOperation: TypeAlias = pb.PutRequest | pb.DeleteRequest | pb.AddRequest
"""One change."""


def check(is_right: bool, field: str, description: str) -> None:
    """Raises INVALID_ARGUMENT with the field unless it is right."""
    if not is_right:
        raise wrong_field(field, description)


def check_keys(keys: Iterable[str]) -> None:
    for key in keys:
        is_key = key != "" and len(key.encode()) <= _MAX_KEY_BYTES and not _CONTROL.search(key)
        check(is_key, "key", "1 to 512 bytes, no control characters")


def check_operation(operation: WireOperation) -> None:
    check_keys([operation.key])
    match operation:
        case pb.PutRequest():
            check(len(operation.value) <= _MAX_VALUE_BYTES, "value", "at most 64 KiB")
            _check_period("ttl_ms", operation.ttl_ms if operation.HasField("ttl_ms") else 1)
        case pb.DeleteRequest():
            is_zero = operation.HasField("expected_version") and operation.expected_version == 0
            check(not is_zero, "expected_version", "at least 1")
        case pb.AddRequest():
            _check_counter("delta", operation.delta)
            _check_counter("limit", operation.limit)
            _check_period("window_ms", operation.window_ms if operation.HasField("window_ms") else 1)


def check_operations(operations: Sequence[pb.Operation]) -> list[WireOperation]:
    """The operations of a transaction."""
    check(1 <= len(operations) <= _MAX_OPERATIONS, "operations", "1 to 32 operations")
    checked = [_change_of(operation) for operation in operations]
    check(len({operation.key for operation in checked}) == len(checked), "operations", "each on another key")
    for operation in checked:
        check_operation(operation)
    return checked


def _change_of(operation: pb.Operation) -> WireOperation:
    match operation.WhichOneof("operation"):
        case "put":
            return operation.put
        case "delete":
            return operation.delete
        case "add":
            return operation.add
    raise wrong_field("operations", "each a put, a delete or an add")


def _check_period(field: str, ms: int) -> None:
    check(1 <= ms <= _MAX_PERIOD_MS, field, f"1 to {_MAX_PERIOD_MS} milliseconds")


def _check_counter(field: str, value: int) -> None:
    check(abs(value) <= MAX_COUNTER, field, "between -2^53 and 2^53")
