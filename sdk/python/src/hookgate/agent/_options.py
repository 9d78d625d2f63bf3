"""Options of an agent and of its calls, and their checks."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, Protocol, TypeAlias, get_args

from typing_extensions import TypedDict

from hookgate._address import Address, TcpAddress, parse_address
from hookgate._channel import TlsFiles, check_tls_files
from hookgate.agent._context import CallContext
from hookgate.point import PointName

SyncTokenSource: TypeAlias = str | Callable[[CallContext], str]
"""A `TokenSource` that doesn't await anything."""

TokenSource: TypeAlias = str | Callable[[CallContext], str | Awaitable[str]]
"""Where bearer tokens come from: always the same one, or a function that is called for each call.

The function gets the call's context, so that it can choose the token by `tenant`. One that isn't async must not block.
"""

OnNoDecision: TypeAlias = Literal["fail", "go_on"]
"""What to do at a point when no decision could be made: `fail` raises `NoDecision`, `go_on` continues with the
agent's own payload after an outage. An error that the request may have caused, and an answer that is malformed,
always fail."""

OnNoDecisionByPoint: TypeAlias = OnNoDecision | Mapping[PointName, OnNoDecision]
"""The same at every point, or at those named. At the others it is `fail`."""


class Caller(Protocol):
    """The call that a plugin is handling while it calls a gateway itself. The `Context` of a plugin is one."""

    @property
    def time_left_ms(self) -> float | None:
        """Milliseconds until the gateway gives up that call. They limit calls made on its behalf."""

    @property
    def traceparent(self) -> str | None:
        """W3C trace context of that call. An active OpenTelemetry span has precedence."""

    @property
    def tracestate(self) -> str | None:
        """W3C trace state of that call."""

    @property
    def depth(self) -> int:
        """Number of gateways that the call has passed. Gateways use it to detect loops."""


class CallOptions(TypedDict, total=False):
    """What every call may say."""

    context: CallContext
    """Added to the agent's own context and that of `call_context`. Its values have precedence."""
    timeout: float
    """Waits this long for an answer, in seconds, more than 0 and at most 2^31; the gateway is told. Getting the token
    counts. The default is the agent's."""
    caller: Caller
    """The call of a plugin on whose behalf this one is made: limits its time, and forwards trace and depth."""


class HookCallOptions(CallOptions, total=False):
    """What a call at a hook may say."""

    expect_plan_digest: str
    """The `plan_digest` of an earlier answer at the hook: if the plan has changed since, the call fails with
    PLAN_CHANGED."""


class PointCallOptions(CallOptions, total=False):
    """What a call at a point may say."""

    expect_plan_digest: str
    """The `plan_digest` of an earlier answer at the point: if the plan has changed since, the call fails with
    PLAN_CHANGED."""
    trace: bool
    """Asks for `steps[].changes`. Meant for inspecting a chain; it makes answers larger. The default is the agent's."""
    on_no_decision: OnNoDecision
    """What to do when no decision could be made. The default is the agent's."""


DEFAULT_TIMEOUT: Final = 15.0
"""The gateway's default budget for an invocation, in seconds. By default, waiting longer is useless."""

_MAX_TIMEOUT: Final = 2.0**31

_POINTS: Final[tuple[PointName, ...]] = get_args(PointName)
_ON_NO_DECISION: Final[tuple[OnNoDecision, ...]] = get_args(OnNoDecision)


def check_endpoint(gateway: object, files: TlsFiles) -> tuple[Address, TlsFiles]:
    """Where a gateway listens.

    :raises TypeError: The address is no str.
    :raises ValueError: The address or the certificates can't be used.
    """
    if not isinstance(gateway, str):
        raise TypeError(f"the gateway's address must be a str, is of the type {type(gateway).__name__}")
    address = parse_address(gateway)
    is_tls = isinstance(address, TcpAddress) and address.tls
    if not is_tls and files != TlsFiles():
        # Whoever names certificates doesn't want to send a token in plaintext.
        raise ValueError("`ca`, `certificate` and `key` are for https:// addresses")
    check_tls_files(files)
    return address, files


def check_names(function: str, arguments: Mapping[str, object], known: tuple[str, ...]) -> None:
    """:raises TypeError: An argument isn't known."""
    for name in arguments:
        if name not in known:
            raise TypeError(f"{function}() has no argument {name!r}; known here: {', '.join(known)}")


def check_timeout(value: object) -> float:
    """:raises TypeError: It is no number. `None` isn't either: a call always ends.
    :raises ValueError: It is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"timeout must be a number of seconds, is of the type {type(value).__name__}")
    if 0 < value <= _MAX_TIMEOUT:
        return float(value)
    raise ValueError(f"timeout must be more than 0 and at most {_MAX_TIMEOUT:.0f} seconds, is {value}")


def check_flag(name: str, value: object) -> bool:
    """:raises TypeError: It is no bool."""
    if isinstance(value, bool):
        return value
    raise TypeError(f"{name} must be a bool, is of the type {type(value).__name__}")


def check_on_no_decision(value: object, name: str = "on_no_decision") -> OnNoDecision:
    """:raises ValueError: It is neither `fail` nor `go_on`."""
    if value in _ON_NO_DECISION:
        return value
    raise ValueError(f"{name} must be 'fail' or 'go_on', is {value!r}")


def on_no_decision_by_point(value: object) -> Mapping[PointName, OnNoDecision]:
    """What to do at each point.

    :raises ValueError: It names no point, or what to do is neither `fail` nor `go_on`.
    """
    if not isinstance(value, Mapping):
        return dict.fromkeys(_POINTS, check_on_no_decision(value))
    for point in value:
        if point not in _POINTS:
            raise ValueError(f"on_no_decision has {point!r}, which isn't a point; they are {', '.join(_POINTS)}")
    return {point: check_on_no_decision(value.get(point, "fail"), f"on_no_decision[{point!r}]") for point in _POINTS}


def check_caller(caller: Caller) -> None:
    """:raises TypeError: It isn't the context of a plugin's call, or a member has another type."""
    for name in ("time_left_ms", "traceparent", "tracestate", "depth"):
        if not hasattr(caller, name):
            raise TypeError(f"caller must be the context of a plugin's call: it has no `{name}`")
    for name, header in (("traceparent", caller.traceparent), ("tracestate", caller.tracestate)):
        if header is not None and not (isinstance(header, str) and header.isascii() and header.isprintable()):
            raise TypeError(f"caller.{name} must be a str that a header can carry")
    depth: object = caller.depth
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 0:
        raise TypeError("caller.depth must be an int of at least 0")
    left: object = caller.time_left_ms
    if left is not None and (isinstance(left, bool) or not isinstance(left, (int, float)) or math.isnan(left)):
        raise TypeError("caller.time_left_ms must be a number")
