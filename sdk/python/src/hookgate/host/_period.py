"""Lengths of time, as a plugin's configuration may write them."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Final, TypeAlias

from pydantic import StringConstraints

from hookgate.host._argument import is_number, wrong_type
from hookgate.host._errors import invalid

Period: TypeAlias = Annotated[str, StringConstraints(pattern=r"^(minute|hour|day|\d{1,15}(ms|s|m|h))$")]
"""A length of time: `minute`, `hour`, `day`, or a whole number and a unit, such as `500ms`, `30s`, `10m` or `24h`.

As the type of a member of a configuration, it refuses other texts.
"""

_MAX_PERIOD_MS: Final = 366 * 24 * 60 * 60 * 1000
"""The longest period: 366 days, in milliseconds."""
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_NAMES_MS: Final = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_COUNTED: Final = re.compile(r"(\d{1,15})(ms|s|m|h)", re.ASCII)


def period_ms(period: str) -> int:
    """A period in milliseconds.

    :raises ValueError: If the text is no period. The message says what is expected.
    """
    if period in _NAMES_MS:
        return _NAMES_MS[period]
    match = _COUNTED.fullmatch(period)
    if match is None:
        shown = json.dumps(period)
        forms = "a whole number and `ms`, `s`, `m` or `h`, such as `500ms`, or `minute`, `hour` or `day`"
        raise ValueError(f"{shown} is no period: write {forms}")
    return int(match[1]) * _UNITS_MS[match[2]]


def check_ttl(ms: float | None) -> int | None:
    """The time until an entry expires, as it is sent.

    :raises HostError: If it is outside the range.
    :raises TypeError: If it is no number.
    """
    if ms is None:
        return None
    if not is_number(ms):
        raise wrong_type("ttl_ms", "a number of milliseconds", ms)
    return _check_range("ttl_ms", ms)


def check_window(window: float | str | None) -> int | None:
    """The window of a counter, as it is sent.

    :raises HostError: If it is outside the range.
    :raises TypeError: If it is neither a number nor a text.
    :raises ValueError: If it is a text that is no period.
    """
    if window is None:
        return None
    if isinstance(window, str):
        return _check_range("window_ms", period_ms(window))
    if not is_number(window):
        raise wrong_type("window", "a number of milliseconds, or a text such as `day` or `30s`", window)
    return _check_range("window_ms", window)


def _check_range(field: str, ms: float) -> int:
    """Milliseconds as they are sent. Rounded up, so that no positive time becomes 0."""
    # Of NaN, nothing is true.
    if not 0 < ms <= _MAX_PERIOD_MS:
        raise invalid(field, f"1 to {_MAX_PERIOD_MS} milliseconds")
    return math.ceil(ms)
