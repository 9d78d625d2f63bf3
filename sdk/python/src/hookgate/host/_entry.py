"""What the storage holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import JsonValue

from hookgate import _json
from hookgate._proto import host_pb2


@dataclass(frozen=True, slots=True)
class ValueEntry:
    """An entry that a put wrote."""

    key: str
    """1 to 512 bytes, no control characters."""
    value: bytes
    """At most 64 KiB."""
    version: int
    """Changes with every write of the key, and never returns to an earlier number. At least 1."""
    expires_in_ms: int | None = None
    """Milliseconds until the entry expires; `None` if it never does."""
    kind: Literal["value"] = "value"
    """Tells it from a `CounterEntry`."""

    def text(self) -> str:
        """The value as text. Bytes that are not UTF-8 become U+FFFD."""
        return self.value.decode(errors="replace")

    def json(self) -> JsonValue:
        """The value as JSON.

        :raises JsonError: If it isn't JSON.
        """
        return _json.loads(self.value)


@dataclass(frozen=True, slots=True)
class CounterEntry:
    """An entry that an addition wrote."""

    key: str
    """1 to 512 bytes, no control characters."""
    counter: int
    """Between -2^53 and 2^53."""
    version: int
    """Changes with every write of the key, and never returns to an earlier number. At least 1."""
    expires_in_ms: int | None = None
    """Milliseconds until the entry expires; `None` if it never does."""
    kind: Literal["counter"] = "counter"
    """Tells it from a `ValueEntry`."""


Entry: TypeAlias = ValueEntry | CounterEntry
"""An entry of the storage: a value or a counter, which `kind` tells apart, or `isinstance`."""


@dataclass(frozen=True, slots=True)
class Page:
    """Entries in the order of their keys' bytes."""

    entries: list[Entry]
    """At most as many as the page size."""
    next_after: str | None
    """Pass it as `after` for the next page; `None` if this is the last one."""


def entry_from_wire(entry: host_pb2.Entry) -> Entry:
    expires_in_ms = entry.expires_in_ms if entry.HasField("expires_in_ms") else None
    if entry.WhichOneof("content") == "counter":
        return CounterEntry(entry.key, entry.counter, entry.version, expires_in_ms)
    return ValueEntry(entry.key, entry.value, entry.version, expires_in_ms)
