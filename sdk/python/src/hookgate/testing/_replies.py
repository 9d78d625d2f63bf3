"""Replies as tests read them, from the messages that a gateway gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from google.protobuf.message import Message

from hookgate._json import JsonObject, loads
from hookgate._proto import plugin_pb2, types_pb2
from hookgate._server.wire import POINT_WIRES
from hookgate.media import Media
from hookgate.point import PointName
from hookgate.reply import ABSENT, Cancel, Contribution, HookReply, Notice, Reply
from hookgate.testing._reply_rules import PointResponse
from hookgate.tool import ToolAnnotations

_NOTICE_KINDS: Final[Mapping[int, Literal["allow", "block", "warn", "info"]]] = {
    types_pb2.NOTICE_KIND_UNSPECIFIED: "info",
    types_pb2.NOTICE_KIND_ALLOW: "allow",
    types_pb2.NOTICE_KIND_BLOCK: "block",
    types_pb2.NOTICE_KIND_WARN: "warn",
    types_pb2.NOTICE_KIND_INFO: "info",
}


@dataclass(frozen=True, slots=True)
class ProvidedTool:
    """A tool that the plugin provides."""

    name: str
    """`[A-Za-z0-9_.-]{1,128}`."""
    description: str
    """What the tool does, for the model."""
    input_schema: JsonObject
    """The JSON Schema of its arguments."""
    annotations: ToolAnnotations | None
    """What to expect of it; `None` if it doesn't say."""


def reply_from_wire(point: PointName, response: PointResponse) -> Reply[Any]:
    """The reply as the handler wrote it, with the JSON of its patch, result and notices parsed."""
    cancelled = _cancel_from_wire(response.cancel) if response.HasField("cancel") else None
    patch = _patch_from_wire(point, response.modify) if response.HasField("modify") else None
    consumed = None
    if isinstance(response, plugin_pb2.BeforeResponseResponse) and response.HasField("consumed"):
        consumed = response.consumed
    return Reply(cancelled, patch, _notices_from_wire(response.notices), consumed)


def hook_reply_from_wire(response: plugin_pb2.OnHookResponse) -> HookReply:
    contributions = [Contribution(it.kind, loads(it.value)) for it in response.contributions]
    return HookReply(contributions, _notices_from_wire(response.notices))


def tool_from_wire(tool: types_pb2.Tool) -> ProvidedTool:
    annotations = _annotations_from_wire(tool.annotations) if tool.HasField("annotations") else None
    return ProvidedTool(tool.name, tool.description, cast(JsonObject, loads(tool.input_schema)), annotations)


def _annotations_from_wire(annotations: types_pb2.ToolAnnotations) -> ToolAnnotations:
    present = {field.name: value for field, value in annotations.ListFields()}
    return ToolAnnotations(**present)


def _cancel_from_wire(cancelled: plugin_pb2.Cancel) -> Cancel:
    return Cancel(
        cancelled.code,
        cancelled.message,
        "run" if cancelled.scope == types_pb2.CANCEL_SCOPE_RUN else "step",
        cancelled.retry_after_ms if cancelled.HasField("retry_after_ms") else None,
        loads(cancelled.result) if cancelled.result else ABSENT,
    )


def _patch_from_wire(point: PointName, patch: Message) -> dict[str, object]:
    members = POINT_WIRES[point].members
    present = [name for name in members if patch.HasField(name)]
    return {name: _member_from_wire(members[name], getattr(patch, name)) for name in present}


def _member_from_wire(kind: str, value: object) -> object:
    if isinstance(value, types_pb2.MediaList):
        return [_medium_from_wire(medium) for medium in value.items]
    return loads(value) if isinstance(value, bytes) else value


def _medium_from_wire(medium: types_pb2.Media) -> Media:
    has_data = medium.WhichOneof("source") == "data"
    return Media(
        mime_type=medium.mime_type,
        data=medium.data if has_data else None,
        url=None if has_data else medium.url,
        filename=medium.filename if medium.HasField("filename") else None,
    )


def _notices_from_wire(notices: Sequence[types_pb2.Notice]) -> list[Notice]:
    return [
        Notice(
            _NOTICE_KINDS[notice.kind],
            notice.message,
            notice.code if notice.HasField("code") else None,
            cast(JsonObject, loads(notice.details)) if notice.details else None,
        )
        for notice in notices
    ]
