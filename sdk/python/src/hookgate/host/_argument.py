"""Arguments of a wrong type, which a type checker would have found."""

from __future__ import annotations

from numbers import Integral, Real


def check_text(name: str, value: object) -> None:
    """Checks that an argument is a text.

    :raises TypeError: The message names the argument.
    """
    if not isinstance(value, str):
        raise wrong_type(name, "a text", value)


def is_integer(value: object) -> bool:
    """Whether a value is an integer, also one of numpy's. To Python, `True` is one too."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is an integer or a float, also one of numpy's."""
    return isinstance(value, Real) and not isinstance(value, bool)


def wrong_type(name: str, right: str, value: object) -> TypeError:
    """The error for an argument of a wrong type. It tells the type only, because the value may be secret."""
    return TypeError(f"`{name}` must be {right}, not {type(value).__name__}")
