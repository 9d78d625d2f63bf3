"""Tools that a plugin provides: functions from typed arguments to a JSON value (docs/protocol.md, section 10)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar, cast, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from hookgate._calling import Handler
from hookgate._schema import Model, SchemaError, check, schema_bytes
from hookgate.context import Context
from hookgate.errors import PluginError, message_of
from hookgate.reply import Cancel, Reply, ToolCallReply, cancel

_F = TypeVar("_F", bound=Callable[..., object])

_AnyContext: TypeAlias = Context[Any, Any, Any]

_PREFIX: Final = "argument_"
"""Keeps the names of parameters apart from those of pydantic's methods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """What to expect of a tool, by the word of its plugin, as in the Model Context Protocol."""

    title: str | None = None
    """A name for people."""
    read_only_hint: bool | None = None
    """Changes nothing."""
    destructive_hint: bool | None = None
    """May delete or overwrite."""
    idempotent_hint: bool | None = None
    """A repeated call with the same arguments changes nothing more."""
    open_world_hint: bool | None = None
    """Reaches beyond the plugin, for example the web."""


class ToolError(Exception):
    """The tool could not do what the arguments ask for.

    The agent gets a block, and shows the message to the model as the tool's error.
    """

    code: str
    """Decides the HTTP status (docs/errors.md)."""

    def __init__(self, message: str, code: str = "TOOL_FAILED") -> None:
        """Makes the error.

        :param message: For the model. It is cut after 1 KiB.
        :param code: `[A-Za-z][A-Za-z0-9_.:-]{0,63}`.
        """
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class _Input:
    """What a function takes."""

    model: Model
    """What the arguments must be."""
    schema: bytes
    """The JSON Schema of the model."""
    fields: Mapping[str, str] | None
    """The model's field for each parameter; `None` if one parameter takes the model itself."""
    parameter: str | None
    """The parameter that takes the model itself."""
    context: str | None
    """The parameter that takes the context."""

    def arguments(self, checked: object, ctx: _AnyContext) -> dict[str, object]:
        """The arguments by the names of the parameters."""
        if self.fields is None:
            named = {} if self.parameter is None else {self.parameter: checked}
        else:
            named = {name: getattr(checked, field) for name, field in self.fields.items()}
        return named if self.context is None else {**named, self.context: ctx}


@dataclass(frozen=True, slots=True)
class Tool(Generic[_F]):
    """A tool. Made by `tool`, or by `Plugin.tool`."""

    name: str
    """`[A-Za-z0-9_.-]{1,128}`."""
    description: str
    """What the tool does, for the model; at most 4 KiB."""
    annotations: ToolAnnotations | None
    """What to expect of it; `None` if it doesn't say."""
    function: _F
    """The function itself, for tests."""
    input: _Input
    """Only the SDK reads it."""

    def bound_to(self, owner: object) -> Tool[Callable[..., object]]:
        """Only the SDK calls it. The tool with its function as a method of this object."""
        bound = cast(
            Callable[..., object], inspect.getattr_static(type(self.function), "__get__")(self.function, owner)
        )
        return Tool(self.name, self.description, self.annotations, bound, self.input)


def tool(
    name: str, *, description: str | None = None, annotations: ToolAnnotations | None = None
) -> Callable[[_F], Tool[_F]]:
    """Makes a tool of a function or of a method. The plugin runs it after all other plugins have let the call pass.

    The function takes the arguments as parameters, or as one pydantic model. A parameter named `ctx`, or annotated with
    `Context`, gets the context. Arguments that don't fit are refused with a message that the model sees. It returns the
    result, any JSON value, or raises a `ToolError`.

    :param name: `[A-Za-z0-9_.-]{1,128}`. Begin it with the plugin's name.
    :param description: What the tool does, for the model; at most 4 KiB. By default the function's docstring.
    :raises TypeError: If the tool can't work. The message says why.
    """
    if not isinstance(name, str):
        raise TypeError('a tool needs a name: write `@tool("plugin.name")`')

    def make(function: _F) -> Tool[_F]:
        text = description if description is not None else inspect.getdoc(function)
        if not text:
            raise TypeError(f"the tool {name} has no description: give its function a docstring, for the model")
        return Tool(name, text, annotations, function, _read_parameters(name, function))

    return make


def _read_parameters(name: str, function: Callable[..., object]) -> _Input:
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"the tool {name}: {error}; import it at run time") from error
    parameters = dict(inspect.signature(function).parameters)
    if next(iter(parameters), None) == "self":
        del parameters["self"]
    context = next((it for it in parameters if it == "ctx" or _is_context(hints.get(it))), None)
    if context is not None:
        del parameters[context]
    only = next(iter(parameters)) if len(parameters) == 1 else None
    hint = None if only is None else hints.get(only)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        model, fields = hint, None
    else:
        model, fields = _model_of(name, parameters, hints), {it: f"{_PREFIX}{it}" for it in parameters}
    return _Input(model, schema_bytes(model, f"the input of the tool {name}"), fields, only, context)


def _is_context(hint: object) -> bool:
    return hint is Context or get_origin(hint) is Context


def _model_of(name: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, object]) -> Model:
    fields: dict[str, Any] = {}
    for it, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"the tool {name} can't be called with the parameter `{it}`: name each argument")
        if it not in hints:
            raise TypeError(f"the parameter `{it}` of the tool {name} has no type: the model must know it")
        default = ... if parameter.default is parameter.empty else parameter.default
        field = (hints[it], Field(default, alias=it))
        if isinstance(default, FieldInfo):  # `a: int = Field(10, le=100)` has the default in the field.
            field = (Annotated[hints[it], default], Field(alias=it))
        fields[f"{_PREFIX}{it}"] = field
    return create_model(f"{name} arguments", __config__=ConfigDict(extra="forbid"), **fields)


async def run_tool(called: Tool[Callable[..., object]], args: bytes, ctx: _AnyContext) -> ToolCallReply:
    """Runs the tool. The reply is what the gateway expects: a cancel with the result, or with the refusal."""
    try:
        checked = check(called.input.model, args or b"null")
    except SchemaError as error:
        return cancel("TOOL_ARGS_INVALID", f"The arguments are wrong: {error}")
    handler = Handler.of(called.function)
    try:
        result = await handler.call(_calls=ctx._calls, **called.input.arguments(checked, ctx))
    except ToolError as error:
        return cancel(error.code, message_of(error))
    if not isinstance(result, Reply):
        return Reply(Cancel("", "", result=result), None, ())
    if result.cancelled is None:
        raise PluginError.internal(f"the tool {called.name} returned proceed(): return its result, or raise ToolError")
    return result
