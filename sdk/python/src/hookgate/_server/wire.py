"""Turns the messages of each point into what handlers take, and their replies into bytes of messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from google.protobuf.message import Message

from hookgate._json import dumps, well_formed
from hookgate._proto import plugin_pb2, types_pb2
from hookgate.errors import shorten
from hookgate.media import Media
from hookgate.payload import AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall
from hookgate.point import PointName
from hookgate.reply import Cancel, Contribution, HookReply, Notice, Reply

_MemberKind: TypeAlias = Literal["string", "media", "array", "object", "json"]
"""What a member of a patch must be."""

_MAX_MILLISECONDS: Final = 2**53 - 1
"""The longest wait that every language has exactly."""

_NOTICE_KINDS: Final[Mapping[object, types_pb2.NoticeKind.ValueType]] = {
    "allow": types_pb2.NOTICE_KIND_ALLOW,
    "block": types_pb2.NOTICE_KIND_BLOCK,
    "warn": types_pb2.NOTICE_KIND_WARN,
    "info": types_pb2.NOTICE_KIND_INFO,
}


@dataclass(frozen=True, slots=True)
class PointWire:
    """The messages of a point."""

    payload: Callable[[Any], object]
    """What a handler takes, from the request."""
    patch: Callable[..., Message]
    members: Mapping[str, _MemberKind]
    response: Callable[..., Message]


POINT_WIRES: Final[Mapping[PointName, PointWire]] = {
    "before_llm_request": PointWire(
        lambda request: BeforeLlmRequest.from_call(request.payload),
        types_pb2.BeforeLlmRequestPatch,
        {
            "text": "string",
            "images": "media",
            "files": "media",
            "system_prompt": "string",
            "messages": "array",
            "tools": "array",
            "extra": "object",
        },
        plugin_pb2.BeforeLlmRequestResponse,
    ),
    "before_tool_call": PointWire(
        lambda request: BeforeToolCall.from_call(request.payload),
        types_pb2.BeforeToolCallPatch,
        {"tool_name": "string", "args": "json", "extra": "object"},
        plugin_pb2.BeforeToolCallResponse,
    ),
    "after_tool_result": PointWire(
        lambda request: AfterToolResult.from_call(request.payload),
        types_pb2.AfterToolResultPatch,
        {"result": "json", "extra": "object"},
        plugin_pb2.AfterToolResultResponse,
    ),
    "before_response": PointWire(
        BeforeResponse.from_request,
        types_pb2.BeforeResponsePatch,
        {"content": "string", "reasoning": "string", "extra": "object"},
        plugin_pb2.BeforeResponseResponse,
    ),
}

# `continue` is a word of Python.
_CONTINUE: Final[Mapping[str, Message]] = {"continue": plugin_pb2.Continue()}
_PASS: Final = plugin_pb2.BeforeToolCallResponse(**_CONTINUE).SerializeToString()  # type: ignore[arg-type]
"""A reply that goes on and says nothing, which is the same bytes at every point."""


def reply_to_wire(
    point: PointName,
    reply: Reply[Any],
    limit: float,
    warn: Callable[[BaseException], None],
    consumed: int | None = None,
) -> bytes:
    """The message for a reply.

    A cancel stays a cancel: what is wrong with the rest of the reply, or too large, is left out of the message.

    :param limit: Largest reply that the gateway accepts, in bytes.
    :param consumed: In a window of an answer: how many characters go on, unless all do.
    :raises Exception: If the reply goes on and the gateway would refuse it.
    """
    if reply.cancelled is not None:
        return _cancelled_reply(point, reply, reply.cancelled, limit, warn)
    if reply.patch is None and not reply.notices and consumed is None:
        return _PASS
    patch, notices = _patch_to_wire(point, reply.patch), _notices_to_wire(reply.notices)
    return _response(point, _CONTINUE, patch, notices, consumed)


def _cancelled_reply(
    point: PointName, reply: Reply[Any], cancelled: Cancel, limit: float, warn: Callable[[BaseException], None]
) -> bytes:
    """The first of these that can be sent: the whole reply, then always less of it."""
    attempts: tuple[Callable[[], bytes], ...] = (
        lambda: _response(
            point, _cancel_to_wire(cancelled), _patch_to_wire(point, reply.patch), _notices_to_wire(reply.notices)
        ),
        lambda: _response(point, _cancel_to_wire(cancelled), None, _notices_to_wire(reply.notices)),
        lambda: _response(point, _cancel_to_wire(cancelled), None, ()),
        lambda: _response(point, _cancel_to_wire(_without_result(cancelled)), None, ()),
    )
    for attempt in attempts:
        try:
            data = attempt()
        except Exception as error:  # What an author's objects raise when they are written.
            warn(error)
            continue
        if len(data) <= limit:
            return data
        warn(ValueError(f"the reply has {len(data)} bytes, more than {limit}"))
    return _response(point, {"cancel": plugin_pb2.Cancel()}, None, ())


def _without_result(cancelled: Cancel) -> Cancel:
    """A block in place of an answer whose result can't be sent."""
    if not cancelled.is_answer:
        return cancelled
    message = cancelled.message or "The tool's result can't be sent."
    return Cancel(cancelled.code or "TOOL_FAILED", message, cancelled.scope, cancelled.retry_after_ms)


