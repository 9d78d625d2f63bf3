"""What a plugin gets at each point, and at a lifecycle hook.

Members of a payload from the gateway are read when a handler first reads them, so JSON that no handler needs is never
parsed. An integer in JSON has any size. A plugin can't change the JSON in place, which would be lost; an agent can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from google.protobuf.message import Message
from typing_extensions import Self
from typing_extensions import TypeVar as TypeVarWithDefault

from hookgate._frozen import freeze_json
from hookgate._json import JsonError, JsonObject, JsonValue, loads
from hookgate._proto import plugin_pb2, types_pb2
from hookgate.media import Media

_M = TypeVar("_M", bound=Message)
_BodyT = TypeVarWithDefault("_BodyT", default=JsonObject)


class _Payload(Generic[_M]):
    """A payload whose members are filled when they are first read."""

    __slots__ = ("_is_frozen", "_message", "_window")

    _read: ClassVar[Mapping[str, Callable[..., object]]]
    """How each member is read from the message."""

    @classmethod
    def from_message(cls, message: _M) -> Self:
        """Only the SDK calls it. The payload of an answer, for an agent."""
        payload = object.__new__(cls)
        object.__setattr__(payload, "_message", message)
        object.__setattr__(payload, "_is_frozen", False)
        return payload

    @classmethod
    def from_call(cls, message: _M) -> Self:
        """Only the SDK calls it. The payload of a call, for a plugin: its JSON can't be changed."""
        payload = object.__new__(cls)
        object.__setattr__(payload, "_message", message)
        object.__setattr__(payload, "_is_frozen", True)
        return payload

    if not TYPE_CHECKING:  # Otherwise every name would be a member.

        def __getattr__(self, name: str) -> object:
            """Called for members that have no value yet."""
            read = self._read.get(name)
            if read is None:
                raise AttributeError(f"{type(self).__name__} has no member {name}")
            value = read(self._message)
            if self._is_frozen and isinstance(value, (dict, list)):
                value = _frozen(value, name)
            object.__setattr__(self, name, value)
            return value


def _frozen(value: JsonValue, name: str) -> JsonValue:
    try:
        return freeze_json(value)
    except RecursionError:
        raise JsonError(f"{name} is not JSON: it is nested too deep") from None


def _plain(name: str) -> Callable[[Message], object]:
    return lambda message: getattr(message, name)


def _optional(name: str) -> Callable[[Message], object]:
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _json(name: str, absent: JsonValue = None) -> Callable[[Message], JsonValue]:
    def read(message: Message) -> JsonValue:
        data: bytes = getattr(message, name)
        return loads(data, name) if data else absent

    return read


def _media(name: str) -> Callable[[Message], tuple[Media, ...]]:
    return lambda message: tuple(map(_read_media, getattr(message, name)))


