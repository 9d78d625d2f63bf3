"""Globs of tools' names: `*`, `?`, `[..]`, and all else literal, over the whole name."""

from __future__ import annotations

import re


def compile_glob(glob: str) -> re.Pattern[str]:
    """The expression that matches what the glob matches.

    :raises ValueError: If it is empty or broken. The message says why.
    """
    if not glob:
        raise ValueError("it is empty, so it matches nothing")
    pattern, at = "", 0
    while at < len(glob):
        character = glob[at]
        if character == "[":
            part, at = _read_class(glob, at)
        else:
            part = {"*": ".*", "?": "."}.get(character) or re.escape(character)
        pattern += part
        at += 1
    return re.compile(rf"(?s:{pattern})\Z")


def _read_class(glob: str, start: int) -> tuple[str, int]:
    """The expression of the class that begins at `start`, and where its `]` is."""
    is_negated = glob[start + 1 : start + 2] in ("!", "^") and start + 1 < len(glob)
    first = start + (2 if is_negated else 1)
    # A `]` in the first place stands for itself.
    end = glob.find("]", first + 1)
    if end < 0:
        raise ValueError("it has a `[` without its `]`; a literal `[` is written `[[]`")
    members, at = "", first
    while at < end:
        members += re.escape(glob[at])
        # A `-` is a range only between two characters.
        if glob[at + 1] == "-" and at + 2 < end:
            low, high = glob[at], glob[at + 2]
            if high < low:
                raise ValueError(f"it has the range `{low}-{high}`, which is the wrong way round")
            members += f"-{re.escape(high)}"
            at += 2
        at += 1
    return f"[{'^' if is_negated else ''}{members}]", end
