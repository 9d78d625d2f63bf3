"""Finds mistakes in a plugin's definition: a handler that is never called would let pass what it should stop."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hookgate.point import CAPABILITIES, POINTS, Offer, PointName, check_offer, check_windows
from hookgate.tool import Tool

ON_HOOK: Final = "on_hook"
_METHODS: Final = (*POINTS, ON_HOOK, "initialize", "shutdown")
_LOOKS_LIKE_A_POINT: Final = re.compile(r"(before|after)_?[a-z]", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*))*)?"
    r"(\+[\dA-Za-z-]+(\.[\dA-Za-z-]+)*)?",
    re.ASCII,
)
"""A semantic version (semver.org)."""
_MAX_VERSION_BYTES: Final = 256
_MAX_MISTAKES: Final = 2
"""A method's name with so many mistakes is taken for a misspelt one."""


def members_of(handler: type) -> dict[str, object]:
    """What a class and its bases define, without calling properties."""
    members: dict[str, object] = {}
    for base in reversed(handler.__mro__[:-1]):
        members.update(vars(base))
    return members


def check_class(handler: type) -> None:
    """Checks the names of a class's methods.

    :raises TypeError: If one would never be called. The message names it.
    """
    if not isinstance(handler, type):
        raise TypeError(f"`handler` must be a class, not {handler!r}: each configuration has an object of its own")
    for name, member in members_of(handler).items():
        if name in _METHODS:
            _check_method(name, member)
            continue
        is_method = callable(member) or isinstance(member, (staticmethod, classmethod))
        if not is_method or isinstance(member, Tool) or name.startswith("__"):
            continue
        meant = next((known for known in _METHODS if _is_like(name, known)), None)
        if meant is not None:
            raise TypeError(f"`{name}` is never called: write `{meant}`, or give it another name")
        if _LOOKS_LIKE_A_POINT.match(name):
            raise TypeError(f"`{name}` is never called: the points are {', '.join(POINTS)}. Give it another name")


def _check_method(name: str, member: object) -> None:
    if not callable(member) and not isinstance(member, (staticmethod, classmethod)):
        raise TypeError(f"`{name}` is of the type {type(member).__name__}, not a method: write it, or leave it out")


def check_values(
    name: str, version: str, capabilities: Sequence[str], points: Mapping[PointName, Offer], hooks: Mapping[str, Offer]
) -> None:
    """Checks what a type checker would have checked, and the forms of the name and the version (docs/protocol.md).

    :raises TypeError: The message names what is wrong.
    """
    if not isinstance(name, str) or not name:
        raise TypeError("`name` is missing: the name under which the gateway knows the plugin")
    if not _NAME.fullmatch(name):
        raise TypeError(f"`name` is `{name}`: it must be a letter, then up to 63 letters, digits, `_` and `-`")
    if not isinstance(version, str) or not version:
        raise TypeError("`version` is missing: a semantic version")
    if len(version) > _MAX_VERSION_BYTES or not _VERSION.fullmatch(version):
        raise TypeError(f"`version` is `{version}`, which isn't a semantic version such as 1.0.0")
    if isinstance(capabilities, str):
        raise TypeError("`capabilities` must be a list")
    wrong = next((capability for capability in capabilities if capability not in CAPABILITIES), None)
    if wrong is not None:
        raise TypeError(f"there is no capability {wrong!r}: they are {', '.join(CAPABILITIES)}")
    for point in points:
        if point not in POINTS:
            raise TypeError(f"`points` has {point!r}, which is no point: they are {', '.join(POINTS)}")
    for site, offer in [*points.items(), *hooks.items()]:
        if not isinstance(offer, Offer):
            raise TypeError(f"what the plugin offers at `{site}` must be an Offer: write Offer(...)")
    for point, offer in points.items():
        check_offer(point, offer)
    for hook, offer in hooks.items():
        check_windows(hook, offer)


def check_parameters(function: Callable[..., object], what: str, expected: Sequence[str]) -> None:
    """Checks that a function takes these positional arguments.

    :raises TypeError: If every call of it would fail.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # Some functions of C don't tell their parameters.
    try:
        signature.bind(*expected)
    except TypeError:
        raise TypeError(f"{what} must take ({', '.join(expected)}), but it takes {signature}") from None


def _is_like(name: str, known: str) -> bool:
    """Whether a name is another one with at most two mistakes, where case and `_` don't count."""
    a, b = (text.replace("_", "").lower() for text in (name, known))
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        following = [i]
        for j, other in enumerate(b, 1):
            following.append(min(row[j - 1] + (letter != other), row[j] + 1, following[j - 1] + 1))
        row = following
    return row[-1] <= _MAX_MISTAKES
