"""Payloads as they are sent, and the check of those that come back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeAlias, TypeVar, cast

from google.protobuf.message import Message

from hookgate._json import dumps, loads, well_formed
from hookgate._proto import types_pb2
from hookgate.agent._types import Payload
from hookgate.media import Media
from hookgate.payload import AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, TokenUsage

P = TypeVar("P", bound=Payload)

_MAX_UINT64: Final = 2**64 - 1

_Writer: TypeAlias = Callable[[Message, str, object], None]
"""Writes a member of a payload into its message.

:raises TypeError: The value has another type; the message names the member.
:raises ValueError: The value can't be sent; the message names the member.
"""


def _wrong(name: str, expected: str, value: object) -> TypeError:
    # Never the value itself, which may be private.
    return TypeError(f"{name} must be {expected}, is of the type {type(value).__name__}")


def _text(value: object, name: str) -> str:
    if isinstance(value, str):
        return well_formed(value)
    raise _wrong(name, "a str", value)


def _write_text(message: Message, name: str, value: object) -> None:
    setattr(message, name, _text(value, name))


def _write_flag(message: Message, name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise _wrong(name, "a bool", value)
    setattr(message, name, value)


def _write_json(message: Message, name: str, value: object) -> None:
    setattr(message, name, dumps(value, name))


def _write_object(message: Message, name: str, value: object) -> None:
    _write_container(message, name, value, b"{", "a mapping")


def _write_array(message: Message, name: str, value: object) -> None:
    _write_container(message, name, value, b"[", "a list")


def _write_container(message: Message, name: str, value: object, first: bytes, expected: str) -> None:
    data = dumps(value, name)
    if not data.startswith(first):
        raise _wrong(name, expected, value)
    setattr(message, name, data)


def _count(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, "an int", value)
    if 0 <= value <= _MAX_UINT64:
        return value
    raise ValueError(f"{name} must be from 0 to 2^64 - 1")


def _write_milliseconds(message: Message, name: str, value: object) -> None:
    """Measured times are rounded."""
    if isinstance(value, float) and math.isfinite(value):
        value = round(value)
    setattr(message, name, _count(value, name))


def _write_usage(message: Message, name: str, value: object) -> None:
    if not isinstance(value, TokenUsage):
        raise _wrong(name, "a TokenUsage", value)
    usage = cast("types_pb2.BeforeResponsePayload", message).token_usage
    usage.SetInParent()
    usage.input = _count(value.input, f"{name}.input")
    usage.output = _count(value.output, f"{name}.output")


def _write_media(message: Message, name: str, value: object) -> None:
    if not isinstance(value, (list, tuple)):
        raise _wrong(name, "a list", value)
    for index, item in enumerate(value):
        getattr(message, name).append(_media(item, f"{name}[{index}]"))


def _media(item: object, name: str) -> types_pb2.Media:
    if not isinstance(item, Media):
        raise _wrong(name, "a Media", item)
    media = types_pb2.Media(mime_type=_text(item.mime_type, f"{name}.mime_type"))
    if item.data is None:
        media.url = _text(item.url, f"{name}.url")
    elif isinstance(item.data, (bytes, bytearray, memoryview)):
        media.data = bytes(item.data)
    else:
        raise _wrong(f"{name}.data", "bytes", item.data)
    if item.filename is not None:
        media.filename = _text(item.filename, f"{name}.filename")
    return media


class PayloadCodec(Generic[P]):
    """Writes the payloads of one point, and checks those that come back."""

    def __init__(self, payload: type[P], *, required: dict[str, _Writer], optional: dict[str, _Writer]) -> None:
        """`None` as an optional member leaves it out."""
        self._payload = payload
        self._required = required
        self._optional = optional
        self._writers = required | optional
        self._json = {name: _JSON_TYPES[writer] for name, writer in self._writers.items() if writer in _JSON_TYPES}
        self.names = (*required, *optional)

    def encode(self, message: Message, function: str, payload: object, members: Mapping[str, object]) -> None:
        """Writes a payload, or its members, into a message of a call.

        :raises TypeError: A member is missing or has another type, or there is a payload and members.
        :raises ValueError: A member can't be sent.
        """
        message.SetInParent()
        if payload is None:
            missing = [name for name in self._required if name not in members]
            if missing:
                raise TypeError(f"{function}() needs the argument {missing[0]!r}")
            self._write(message, members)
            return
        if members:
            raise TypeError(f"{function}() takes a payload or {next(iter(members))!r}, not both")
        if not isinstance(payload, self._payload):
            raise _wrong("the payload", f"a {self._payload.__name__}", payload)
        received: Message | None = getattr(payload, "_message", None)
        if received is None:
            self._write(message, {name: getattr(payload, name) for name in self.names})
            return
        # A payload that came from a gateway keeps the bytes of its JSON, unless the value that was read has changed.
        message.CopyFrom(received)
        for name in self._json:
            value = _value_if_read(payload, name)
            if isinstance(value, (dict, list)) and dumps(value, name) != dumps(loads(getattr(received, name)), name):
                self._writers[name](message, name, value)

    def _write(self, message: Message, members: Mapping[str, object]) -> None:
        for name, write in self._required.items():
            write(message, name, members[name])
        for name, write in self._optional.items():
            value = members.get(name)
            if value is not None:
                write(message, name, value)

    def wrap(self, message: Message) -> P:
        """The payload with the members of the message."""
        # The codec's payload and its message belong together, which types can't say.
        from_message = cast("Callable[[Message], P]", self._payload.from_message)
        return from_message(message)

    def decode(self, message: Message, sent: Message) -> P:
        """The payload of an answer.

        JSON that comes back as it was sent is JSON, so it is parsed only when it is read. All other JSON is parsed
        here, because an answer that can't be read is no decision.

        :raises ValueError: The payload is malformed.
        """
        payload = self.wrap(message)
        for name, expected in self._json.items():
            data: bytes = getattr(message, name)
            if not data and name in self._required:
                raise ValueError(f"payload.{name} is missing")
            if data and data != getattr(sent, name):
                value: object = getattr(payload, name)
                if not isinstance(value, expected):
                    raise ValueError(f"payload.{name} is of the type {type(value).__name__}")
        _check_presence(message)
        return payload


def _value_if_read(payload: Payload, name: str) -> object:
    """A member's value; `None` also if it hasn't been parsed yet."""
    try:
        value: object = object.__getattribute__(payload, name)
    except AttributeError:
        return None
    return value


def _check_presence(message: Message) -> None:
    """:raises ValueError: A member that isn't JSON is missing."""
    if isinstance(message, types_pb2.AfterToolResultPayload) and not message.HasField("success"):
        raise ValueError("payload.success is missing")
    if isinstance(message, types_pb2.BeforeLlmRequestPayload):
        for name, media in (("images", message.images), ("files", message.files)):
            for index, item in enumerate(media):
                if item.WhichOneof("source") is None:
                    raise ValueError(f"payload.{name}[{index}] has neither data nor url")


