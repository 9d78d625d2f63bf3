"""Configuration and arguments of tools: pydantic checks and types them, and tells the gateway their JSON Schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from hookgate._json import JsonError, JsonObject, dumps, loads

MAX_SCHEMA_BYTES: Final = 64 * 1024
"""Largest JSON Schema of a manifest (docs/protocol.md, section 2)."""

Model: TypeAlias = type[BaseModel]

_NO_MEMBERS: Final[JsonObject] = {"type": "object", "additionalProperties": False}
"""The JSON Schema of an object without members."""

_QUOTING_ERRORS: Final = frozenset({"value_error", "assertion_error", "union_tag_invalid", "uuid_parsing"})
"""Errors of pydantic whose text may have a part of the value: the first two are texts of the author's validators."""

_PLAIN_ERRORS: Final = frozenset(get_args(ErrorType)) - _QUOTING_ERRORS


class SchemaError(ValueError):
    """A value doesn't fit its schema."""


def schema_bytes(model: Model | None, role: str) -> bytes:
    """The JSON Schema of what a value must be before it is checked; without a model, an object without members.

    :param role: What the model is called in the message of an error.
    :raises TypeError: If it isn't a model, has no JSON Schema, or that is too large.
    """
    if model is None:
        return dumps(_NO_MEMBERS)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise TypeError(f"{role} must be a class that inherits from pydantic's BaseModel")
    try:
        schema = dumps(model.model_json_schema(mode="validation"), role)
    except Exception as error:  # Authors' types may raise anything here.
        raise TypeError(f"{role} has no JSON Schema: {error}") from error
    if len(schema) > MAX_SCHEMA_BYTES:
        raise TypeError(f"{role} has {len(schema)} bytes as a JSON Schema, more than {MAX_SCHEMA_BYTES}")
    return schema


def check(model: Model | None, data: bytes, *, secret: bool = False) -> BaseModel | None:
    """Checks JSON text; none counts as an empty object. Without a model there is nothing to check.

    :param secret: The value may hold secrets. Then the message of the error has only texts that quote no values.
    :raises SchemaError: If it doesn't fit. The message names the members.
    """
    if model is None:
        return None
    data = data or b"{}"
    try:
        # pydantic would take NaN, with which every comparison is false, also that with a limit.
        loads(data, "the value")
        return model.model_validate_json(data)
    except JsonError as error:
        raise SchemaError(str(error)) from None
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        raise SchemaError(_describe(details, secret)) from None


def _describe(details: Sequence[ErrorDetails], secret: bool) -> str:
    return "; ".join(_describe_one(detail, secret) for detail in details)


def _describe_one(detail: ErrorDetails, secret: bool) -> str:
    is_plain = not secret or detail["type"] in _PLAIN_ERRORS
    text = detail["msg"] if is_plain else "is refused"
    field = ".".join(map(str, detail["loc"]))
    return f"field `{field}`: {text}" if field else text
