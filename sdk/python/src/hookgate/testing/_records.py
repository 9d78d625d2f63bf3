"""The log and the events of a test host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hookgate._proto import host_pb2

Severity: TypeAlias = Literal["debug", "info", "warn", "error"]

_SEVERITIES: Final[dict[int, Severity]] = {
    host_pb2.SEVERITY_UNSPECIFIED: "info",
    host_pb2.SEVERITY_DEBUG: "debug",
    host_pb2.SEVERITY_INFO: "info",
    host_pb2.SEVERITY_WARN: "warn",
    host_pb2.SEVERITY_ERROR: "error",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that a plugin wrote to the gateway's log."""

    plugin: str
    """The plugin's name."""
    tenant: str | None
    """The call's tenant; `None` outside of calls."""
    severity: Severity
    """How important it is."""
    message: str
    """The text for people."""
    attributes: dict[str, str]
    """Facts, for programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittedEvent(LogLine):
    """An event that a plugin emitted."""

    name: str
    """What happened, such as `catalog.updated`."""


def line_from_wire(plugin: str, tenant: str | None, record: host_pb2.LogRecord) -> LogLine:
    """The line as a test reads it."""
    return LogLine(
        plugin=plugin,
        tenant=tenant,
        severity=_SEVERITIES[record.severity],
        message=record.message,
        attributes=dict(record.attributes),
    )


def event_from_wire(plugin: str, tenant: str | None, event: host_pb2.EmitEventRequest) -> EmittedEvent:
    """The event as a test reads it."""
    return EmittedEvent(
        plugin=plugin,
        tenant=tenant,
        severity=_SEVERITIES[event.severity],
        message=event.message,
        attributes=dict(event.attributes),
        name=event.name,
    )
