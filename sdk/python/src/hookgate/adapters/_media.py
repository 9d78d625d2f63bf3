"""Images and files in messages of agent libraries."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from hookgate.media import Media

T = TypeVar("T")

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""A text with a scheme is a URL, any other is base64."""
_DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL | re.IGNORECASE)


def medium_from(source: str, mime_type: str, filename: str | None = None) -> Media | None:
    """The medium that a text stands for: a URL, one that holds the data, or base64.

    :param mime_type: Its type, unless the URL says another one.
    :returns: `None` if the text is none of them.
    """
    data_url = _DATA_URL.fullmatch(source)
    if data_url is None and _SCHEME.match(source):
        return Media(url=source, mime_type=mime_type, filename=filename)
    named_type, text = data_url.groups() if data_url else ("", source)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return Media(data=data, mime_type=named_type or mime_type, filename=filename)


def is_image(medium: Media) -> bool:
    """Whether it goes to plugins as an image, and not as a file."""
    return medium.mime_type == "image" or medium.mime_type.startswith("image/")


def drop_media(parts: Sequence[T], dropped: Sequence[Media], medium_of: Callable[[T], Media | None]) -> list[T]:
    """The parts of a message without those that are one of these media."""
    return [part for part in parts if medium_of(part) not in dropped]
