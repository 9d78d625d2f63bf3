"""Lengths of time, as a plugin's configuration may write them."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Final, TypeAlias

from pydantic import StringConstraints

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


def check_period(field: str, ms: float | None) -> int | None:
    """Milliseconds of a field as they are sent. Rounded up, so that no positive time becomes 0.

    :raises HostError: If they are outside the range.
    """
    if ms is None:
        return None
    # Of NaN, nothing is true.
    if not 0 < ms <= _MAX_PERIOD_MS:
        raise invalid(field, f"1 to {_MAX_PERIOD_MS} milliseconds")
    return math.ceil(ms)