def _read_media(media: types_pb2.Media) -> Media:
    filename = media.filename if media.HasField("filename") else None
    if media.WhichOneof("source") == "data":
        return Media(mime_type=media.mime_type, data=media.data, filename=filename)
    return Media(mime_type=media.mime_type, url=media.url, filename=filename)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeLlmRequest(_Payload[types_pb2.BeforeLlmRequestPayload]):
    """What the agent is about to send to a model."""

    text: str = ""
    """The user's text. May be empty."""
    images: tuple[Media, ...] = ()
    """Images beside the text."""
    files: tuple[Media, ...] = ()
    """Files beside the text."""
    system_prompt: str | None = None
    """The system prompt."""
    messages: list[JsonValue] | None = None
    """The conversation in the agent's own format."""
    tools: list[JsonValue] | None = None
    """The tools offered to the model in the agent's own format."""
    extra: JsonObject | None = None
    """Additional data for plugins."""

    _read: ClassVar[Mapping[str, Callable[..., object]]] = {
        "text": _plain("text"),
        "images": _media("images"),
        "files": _media("files"),
        "system_prompt": _optional("system_prompt"),
        "messages": _json("messages"),
        "tools": _json("tools"),
        "extra": _json("extra"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeToolCall(_Payload[types_pb2.BeforeToolCallPayload]):
    """A tool call that the agent is about to make."""

    tool_name: str
    """Name of the tool, 1 to 256 bytes."""
    args: JsonValue = None
    """The arguments."""
    call_id: str | None = None
    """The model's id of this call."""
    extra: JsonObject | None = None
    """Additional data for plugins."""

    _read: ClassVar[Mapping[str, Callable[..., object]]] = {
        "tool_name": _plain("tool_name"),
        "args": _json("args"),
        "call_id": _optional("call_id"),
        "extra": _json("extra"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterToolResult(_Payload[types_pb2.AfterToolResultPayload]):
    """What a tool returned, on success and on failure."""

    tool_name: str
    """Name of the tool that ran, 1 to 256 bytes."""
    result: JsonValue = None
    """The tool's result, or its error."""
    success: bool = True
    """Whether the tool succeeded."""
    args: JsonValue = None
    """The arguments as executed; `None` also if the agent didn't say: see `has_args`."""
    call_id: str | None = None
    """The model's id of this call."""
    duration_ms: int | None = None
    """How long the tool ran, in milliseconds."""
    extra: JsonObject | None = None
    """Additional data for plugins."""

    _read: ClassVar[Mapping[str, Callable[..., object]]] = {
        "tool_name": _plain("tool_name"),
        "result": _json("result"),
        "success": _plain("success"),
        "args": _json("args"),
        "call_id": _optional("call_id"),
        "duration_ms": _optional("duration_ms"),
        "extra": _json("extra"),
    }

    @property
    def has_args(self) -> bool:
        """Whether the agent said with which arguments the tool ran. They may be `None`, which is null."""
        message: types_pb2.AfterToolResultPayload | None = getattr(self, "_message", None)
        return self.args is not None if message is None else bool(message.args)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens that a call of a model used."""

    input: int
    """Tokens of the prompt."""
    output: int
    """Tokens of the completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseWindow:
    """Which part of an answer's text a call is about, while the model still writes the answer.

    All windows of an answer have the same `request_id`.
    """

    seq: int = 0
    """Number of the window in this answer, from 0."""
    before: str = ""
    """The characters in front of `content`, at most 1,024.

    The plugin has consumed them. They are as they were before it changed them. To look at, not to change.
    """
    offset: int = 0
    """How many characters the plugin has consumed."""
    last: bool = False
    """Nothing follows: all of `content` must be consumed. Only this window has `token_usage` and `stop_reason`."""


def _read_usage(message: types_pb2.BeforeResponsePayload) -> TokenUsage | None:
    usage = message.token_usage
    return TokenUsage(usage.input, usage.output) if message.HasField("token_usage") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeResponse(_Payload[types_pb2.BeforeResponsePayload]):
    """The answer that the agent is about to show to the user."""

    content: str = ""
    """The answer's text."""
    reasoning: str | None = None
    """The model's reasoning, if it is shown."""
    provider: str | None = None
    """Provider of the model that answered."""
    model: str | None = None
    """Model that answered."""
    router: str | None = None
    """Router that chose the model."""
    token_usage: TokenUsage | None = None
    """Tokens of the prompt and of the completion."""
    stop_reason: str | None = None
    """Why the model stopped, in the provider's words."""
    extra: JsonObject | None = None
    """Additional data for plugins."""

    _read: ClassVar[Mapping[str, Callable[..., object]]] = {
        "content": _plain("content"),
        "reasoning": _optional("reasoning"),
        "provider": _optional("provider"),
        "model": _optional("model"),
        "router": _optional("router"),
        "token_usage": _read_usage,
        "stop_reason": _optional("stop_reason"),
        "extra": _json("extra"),
    }

    @classmethod
    def from_request(cls, request: plugin_pb2.BeforeResponseRequest) -> Self:
        """Only the SDK calls it. The payload of a call, for a plugin, with the window that the call is about."""
        payload = cls.from_call(request.payload)
        if request.call.HasField("window"):
            it = request.call.window
            window = ResponseWindow(seq=it.seq, before=it.before, offset=it.offset, last=it.last)
            object.__setattr__(payload, "_window", window)
        return payload

    @property
    def window(self) -> ResponseWindow | None:
        """Which part of the answer's text `content` is; `None` if it is the whole text.

        Only plugins that offer `windows` get parts. They answer with `proceed(consumed=...)`.
        """
        window: ResponseWindow | None = getattr(self, "_window", None)
        return window


@dataclass(frozen=True, slots=True, kw_only=True)
class HookPayload(_Payload[types_pb2.HookPayload], Generic[_BodyT]):
    """What happened in the agent's life."""

    hook: str
    """Name of the hook."""
    body: _BodyT
    """What happened, in the form that docs/protocol.md gives for known hooks. `hookgate.hook` has their types."""

    _read: ClassVar[Mapping[str, Callable[..., object]]] = {"hook": _plain("hook"), "body": _json("body", {})}

    @classmethod
    def from_message(cls, message: types_pb2.HookPayload) -> Self:
        """Only the SDK calls it: only plugins get such a payload."""
        return cls.from_call(message)
