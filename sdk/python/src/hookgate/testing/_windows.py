"""Cuts an answer into windows as a gateway does, and puts together what goes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hookgate.payload import ResponseWindow
from hookgate.reply import Cancel, Notice, ResponseReply

_MAX_BEFORE: Final = 1024
"""How many of the consumed characters a window shows."""


@dataclass(frozen=True, slots=True)
class WindowedResponse:
    """What comes of an answer that a plugin judged in windows."""

    content: str
    """The text that goes out; up to a cancel, what went out before it."""
    reasoning: str | None
    """The reasoning that goes out."""
    cancelled: Cancel | None
    """Why the answer stops; `None` if all of it goes out."""
    notices: Sequence[Notice]
    """The remarks of all windows, in order."""


class Windows:
    """The windows of an answer. Each takes its reply before the next one is made."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = list(pieces) or [""]
        self._content = ""
        """Of the current window."""
        self._consumed = ""
        """As the plugin got it."""
        self._sent = ""
        self._reasoning: str | None = None
        self._cancelled: Cancel | None = None
        self._notices: list[Notice] = []

    def __iter__(self) -> Iterator[tuple[str, ResponseWindow]]:
        """Each window with its `content`, up to a cancel."""
        end = len(self._pieces) - 1
        for seq, piece in enumerate(self._pieces):
            self._content += piece
            before = self._consumed[-_MAX_BEFORE:]
            yield self._content, ResponseWindow(seq=seq, before=before, offset=len(self._consumed), last=seq == end)
            if self._cancelled is not None:
                return

    def take(self, reply: ResponseReply) -> None:
        """Sends what the plugin consumed, and keeps the rest."""
        self._notices.extend(reply.notices)
        self._cancelled = reply.cancelled
        if reply.cancelled is not None:
            return
        patch = reply.patch or {}
        count = len(self._content) if reply.consumed is None else reply.consumed
        consumed, self._content = self._content[:count], self._content[count:]
        self._consumed += consumed
        self._sent += patch.get("content", consumed)
        self._reasoning = patch.get("reasoning", self._reasoning)

    def response(self, reasoning: str | None) -> WindowedResponse:
        """What came of the answer, whose reasoning was this."""
        changed = reasoning if self._reasoning is None else self._reasoning
        return WindowedResponse(self._sent, changed, self._cancelled, self._notices)
