"""The gateway's rules for replies (docs/protocol.md, section 3).

The SDK writes no JSON that repeats a key or is nested too deeply, so nothing looks for that here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from hookgate._proto import plugin_pb2, types_pb2
from hookgate.point import Access, PointName
from hookgate.testing._call_error import bad_reply

LIMITS: Final = plugin_pb2.Limits(
    max_call_bytes=5 << 20,
    max_reply_bytes=4 << 20,
    max_notices=16,
    max_notice_bytes=8192,
    max_details_bytes=4096,
)
"""The limits of a gateway that wasn't told others."""
_MAX_REQUEST_BYTES: Final = 4 << 20
_MAX_GROWTH_BYTES: Final = 64 << 10
"""By how much plugins may make a payload larger than a request may be."""
_MAX_CONTRIBUTIONS: Final = 64
_MAX_CONTRIBUTION_BYTES: Final = LIMITS.max_reply_bytes - LIMITS.max_notice_bytes
"""All contributions of a reply together: as many as a patched payload may have."""
_MAX_TOOL_NAME_BYTES: Final = 256
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")

PointResponse: TypeAlias = (
    plugin_pb2.BeforeLlmRequestResponse
    | plugin_pb2.BeforeToolCallResponse
    | plugin_pb2.AfterToolResultResponse
    | plugin_pb2.BeforeResponseResponse
)
"""A reply at any point."""


def check_reply_size(size: int) -> None:
    """Checks the size of a reply, encoded.

    :raises CallError: If a gateway would reject it.
    """
    _ensure(size <= LIMITS.max_reply_bytes, f"the reply has {size} bytes, {LIMITS.max_reply_bytes} are allowed")


def check_result_size(size: int, payload_size: int) -> None:
    """Checks the size of a result that a plugin gives instead of a tool.

    :raises CallError: If a gateway would leave it out.
    """
    most = min(_MAX_REQUEST_BYTES, _MAX_REQUEST_BYTES + _MAX_GROWTH_BYTES - payload_size)
    _ensure(size <= most, f"the result has {size} bytes, {most} are allowed beside a payload of {payload_size} bytes")


def check_point_reply(plugin: str, point: PointName, access: Access, response: PointResponse) -> None:
    """Checks a reply at a point.

    :raises CallError: If a gateway would reject it, or leave out its patch or its result.
    """
    verdict = response.WhichOneof("verdict")
    _ensure(verdict is not None, "the reply has no verdict")
    has_patch, has_result = response.HasField("modify"), bool(response.cancel.result)
    _ensure(not has_patch or access == "modify", f"a patch is forbidden: {plugin} offers {point} with access `read`")
    is_there = point == "before_tool_call"
    _ensure(not has_result or is_there, f"`answer` is only for before_tool_call, not for {point}")
    forbidden = f"`answer` is forbidden: {plugin} offers {point} with access `read`"
    _ensure(not has_result or access == "modify", forbidden)
    if has_patch:
        _check_patch(response)
    # Of a cancel, the gateway keeps the valid notices.
    if verdict != "cancel":
        check_notices(response.notices)


def _check_patch(response: PointResponse) -> None:
    if isinstance(response, plugin_pb2.BeforeToolCallResponse) and response.modify.HasField("tool_name"):
        is_name = 1 <= len(response.modify.tool_name.encode()) <= _MAX_TOOL_NAME_BYTES
        _ensure(is_name, "`tool_name` of the patch must have 1 to 256 bytes")
    if isinstance(response, plugin_pb2.BeforeLlmRequestResponse):
        _check_media("images", response.modify.images.items)
        _check_media("files", response.modify.files.items)


def _check_media(member: str, media: Sequence[types_pb2.Media]) -> None:
    for index, medium in enumerate(media):
        has_source = medium.WhichOneof("source") == "data" or medium.url
        _ensure(has_source, f"`{member}[{index}].url` of the patch is empty")
        _ensure(medium.mime_type, f"`{member}[{index}].mime_type` of the patch is empty")


def check_hook_reply(response: plugin_pb2.OnHookResponse) -> None:
    """Checks a reply at a hook.

    :raises CallError: If a gateway would reject it.
    """
    contributions = response.contributions
    count = len(contributions)
    _ensure(count <= _MAX_CONTRIBUTIONS, f"{count} contributions, {_MAX_CONTRIBUTIONS} are allowed")
    size = sum(contribution.ByteSize() for contribution in contributions)
    _ensure(size <= _MAX_CONTRIBUTION_BYTES, f"contributions of {size} bytes, {_MAX_CONTRIBUTION_BYTES} are allowed")
    for index, contribution in enumerate(contributions):
        outside = f"/contributions/{index} has the kind `{contribution.kind}` outside {_KIND.pattern}"
        _ensure(_KIND.fullmatch(contribution.kind), outside)
    check_notices(response.notices)


def check_notices(notices: Sequence[types_pb2.Notice]) -> None:
    """Checks the notices of a reply that goes on.

    :raises CallError: If a gateway would reject them.
    """
    _ensure(len(notices) <= LIMITS.max_notices, f"{len(notices)} notices, {LIMITS.max_notices} are allowed")
    size = sum(notice.ByteSize() for notice in notices)
    _ensure(size <= LIMITS.max_notice_bytes, f"notices of {size} bytes, {LIMITS.max_notice_bytes} are allowed")
    for index, notice in enumerate(notices):
        is_code = not notice.HasField("code") or _CODE.fullmatch(notice.code)
        _ensure(is_code, f"/notices/{index} has the code `{notice.code}` outside {_CODE.pattern}")
        size = len(notice.details)
        too_long = f"/notices/{index} has details of {size} bytes, {LIMITS.max_details_bytes} are allowed"
        _ensure(size <= LIMITS.max_details_bytes, too_long)
        is_object = not notice.details or notice.details.startswith(b"{")
        _ensure(is_object, f"/notices/{index} has details that are not a JSON object")


def _ensure(is_right: object, fault: str) -> None:
    if not is_right:
        raise bad_reply(fault)
