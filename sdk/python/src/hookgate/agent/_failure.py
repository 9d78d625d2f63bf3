"""Why a call over gRPC has no answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

import grpc
from google.protobuf.message import DecodeError

from hookgate._proto import gateway_pb2
from hookgate._status import ErrorInfo, StatusDetails, status_details
from hookgate.agent._answers import read_step_reason, read_steps
from hookgate.agent._errors import CallErrorKind, CallFailure, Violation, malformed
from hookgate.agent._types import Step

if TYPE_CHECKING:
    import grpc.aio

_ERROR_DOMAIN: Final = "hookgate"
"""The domain of the gateway's error codes in `google.rpc.ErrorInfo`."""

_CHAIN_REPORT_TYPE: Final = "type.googleapis.com/hookgate.gateway.v1.ChainReport"
"""The error detail that contains the chain's steps."""

_KINDS_WITHOUT_ANSWER: Final[dict[grpc.StatusCode, CallErrorKind]] = {
    grpc.StatusCode.UNAVAILABLE: "unreachable",
    grpc.StatusCode.CANCELLED: "unreachable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "timeout",
}
"""Statuses of the client's own, or of a proxy's, if no gateway has answered. Others can't come from a gateway."""


def failure_of(error: grpc.RpcError) -> CallFailure:
    """Why there is no answer."""
    # Errors of both of gRPC's clients have the same methods.
    status = cast("grpc.aio.AioRpcError", error)
    code, detail = status.code(), status.details() or ""
    metadata = cast("Iterable[tuple[str, str | bytes]]", status.trailing_metadata() or ())
    request_id = next((value for key, value in metadata if key == "x-request-id" and isinstance(value, str)), None)
    details = status_details(status)
    info = details.error_info
    if info is not None and info.domain == _ERROR_DOMAIN:
        return _failure_with_code(info, details, detail, request_id, error)
    kind = _KINDS_WITHOUT_ANSWER.get(code)
    if kind is None:
        return malformed(f"{code.name}: {detail}", request_id, error)
    return CallFailure(kind=kind, detail=detail or code.name, request_id=request_id, cause=error)


def _failure_with_code(
    info: ErrorInfo, details: StatusDetails, detail: str, request_id: str | None, cause: BaseException
) -> CallFailure:
    steps, omitted_steps = _chain_report(details)
    violations = details.bad_request or ()
    return CallFailure(
        kind="error",
        code=info.reason,
        detail=detail,
        retry_after_ms=details.retry_delay_ms,
        violations=tuple(Violation(violation.field, violation.description) for violation in violations),
        plugin=info.metadata.get("plugin"),
        binding=info.metadata.get("binding"),
        reason=read_step_reason(info.metadata.get("step_reason")),
        steps=steps,
        omitted_steps=omitted_steps,
        request_id=request_id,
        cause=cause,
    )


def _chain_report(details: StatusDetails) -> tuple[tuple[Step, ...], int]:
    """The steps until the error. A report that can't be read is left out: the error is as good without it."""
    for other in details.others:
        if other.type_url == _CHAIN_REPORT_TYPE:
            try:
                report = gateway_pb2.ChainReport.FromString(other.value)
                return read_steps(report.steps), report.omitted_steps
            except (DecodeError, ValueError):
                break
    return (), 0


def overdue(timeout: float, cause: BaseException | None = None) -> CallFailure:
    """The failure of a call whose time is over."""
    detail = f"no answer from the gateway within {max(0.0, round(timeout, 3)):g} s"
    return CallFailure(kind="timeout", detail=detail, cause=cause)


def token_failure(cause: Exception) -> CallFailure:
    """The failure of a call without a token."""
    return CallFailure(kind="token", detail=f"the token source failed: {cause}", cause=cause)


def in_time(failure: CallFailure, timeout: float, *, is_over: bool) -> CallFailure:
    """The failure as it looks to a caller whose time may be over."""
    is_overdue = failure.kind == "timeout" or (is_over and failure.kind == "unreachable")
    return overdue(timeout, failure.cause) if is_overdue else failure