_JSON_TYPES: Final[Mapping[_Writer, type]] = {_write_json: object, _write_object: dict, _write_array: list}
"""The types of parsed JSON, by its writer."""

BEFORE_LLM_REQUEST: Final = PayloadCodec(
    BeforeLlmRequest,
    required={"text": _write_text},
    optional={
        "images": _write_media,
        "files": _write_media,
        "system_prompt": _write_text,
        "messages": _write_array,
        "tools": _write_array,
        "extra": _write_object,
    },
)

BEFORE_TOOL_CALL: Final = PayloadCodec(
    BeforeToolCall,
    required={"tool_name": _write_text, "args": _write_json},
    optional={"call_id": _write_text, "extra": _write_object},
)

AFTER_TOOL_RESULT: Final = PayloadCodec(
    AfterToolResult,
    required={"tool_name": _write_text, "result": _write_json, "success": _write_flag},
    optional={"args": _write_json, "call_id": _write_text, "duration_ms": _write_milliseconds, "extra": _write_object},
)

BEFORE_RESPONSE: Final = PayloadCodec(
    BeforeResponse,
    required={"content": _write_text},
    optional={
        "reasoning": _write_text,
        "provider": _write_text,
        "model": _write_text,
        "router": _write_text,
        "token_usage": _write_usage,
        "stop_reason": _write_text,
        "extra": _write_object,
    },
)
