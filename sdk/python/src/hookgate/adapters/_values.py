"""Values of agent libraries as JSON, and back."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from hookgate._json import MAX_DEPTH, JsonError, JsonValue, dumps, well_formed

T = TypeVar("T")


def to_json(value: object, name: str = "value") -> JsonValue:
    """A value as JSON.

    Takes what pydantic takes: models, dataclasses, dates, enums, sets and more. Bytes become base64, `NaN` and
    infinities become `None`, and keys become texts.

    :param name: What the value is called in the message of an error.
    :raises JsonError: The value has no JSON form, is nested deeper than 64 levels, or contains itself.
    """
    return _convert(value, name, 1)


def to_json_list(values: Sequence[object], name: str = "value") -> list[JsonValue]:
    """Like `to_json`, for a list."""
    return [_convert(value, f"{name}[{index}]", 2) for index, value in enumerate(values)]


def to_text(value: JsonValue) -> str:
    """A JSON value as a model reads it: a text as it is, anything else as JSON text."""
    return value if isinstance(value, str) else dumps(value).decode()


def is_same_json(one: JsonValue, other: JsonValue) -> bool:
    """Whether two JSON values have the same text. For Python, 1, 1.0 and True are equal."""
    return dumps(one) == dumps(other)


def message_of(error: BaseException) -> str:
    """What an error says."""
    return str(error) or type(error).__name__


def merge_list(
    originals: Sequence[T],
    sent: Sequence[JsonValue],
    returned: Sequence[JsonValue],
    decode: Callable[[JsonValue, T | None], T],
) -> list[T]:
    """A list as plugins left it. An item that nobody changed is the original, with everything that JSON doesn't show.

    :param originals: The items as they were before.
    :param sent: What the gateway got for them, in the same order.
    :param returned: What came back.
    :param decode: Makes an item of a changed or new one. If the list has kept its length, it also gets the original at
        that place.
    """
    unchanged: dict[bytes, list[T]] = {}
    for original, json in zip(originals, sent, strict=True):
        unchanged.setdefault(dumps(json), []).append(original)
    is_aligned = len(originals) == len(returned)
    merged = []
    for index, item in enumerate(returned):
        same = unchanged.get(dumps(item))
        merged.append(same.pop(0) if same else decode(item, originals[index] if is_aligned else None))
    return merged


def _convert(value: object, path: str, depth: int) -> JsonValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # A copy, because the text of an enum is another one.
        return well_formed(value) if type(value) is str else _convert_other(value, path, depth)
    if isinstance(value, int):
        return value if type(value) is int else _convert_other(value, path, depth)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if depth > MAX_DEPTH:
        raise JsonError(f"{path} is nested deeper than {MAX_DEPTH} levels, or contains itself")
    if isinstance(value, Mapping):
        return _convert_members(value, path, depth)
    if isinstance(value, (list, tuple)):
        return [_convert(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    return _convert_other(value, path, depth)


def _convert_other(value: object, path: str, depth: int) -> JsonValue:
    if isinstance(value, Iterator):
        raise JsonError(f"{path} is an iterator, which can be read only once")
    try:
        plain = to_jsonable_python(value, by_alias=True, bytes_mode="base64")
    except (PydanticSerializationError, ValueError, RecursionError):
        if not isinstance(value, BaseModel):
            raise JsonError(f"{path} is of the type {type(value).__name__}, which JSON doesn't have") from None
        # Such as bytes that are no text, which models don't write as base64 by default.
        plain = dict(value)
    return plain if isinstance(plain, (str, int)) else _convert(plain, path, depth)


def _convert_members(value: Mapping[object, object], path: str, depth: int) -> JsonValue:
    members: dict[str, JsonValue] = {}
    for key, member in value.items():
        name = key if isinstance(key, str) else next(iter(to_jsonable_python({key: None})))
        name = well_formed(name)
        if name in members:
            raise JsonError(f"{path} has two keys that are {name!r} in JSON")
        members[name] = _convert(member, f"{path}.{name}", depth + 1)
    return members
