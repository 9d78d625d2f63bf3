"""The rules for an answer in windows: which calls have one, and what a handler may say of it."""

from __future__ import annotations

from typing import Any, Final

import grpc

from hookgate._proto import plugin_pb2
from hookgate._server.status import StatusError
from hookgate.errors import PluginError
from hookgate.point import Offer, PointName
from hookgate.reply import Reply

_MAX_REST_BYTES: Final = 64 << 10
"""How much of a window may come again."""


def check_window(call: plugin_pb2.Call, offer: Offer) -> None:
    """Checks that a handler that takes only whole answers gets no part of one.

    :raises StatusError: If it would.
    """
    if call.HasField("window") and not offer.windows:
        raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, "`call.window`: the plugin doesn't offer `windows`")


def consumed_in_window(point: PointName, reply: Reply[Any], request: Any) -> int | None:
    """How many characters go on, to be sent to the gateway; `None` for all of them.

    :raises PluginError: If the gateway would refuse the reply.
    """
    consumed: object = reply.consumed
    if consumed is None or reply.cancelled is not None:
        return None
    if point != "before_response":
        raise PluginError.internal(f"`consumed` is only for before_response, not for {point}")
    if not isinstance(consumed, int) or isinstance(consumed, bool) or consumed < 0:
        raise PluginError.internal(f"`consumed` must be a number of characters, not {consumed!r}")
    # A whole answer is its own last window: what isn't consumed would pass unjudged.
    is_last = request.call.window.last or not request.call.HasField("window")
    _check_range(consumed, request.payload.content, is_last)
    return consumed


def _check_range(consumed: int, content: str, is_last: bool) -> None:
    size = len(content)
    if consumed > size:
        raise PluginError.internal(f"`consumed` is {consumed}, but `content` has only {size} characters")
    if is_last and consumed < size:
        raise PluginError.internal(f"`consumed` is {consumed}, but nothing follows: all {size} characters must go on")
    rest = len(content[consumed:].encode())
    if rest > _MAX_REST_BYTES:
        left = f"{rest} bytes of `content` to come again, {_MAX_REST_BYTES} are allowed"
        raise PluginError.internal(f"`consumed` is {consumed}, which leaves {left}")