def _response(
    point: PointName,
    verdict: Mapping[str, Message],
    patch: Message | None,
    notices: Sequence[Message],
    consumed: int | None = None,
) -> bytes:
    in_window = {} if consumed is None else {"consumed": consumed}
    return POINT_WIRES[point].response(**verdict, modify=patch, notices=notices, **in_window).SerializeToString()


def hook_reply_to_wire(reply: HookReply) -> bytes:
    """The message for a reply at a hook.

    :raises Exception: If the gateway would refuse it.
    """
    contributions = [_contribution_to_wire(it, index) for index, it in enumerate(reply.contributions)]
    notices = _notices_to_wire(reply.notices)
    return plugin_pb2.OnHookResponse(contributions=contributions, notices=notices).SerializeToString()


def _contribution_to_wire(contribution: object, index: int) -> types_pb2.Contribution:
    if not isinstance(contribution, Contribution):
        raise TypeError(f"contributions[{index}] is no Contribution")
    value = dumps(contribution.value, f"contributions[{index}].value")
    return types_pb2.Contribution(kind=_text(contribution.kind, f"contributions[{index}].kind"), value=value)


def _notices_to_wire(notices: Sequence[object]) -> list[types_pb2.Notice]:
    return [_notice_to_wire(notice, index) for index, notice in enumerate(notices)]


def _notice_to_wire(notice: object, index: int) -> types_pb2.Notice:
    if not isinstance(notice, Notice):
        raise TypeError(f"notices[{index}] is no Notice")
    kind = _NOTICE_KINDS.get(notice.kind)
    if kind is None:
        raise TypeError(f"notices[{index}].kind is {notice.kind!r}, not allow, block, warn or info")
    return types_pb2.Notice(
        kind=kind,
        message=_text(notice.message, f"notices[{index}].message"),
        code=_text(notice.code, f"notices[{index}].code") if notice.code else None,
        details=b"" if notice.details is None else dumps(notice.details, f"notices[{index}].details"),
    )


def _cancel_to_wire(cancelled: Cancel) -> Mapping[str, Message]:
    scope = types_pb2.CANCEL_SCOPE_RUN if cancelled.scope == "run" else types_pb2.CANCEL_SCOPE_STEP
    message = plugin_pb2.Cancel(
        code=_any_text(cancelled.code),
        message=_any_text(cancelled.message),
        retry_after_ms=_milliseconds(cancelled.retry_after_ms),
        scope=scope,
        result=dumps(cancelled.result, "result") if cancelled.is_answer else b"",
    )
    return {"cancel": message}


def _any_text(value: object) -> str:
    """What an author gives as a text may be anything, for example an exception. A cancel must not fail for it."""
    try:
        return shorten("" if value is None else str(value))
    except Exception:
        return ""


def _milliseconds(value: object) -> int | None:
    """A wait, rounded up. One that is no number is left out, because a cancel must not fail for it."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value != value:
        return None
    if value <= 0:
        return 0
    return _MAX_MILLISECONDS if value >= _MAX_MILLISECONDS else math.ceil(value)


def _patch_to_wire(point: PointName, patch: object) -> Message | None:
    if patch is None:
        return None
    if not isinstance(patch, Mapping):
        raise TypeError(f"the patch is of the type {type(patch).__name__}, not a dict")
    if not patch:
        return None
    wire = POINT_WIRES[point]
    converted: dict[str, object] = {}
    for name, value in patch.items():
        kind = wire.members.get(name)
        if kind is None:
            raise TypeError(f"a patch at {point} has no member {name!r}: it has {', '.join(wire.members)}")
        converted[name] = _member_to_wire(kind, name, value)
    return wire.patch(**converted)


def _member_to_wire(kind: _MemberKind, name: str, value: object) -> object:
    if kind == "string":
        return _text(value, f"`{name}` of the patch")
    if kind == "media":
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"`{name}` of the patch must be a list of Media")
        return types_pb2.MediaList(items=[_media_to_wire(medium, name) for medium in value])
    if kind == "array" and not isinstance(value, (list, tuple)):
        raise TypeError(f"`{name}` of the patch must be a list")
    data = dumps(value, name)
    if kind == "object" and not data.startswith(b"{"):
        raise TypeError(f"`{name}` of the patch must be a dict")
    return data


def _media_to_wire(medium: object, name: str) -> types_pb2.Media:
    if not isinstance(medium, Media):
        raise TypeError(f"`{name}` of the patch has {medium!r}, which is no Media")
    message = types_pb2.Media(
        mime_type=_text(medium.mime_type, "a medium's `mime_type`"),
        filename=None if medium.filename is None else _text(medium.filename, "a medium's `filename`"),
    )
    if medium.data is not None:
        message.data = medium.data
    elif medium.url is not None:
        message.url = _text(medium.url, "a medium's `url`")
    return message


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a text, not of the type {type(value).__name__}")
    return well_formed(value)
