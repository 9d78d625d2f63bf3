"""Errors of calls and of starts. An error is no verdict: a plugin that wants to stop an action answers `cancel`."""

from __future__ import annotations

from typing import Final

import grpc

from hookgate._json import well_formed
from hookgate.host._errors import HostError

MAX_MESSAGE_BYTES: Final = 1024
"""Longest message of a status. Many clients accept only 8 KiB of trailers."""

_MAX_CAUSES: Final = 16
"""How many causes of an error are looked at: causes may form a circle."""


class PluginError(Exception):
    """Why a plugin could not answer. The step fails, and its binding decides whether the chain stops.

    Made by its class methods. An exception of another class becomes the status ABORTED: the gateway answers
    PLUGIN_ERROR, and keeps calling the plugin.
    """

    code: grpc.StatusCode
    """The status that the gateway gets."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        """Prefer a class method, such as `PluginError.unavailable`: it gives the status that a gateway expects."""
        super().__init__(message)
        self.code = code

    @classmethod
    def internal(cls, message: str) -> PluginError:
        """The plugin is broken; the gateway answers PLUGIN_ERROR. Several in a row keep calls away for a while."""
        return cls(grpc.StatusCode.INTERNAL, message)

    @classmethod
    def unavailable(cls, message: str) -> PluginError:
        """What the plugin needs is out of reach; the gateway answers PLUGIN_UNAVAILABLE, or starts the plugin later."""
        return cls(grpc.StatusCode.UNAVAILABLE, message)

    @classmethod
    def invalid(cls, message: str) -> PluginError:
        """The call contains something that the plugin can't process."""
        return cls(grpc.StatusCode.INVALID_ARGUMENT, message)

    @classmethod
    def config(cls, field: str, expected: str) -> PluginError:
        """The configuration is wrong. The gateway rejects the plugin as CONFIG_REFUSED and shows this text.

        :param field: A path such as `limits.tokens`.
        :param expected: What is expected there. Leave the value out, which may be secret.
        """
        return cls(grpc.StatusCode.INVALID_ARGUMENT, f"config field `{field}`: {expected}")


def status_of(error: BaseException) -> tuple[grpc.StatusCode, str]:
    """The status that tells the gateway what a plugin raised, and its message."""
    if isinstance(error, PluginError):
        return error.code, shorten(message_of(error))
    code = grpc.StatusCode.UNAVAILABLE if _is_unavailable(error) else grpc.StatusCode.ABORTED
    return code, shorten(f"{type(error).__name__}: {message_of(error)}")


def message_of(error: BaseException) -> str:
    """An exception's message. Writing one may fail, and must not hide the exception."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def _is_unavailable(error: BaseException) -> bool:
    """Whether the gateway's services, which the plugin called, are unavailable."""
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None or isinstance(cause, HostError):
            break
        cause = cause.__cause__
    return isinstance(cause, HostError) and cause.is_unavailable


def shorten(message: str) -> str:
    """Truncates a message to 1 KiB, between characters, and makes it valid Unicode."""
    data = well_formed(message).encode()
    if len(data) <= MAX_MESSAGE_BYTES:
        return data.decode()
    return data[: MAX_MESSAGE_BYTES - len("…".encode())].decode(errors="ignore") + "…"
