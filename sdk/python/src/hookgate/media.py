"""Files and images in payloads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A file or an image: its bytes, or a URL that Hookgate passes on and never fetches.

    :raises ValueError: If it has both of `data` and `url`, or none of them.
    """

    mime_type: str
    """Media type (RFC 6838), such as `image/png`."""
    data: bytes | None = None
    """The content itself."""
    url: str | None = None
    """Where the content is."""
    filename: str | None = None
    """Name to show to a person."""

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            raise ValueError("a medium has either `data` or `url`")
