"""Why a call to the gateway's services failed."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import grpc
import grpc.aio

from hookgate._status import status_details

HostErrorKind: TypeAlias = Literal[
    "not_offered",
    "unavailable",
    "denied",
    "invalid",
    "quota_exceeded",
    "rate_limited",
    "not_a_counter",
    "failed",
]
"""Why a call to the gateway's services failed:

- `not_offered`: the gateway offers this plugin no services.
- `unavailable`: the gateway or its database doesn't answer, or the time of the call is over. A write may or may not
  have happened.
- `denied`: the plugin lacks the capability for the method, or its token has expired. Nothing happened.
- `invalid`: a field is outside its range. Nothing happened.
- `quota_exceeded`: the plugin's data for the tenant would exceed its quota. Nothing was written.
- `rate_limited`: the plugin emits more events than the gateway takes. This one was dropped.
- `not_a_counter`: the key of an addition holds a value. Nothing was written.
- `failed`: the gateway answered something that the contract doesn't allow.
"""

_PREFIXES: Final[dict[HostErrorKind, str]] = {
    "not_offered": "",
    "unavailable": "the gateway's host services are unavailable: ",
    "denied": "the gateway refused the call: ",
    "invalid": "invalid call to the gateway: ",
    "quota_exceeded": "the gateway's storage is full: ",
    "rate_limited": "the gateway dropped the event: ",
    "not_a_counter": "not a counter: ",
    "failed": "the gateway's host services failed: ",
}

_KINDS: Final[dict[grpc.StatusCode, HostErrorKind]] = {
    grpc.StatusCode.UNAVAILABLE: "unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "unavailable",
    grpc.StatusCode.CANCELLED: "unavailable",
    grpc.StatusCode.PERMISSION_DENIED: "denied",
    grpc.StatusCode.UNAUTHENTICATED: "denied",
    grpc.StatusCode.INVALID_ARGUMENT: "invalid",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "quota_exceeded",
    grpc.StatusCode.FAILED_PRECONDITION: "not_a_counter",
}

_NOT_OFFERED: Final = (
    "the gateway offers no host services to this plugin: set `server.host_addr` or `server.host_socket` in the"
    " gateway's configuration, and list the capability in the plugin's `capabilities`"
)


class HostError(Exception):
    """Why a call to the gateway's services failed: to its storage, or to emit an event."""

    kind: HostErrorKind
    """Why, for programs."""
    retry_after_ms: int | None
    """Milliseconds after which the gateway takes events again; `None` unless the kind is `rate_limited`."""
    is_outcome_unknown: bool
    """Whether a write may have happened nevertheless. Reads change nothing, so `False` for them."""

    def __init__(
        self,
        kind: HostErrorKind,
        reason: str,
        *,
        retry_after_ms: int | None = None,
        is_outcome_unknown: bool = False,
    ) -> None:
        """Only the SDK makes it."""
        remark = "; the write may or may not have happened" if is_outcome_unknown else ""
        super().__init__(_PREFIXES[kind] + reason + remark)
        self.kind = kind
        self.retry_after_ms = retry_after_ms
        self.is_outcome_unknown = is_outcome_unknown

    @property
    def is_unavailable(self) -> bool:
        """Whether the call may succeed later without a change of the plugin."""
        return self.kind in ("not_offered", "unavailable")


def not_offered() -> HostError:
    return HostError("not_offered", _NOT_OFFERED)


def invalid(field: str, range_: str) -> HostError:
    """A field outside its range, as the gateway would report it."""
    return HostError("invalid", f"`{field}`: {range_}")


def no_result(*, is_outcome_unknown: bool = False) -> HostError:
    """An answer without its result."""
    return HostError("failed", "an answer without its result", is_outcome_unknown=is_outcome_unknown)


def from_status(error: grpc.aio.AioRpcError, *, is_write: bool) -> HostError:
    """What an error of gRPC means for a call that may have reached the gateway."""
    code, message = error.code(), error.details() or ""
    kind = _KINDS.get(code, "failed")
    if kind == "failed":
        message = f"{code.name}: {message}"
    retry_after_ms = None
    if kind in ("invalid", "quota_exceeded"):
        details = status_details(error)
        if details.bad_request and kind == "invalid":
            wrong = details.bad_request[0]
            message = f"`{wrong.field}`: {wrong.description}"
        if details.retry_delay_ms is not None and kind == "quota_exceeded":
            kind, retry_after_ms = "rate_limited", details.retry_delay_ms
    is_outcome_unknown = is_write and kind in ("unavailable", "failed")
    return HostError(kind, message, retry_after_ms=retry_after_ms, is_outcome_unknown=is_outcome_unknown)
