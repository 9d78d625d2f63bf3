"""JSON values as they are sent: bytes of JSON text.

Python's integers have any size, but `json` refuses those of more than 4300 digits, writes `NaN`, and turns keys that
aren't strings into some. A value that would change on its way is refused here instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn, TypeAlias, cast

import pydantic
from pydantic import BaseModel

__all__ = ["JsonError", "JsonObject", "JsonValue", "dumps", "loads", "well_formed"]

JsonValue: TypeAlias = pydantic.JsonValue
"""A JSON value: `None`, a bool, an int of any size, a float, a str, or a list or a dict of them.

It is pydantic's `JsonValue`.
"""

JsonObject: TypeAlias = dict[str, JsonValue]
"""A JSON object."""

MAX_DEPTH: Final = 64
"""Deepest nesting that the protocol allows (docs/protocol.md, section 1)."""

_DIGITS_AT_ONCE: Final = 4000
"""Python converts at most 4300 digits between integers and text, unless the process raises the limit."""


class JsonError(ValueError):
    """A value that can't be written as JSON, or bytes that aren't JSON."""


def loads(data: bytes | str, name: str = "value") -> JsonValue:
    """Parses JSON text. Integers of any size are exact.

    :param name: What the value is called in the message of an error.
    :raises JsonError: If it isn't JSON. `NaN` and `Infinity` aren't.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        try:
            return cast(JsonValue, _decode(text))
        except (json.JSONDecodeError, JsonError):
            raise
        except ValueError:
            return cast(JsonValue, _decode_long(text))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else _without_input(error)
        raise JsonError(f"{name} is not JSON: {reason}") from None


def _without_input(error: ValueError) -> str:
    """What is wrong, without the text itself, which may be secret."""
    return error.reason if isinstance(error, UnicodeDecodeError) else str(error)


def _refuse_constant(text: str) -> NoReturn:
    raise JsonError(f"{text} is no number")


def _long_int(digits: str) -> int:
    return -_join_digits(digits[1:]) if digits.startswith("-") else _join_digits(digits)


def _join_digits(digits: str) -> int:
    # Halves, because multiplying two large integers is faster than extending one by a few digits many times.
    if len(digits) <= _DIGITS_AT_ONCE:
        return int(digits)
    low = len(digits) // 2
    power: int = 10**low
    return _join_digits(digits[:-low]) * power + _join_digits(digits[-low:])


def _split_digits(number: int, count: int) -> str:
    """The number, which isn't negative, with at least `count` digits."""
    if count <= _DIGITS_AT_ONCE:
        return str(number).rjust(count, "0")
    low = count // 2
    head, tail = divmod(number, 10**low)
    return _split_digits(head, count - low) + _split_digits(tail, low)


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
_decode_long = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_long_int).decode
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode


def well_formed(text: str) -> str:
    """The same text with U+FFFD in place of each half of a surrogate pair, which UTF-8 can't have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # Two halves beside each other are one character.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def dumps(value: object, name: str = "value") -> bytes:
    """Writes a value as JSON text in UTF-8.

    Takes mappings with string keys, lists, tuples, texts, numbers, booleans, `None`, and pydantic models. Half
    surrogate pairs in texts become U+FFFD.

    :param name: What the value is called in the message of an error.
    :raises JsonError: If the value has no JSON form, nests deeper than 64 levels, or contains itself. The message names
        the path of what is wrong.
    """
    try:
        if _is_plain(value, 1):
            return _encode(value).encode()
    except (TypeError, ValueError):
        pass  # Written again below, which finds the path, or writes what `json` can't.
    return _write(value, name, 1).encode()


def _is_plain(value: object, depth: int) -> bool:
    """Whether `json` may write the value's keys and its nesting as they are."""
    if isinstance(value, dict):
        return depth <= MAX_DEPTH and all(map(_is_text, value)) and _are_plain(value.values(), depth)
    if isinstance(value, (list, tuple)):
        return depth <= MAX_DEPTH and _are_plain(value, depth)
    return True


def _is_text(key: object) -> bool:
    return isinstance(key, str)


def _are_plain(members: Iterable[object], depth: int) -> bool:
    # Only containers need the call, and most members are none.
    containers = (member for member in members if isinstance(member, (dict, list, tuple)))
    return all(_is_plain(member, depth + 1) for member in containers)


def _write(value: object, path: str, depth: int) -> str:
    if value is None or isinstance(value, bool):
        return _encode(value)
    if isinstance(value, str):
        return _encode(well_formed(value))
    if isinstance(value, int):
        return _write_int(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise JsonError(f"{path} is {float(value)}, which JSON doesn't have")
        return _encode(value)
    return _write_container(value, path, depth)


def _write_int(number: int) -> str:
    bits = number.bit_length()
    if bits <= 10_000:  # about 3010 digits
        return int.__repr__(number)
    digits = _split_digits(abs(number), int(bits * math.log10(2)) + 1).lstrip("0")
    return f"-{digits}" if number < 0 else digits


def _write_container(value: object, path: str, depth: int) -> str:
    if isinstance(value, BaseModel):
        return _write(value.model_dump(mode="json", by_alias=True), path, depth)
    if not isinstance(value, (Mapping, list, tuple)):
        raise JsonError(f"{path} is of the type {type(value).__name__}, which JSON doesn't have")
    if depth > MAX_DEPTH:
        raise JsonError(f"{path} is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if not isinstance(value, Mapping):
        return f"[{','.join(_write(item, f'{path}[{index}]', depth + 1) for index, item in enumerate(value))}]"
    members: dict[str, str] = {}
    for key, member in value.items():
        if not isinstance(key, str):
            raise JsonError(f"{path} has the key {key!r}, which isn't a string")
        name = _encode(well_formed(key))
        if name in members:
            raise JsonError(f"{path} has the key {name} twice, once a half surrogate pair is U+FFFD")
        members[name] = _write(member, f"{path}.{key}", depth + 1)
    return f"{{{','.join(f'{name}:{text}' for name, text in members.items())}}}"
