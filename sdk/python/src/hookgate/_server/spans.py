"""The OpenTelemetry span around each call of the plugin service, within the caller's trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import grpc
from opentelemetry import propagate, trace
from opentelemetry.context import Context

from hookgate._server.status import StatusError

_tracer: Final = trace.get_tracer("hookgate")

_SERVER_FAULTS: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""The statuses that OpenTelemetry's conventions count as an error of the server. The caller causes the others."""

_STATUS: Final = "rpc.response.status_code"


def is_tracing() -> bool:
    """Whether the process has an OpenTelemetry SDK. Otherwise a span costs time and does nothing."""
    return not isinstance(trace.get_tracer_provider(), (trace.ProxyTracerProvider, trace.NoOpTracerProvider))


async def in_call_span(
    method: str,
    metadata: Sequence[tuple[str, str | bytes]],
    attributes: Mapping[str, str],
    call: Callable[[], Awaitable[bytes]],
) -> bytes:
    """Runs a call inside its span.

    :param method: Full name of the method, such as `hookgate.plugin.v1.PluginService/Describe`.
    """
    carrier = {key: value for key, value in metadata if isinstance(value, str)}
    parent = propagate.extract(carrier, context=Context())
    every = {"rpc.system.name": "grpc", "rpc.method": method, **attributes}
    span = _tracer.start_span(method, context=parent, kind=trace.SpanKind.SERVER, attributes=every)
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            answer = await call()
        except StatusError as error:
            _record(span, error.code)
            raise
        except asyncio.CancelledError:
            _record(span, grpc.StatusCode.CANCELLED)
            raise
        _record(span, grpc.StatusCode.OK)
        return answer


def _record(span: trace.Span, code: grpc.StatusCode) -> None:
    span.set_attribute(_STATUS, code.name)
    if code in _SERVER_FAULTS:
        span.set_attribute("error.type", code.name)
        span.set_status(trace.StatusCode.ERROR)
