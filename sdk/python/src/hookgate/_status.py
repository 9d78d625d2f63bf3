"""Details of a gRPC error: the `google.rpc.Status` in its trailing metadata.

It reads the three messages that the gateway sends, so that no generated code of googleapis is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc.aio

KEY = "grpc-status-details-bin"
TYPE_PREFIX = "type.googleapis.com/"


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """Why a call failed, for programs (`google.rpc.ErrorInfo`)."""

    reason: str = ""
    domain: str = ""
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """A field of a request that is wrong."""

    field: str
    description: str


@dataclass(slots=True)
class StatusDetails:
    """What the details of a status say."""

    error_info: ErrorInfo | None = None
    retry_delay_ms: int | None = None
    """When to try again (`google.rpc.RetryInfo`): milliseconds to wait, at least 0."""
    bad_request: list[FieldViolation] | None = None
    """Fields of the request that are wrong (`google.rpc.BadRequest`)."""
    others: list[AnyMessage] = field(default_factory=list)
    """Details of other types, in their order."""


def status_details(error: grpc.aio.AioRpcError) -> StatusDetails:
    """The details of an error.

    An error without details has none, nor has one whose details are malformed: its code and message are still worth
    reading.
    """
    for key, value in error.trailing_metadata() or ():
        if key == KEY and isinstance(value, bytes):
            try:
                return _read_status(value)
            except (DecodeError, ValueError):
                break
    return StatusDetails()


def _read_status(data: bytes) -> StatusDetails:
    details = StatusDetails()
    for number, value in _fields(data):
        if number == 3:
            _read_detail(AnyMessage.FromString(value), details)
    return details


def _read_detail(detail: AnyMessage, details: StatusDetails) -> None:
    match detail.type_url.removeprefix(TYPE_PREFIX):
        case "google.rpc.ErrorInfo":
            details.error_info = _read_error_info(detail.value)
        case "google.rpc.RetryInfo":
            details.retry_delay_ms = _read_retry_delay(detail.value)
        case "google.rpc.BadRequest":
            violations = [_read_pair(value) for number, value in _fields(detail.value) if number == 1]
            details.bad_request = [FieldViolation(*violation) for violation in violations]
        case _:
            details.others.append(detail)


def _read_error_info(data: bytes) -> ErrorInfo:
    reason, domain = _read_pair(data)
    return ErrorInfo(reason, domain, dict(_read_pair(value) for number, value in _fields(data) if number == 3))


def _read_retry_delay(data: bytes) -> int:
    for number, value in _fields(data):
        if number == 1:
            duration = Duration.FromString(value)
            # Rounded up, so that nobody returns too early.
            return max(0, duration.seconds * 1000 + -(-duration.nanos // 1_000_000))
    return 0


def _read_pair(data: bytes) -> tuple[str, str]:
    """A message whose fields 1 and 2 are strings, such as an entry of a map."""
    pair = {number: value.decode() for number, value in _fields(data) if number in (1, 2)}
    return pair.get(1, ""), pair.get(2, "")


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have a length. None of the messages here needs another one."""
    # To a message without fields, every field is unknown.
    unknowns = UnknownFieldSet(Empty.FromString(data))
    for index in range(len(unknowns)):
        unknown = unknowns[index]
        if isinstance(unknown.data, bytes):
            yield unknown.field_number, unknown.data
