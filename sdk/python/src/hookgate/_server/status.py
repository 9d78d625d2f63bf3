"""An error status of gRPC."""

from __future__ import annotations

import grpc


class StatusError(Exception):
    """What a call is answered with instead of a message."""

    code: grpc.StatusCode
    details: str
    trailing: tuple[tuple[str, str], ...]
    """Trailing metadata."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.trailing = trailing
