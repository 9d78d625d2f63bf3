"""The ranges of log lines and events (`host.proto`), and the forms of their attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from hookgate._json import well_formed
from hookgate._proto import host_pb2
from hookgate.host._argument import wrong_type

_MAX_EVENT_NAME_BYTES: Final = 128
_MAX_EVENT_MESSAGE_BYTES: Final = 1 << 10
_MAX_ATTRIBUTES: Final = 32
_MAX_LINE_MESSAGE_BYTES: Final = 8 << 10
_MAX_VALUE_BYTES: Final = 1 << 10
_ATTRIBUTE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_EVENT_NAME: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")

Attributes: TypeAlias = Mapping[str, object]
"""What a line or an event says besides its message, at most 32 attributes.

A name has 1 to 64 letters, digits, `_`, `-` or `.`, and is not `left_out`. A value is written as `str` writes it, and
cut at 1 KiB; an attribute whose value is `None` is left out. Never put secrets or payloads into them.
"""


@dataclass(frozen=True, slots=True)
class WrongField:
    """A field that is outside its range."""

    field: str
    range: str


def attributes_to_wire(attributes: Attributes | None) -> dict[str, str]:
    """The attributes as they are sent.

    :raises TypeError: If they are no mapping, or one has a name that is no text.
    """
    if attributes is None:
        return {}
    if not isinstance(attributes, Mapping):
        raise wrong_type("attributes", "a mapping of names to values", attributes)
    odd = next((name for name in attributes if not isinstance(name, str)), None)
    if odd is not None:
        raise TypeError(f"`attributes` must have texts as names, not {type(odd).__name__}")
    return {name: value_text(value) for name, value in attributes.items() if value is not None}


def value_text(value: object) -> str:
    """A value as a text: a boolean as JSON names it, an error with its type."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, BaseException):
        text = f"{type(value).__name__}: {value}"
    else:
        text = str(value)
    return truncate(well_formed(text), _MAX_VALUE_BYTES)


def line_message(message: object) -> str:
    """The message of a line as it is sent."""
    return truncate(well_formed(str(message)), _MAX_LINE_MESSAGE_BYTES)


def check_line(record: host_pb2.LogRecord) -> WrongField | None:
    """What is wrong with a log line; `None` if nothing is."""
    if record.severity not in host_pb2.Severity.values():
        return WrongField("severity", "DEBUG, INFO, WARN or ERROR")
    if not record.message:
        return WrongField("message", "not empty")
    return check_attributes(record.attributes)


def check_event(event: host_pb2.EmitEventRequest) -> WrongField | None:
    """What is wrong with an event; `None` if nothing is."""
    if len(event.name) > _MAX_EVENT_NAME_BYTES or not _EVENT_NAME.fullmatch(event.name):
        return WrongField("name", "1 to 128 lower-case letters, digits, `_` and `-`, in parts joined by dots")
    if event.severity == host_pb2.SEVERITY_DEBUG or event.severity not in host_pb2.Severity.values():
        return WrongField("severity", "INFO, WARN or ERROR")
    if len(event.message.encode()) > _MAX_EVENT_MESSAGE_BYTES:
        return WrongField("message", "at most 1 KiB")
    return check_attributes(event.attributes)


def check_attributes(attributes: Mapping[str, str]) -> WrongField | None:
    """What is wrong with attributes; `None` if nothing is."""
    are_names_right = all(_ATTRIBUTE_NAME.fullmatch(name) and name != "left_out" for name in attributes)
    if are_names_right and len(attributes) <= _MAX_ATTRIBUTES:
        return None
    return WrongField("attributes", "at most 32, whose names have 1 to 64 letters, digits, `_`, `-` or `.`")


def truncate(text: str, max_bytes: int) -> str:
    """Cuts a text at a number of bytes of UTF-8, between characters and without a mark, as the gateway cuts it."""
    # A character has at most 4 bytes.
    if len(text) * 4 <= max_bytes:
        return text
    return text[:max_bytes].encode()[:max_bytes].decode(errors="ignore")
