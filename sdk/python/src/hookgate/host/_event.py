"""Events for the gateway's operators."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from hookgate._json import well_formed
from hookgate._proto import host_pb2
from hookgate.host._argument import check_text
from hookgate.host._client import HostClient
from hookgate.host._errors import invalid
from hookgate.host._methods import EMIT_EVENT
from hookgate.host._record import Attributes, attributes_to_wire, check_event

EventSeverity: TypeAlias = Literal["info", "warn", "error"]
"""`info`: something normal. `warn`: somebody should look at it. `error`: the plugin failed to do something."""

_SEVERITIES: Final = {
    "info": host_pb2.SEVERITY_INFO,
    "warn": host_pb2.SEVERITY_WARN,
    "error": host_pb2.SEVERITY_ERROR,
}


async def emit(
    client: HostClient,
    name: str,
    message: str = "",
    attributes: Attributes | None = None,
    *,
    severity: EventSeverity = "info",
) -> None:
    """Emits an event for the gateway's operators: a log line, which `hookgate events` shows too.

    The plugin needs the capability `emit`.

    :param name: What happened, such as `catalog.updated`: 1 to 128 lower-case letters, digits, `_` and `-`, in parts
        joined by dots.
    :param message: A sentence for people, at most 1 KiB. No secrets, no payloads.
    :raises HostError: `rate_limited` beyond 100 events per second of a plugin at one gateway, and then the event is
        dropped; `invalid` if a field is outside its range.
    :raises TypeError: If an argument has a wrong type.
    """
    for argument, value in {"name": name, "message": message, "severity": severity}.items():
        check_text(argument, value)
    if severity not in _SEVERITIES:
        raise invalid("severity", "`info`, `warn` or `error`")
    event = host_pb2.EmitEventRequest(
        name=well_formed(name),
        severity=_SEVERITIES[severity],
        message=well_formed(message),
        attributes=attributes_to_wire(attributes),
    )
    wrong = check_event(event)
    if wrong is not None:
        raise invalid(wrong.field, wrong.range)
    await client.call(EMIT_EVENT, event)
