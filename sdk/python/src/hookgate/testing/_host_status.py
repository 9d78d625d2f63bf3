"""Statuses with details, as the gateway's services send them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration

from hookgate._status import KEY, TYPE_PREFIX, ErrorInfo, FieldViolation


@dataclass(frozen=True, slots=True)
class StatusParts:
    """Details of a status."""

    bad_request: FieldViolation | None = None
    retry_delay_ms: int | None = None
    error_info: ErrorInfo | None = None


class HostStatusError(Exception):
    """Why a call to the gateway's services fails."""

    def __init__(self, code: grpc.StatusCode, details: str, parts: StatusParts | None = None) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details
        self.trailing_metadata = ((KEY, _encode_status(code, details, parts or StatusParts())),)

    def to_rpc_error(self) -> grpc.aio.AioRpcError:
        """As a call over gRPC fails with it."""
        trailing = grpc.aio.Metadata(*self.trailing_metadata)
        return grpc.aio.AioRpcError(self.code, grpc.aio.Metadata(), trailing, self.details)


def wrong_field(name: str, description: str) -> HostStatusError:
    """A field that is outside its range."""
    parts = StatusParts(bad_request=FieldViolation(name, description))
    return HostStatusError(grpc.StatusCode.INVALID_ARGUMENT, "a field is outside its range", parts)


@dataclass(slots=True)
class _Writer:
    """Writes a message field by field."""

    data: bytearray = field(default_factory=bytearray)

    def number(self, number: int, value: int) -> _Writer:
        self.data += _varint(number << 3) + _varint(value)
        return self

    def bytes(self, number: int, value: bytes | bytearray) -> _Writer:
        self.data += _varint(number << 3 | 2) + _varint(len(value)) + value
        return self

    def text(self, number: int, value: str) -> _Writer:
        return self.bytes(number, value.encode())


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low]) if rest == 0 else bytes([low | 0x80]) + _varint(rest)


def _encode_status(code: grpc.StatusCode, message: str, parts: StatusParts) -> bytes:
    """A `google.rpc.Status`."""
    number, _ = code.value
    writer = _Writer().number(1, number).text(2, message)
    if parts.error_info is not None:
        _add_detail(writer, "google.rpc.ErrorInfo", _encode_error_info(parts.error_info))
    if parts.bad_request is not None:
        wrong = parts.bad_request
        violation = _Writer().text(1, wrong.field).text(2, wrong.description)
        _add_detail(writer, "google.rpc.BadRequest", _Writer().bytes(1, violation.data))
    if parts.retry_delay_ms is not None:
        seconds, ms = divmod(parts.retry_delay_ms, 1000)
        delay = Duration(seconds=seconds, nanos=ms * 1_000_000)
        _add_detail(writer, "google.rpc.RetryInfo", _Writer().bytes(1, delay.SerializeToString()))
    return bytes(writer.data)


def _encode_error_info(info: ErrorInfo) -> _Writer:
    writer = _Writer().text(1, info.reason).text(2, info.domain)
    return _with_entries(writer, info.metadata)


def _with_entries(writer: _Writer, entries: Mapping[str, str]) -> _Writer:
    for key, value in entries.items():
        writer.bytes(3, _Writer().text(1, key).text(2, value).data)
    return writer


def _add_detail(writer: _Writer, name: str, message: _Writer) -> None:
    writer.bytes(3, AnyMessage(type_url=TYPE_PREFIX + name, value=bytes(message.data)).SerializeToString())
