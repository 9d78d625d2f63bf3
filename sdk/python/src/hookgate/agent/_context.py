"""What the agent says about its calls, kept for everything that runs within a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypedDict, cast

from hookgate._json import well_formed
from hookgate._proto import gateway_pb2

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CallContext(TypedDict, total=False):
    """What the agent says about a call. Plugins see it, except for `tenant`.

    Hookgate doesn't verify it: the tenant and the operator that plugins see come from the token. Each text has at
    most 256 bytes and no control characters. A member that is `None` is left out.
    """

    tenant: str
    """Whose token to use. Never sent: only the token source gets it. It may not be `None`."""
    correlation_id: str | None
    """Your own id of the call or of what it belongs to: 1 to 128 visible ASCII characters. Sent as `x-request-id`."""
    session_id: str | None
    """Conversation."""
    run_id: str | None
    """Run of the agent."""
    parent_run_id: str | None
    """The run that started this one."""
    depth: int | None
    """How deep this run is nested among runs, 0 to 2^32 - 1."""
    agent_id: str | None
    """Agent."""
    agent_path: str | None
    """Agent with its ancestors, in the agent's own notation."""
    project_id: str | None
    """Project."""
    user_id: str | None
    """End user. Refused if the issuer of the token maps it from a claim."""
    provider: str | None
    """Provider of the model in use."""
    model: str | None
    """Model in use."""
    labels: Mapping[str, str] | None
    """At most 32; keys of 1 to 64 bytes that don't begin with `claim.`."""


_MEMBERS: Final = tuple(CallContext.__annotations__)
_TEXTS: Final = tuple(name for name in _MEMBERS if name not in ("tenant", "correlation_id", "depth", "labels"))
_MAX_UINT32: Final = 2**32 - 1
_MAX_CORRELATION_ID: Final = 128
"""The gateway's limit for `x-request-id`."""

_current: ContextVar[CallContext] = ContextVar("hookgate_call_context")


@contextmanager
def call_context(**context: Unpack[CallContext]) -> Iterator[None]:
    """Calls within the block have this context, also those of tasks that start in it.

    A nested context adds to the outer one: its values have precedence, and labels are merged by name. Tasks that run
    at the same time don't mix. A thread that starts in the block has no context, unless it runs in a copy of this
    one, as with `asyncio.to_thread`.

    :raises TypeError: A member isn't known, or has another type.
    :raises ValueError: A member has a value that can't be sent, or the tenant is empty.
    """
    token = _current.set(merge_contexts(_current.get({}), check_context(context)))
    try:
        yield
    finally:
        _current.reset(token)


def current_context() -> CallContext:
    """The context of the innermost `call_context`, merged with the outer ones; empty outside of any."""
    return _current.get({}).copy()


def merge_contexts(*contexts: CallContext) -> CallContext:
    """Merges contexts that are checked. Later ones have precedence."""
    merged: CallContext = {}
    for context in contexts:
        labels = merged.get("labels")
        merged.update(context)
        added = context.get("labels")
        if labels and added:
            merged["labels"] = {**labels, **added}
    return merged


def check_context(context: object) -> CallContext:
    """A copy of the context without members that are `None`, of which each can be sent.

    :raises TypeError: A member isn't known, or has another type.
    :raises ValueError: A member has a value that can't be sent, or the tenant is empty.
    """
    if not isinstance(context, Mapping):
        raise TypeError(f"context must be a mapping, is of the type {type(context).__name__}")
    for name in context:
        if name not in _MEMBERS:
            raise TypeError(f"context.{name} is not a member; known here: {', '.join(_MEMBERS)}")
    # A caller that doesn't know its tenant must not act for another one.
    if "tenant" in context and context["tenant"] in (None, ""):
        raise ValueError("context.tenant is empty: leave it out, or name the tenant")
    checked: dict[str, object] = {name: value for name, value in context.items() if value is not None}
    for name, value in checked.items():
        if name == "labels":
            checked[name] = _check_labels(value)
        elif name == "depth":
            _check_depth(value)
        elif not isinstance(value, str):
            raise TypeError(f"context.{name} must be a str, is of the type {type(value).__name__}")
    _check_correlation_id(checked.get("correlation_id"))
    return cast("CallContext", checked)


def _check_labels(labels: object) -> dict[str, str]:
    if not isinstance(labels, Mapping):
        raise TypeError(f"context.labels must be a mapping, is of the type {type(labels).__name__}")
    for name, value in labels.items():
        if not isinstance(name, str):
            raise TypeError(f"context.labels has the name {name!r}, which isn't a str")
        if not isinstance(value, str):
            raise TypeError(f"context.labels.{name} must be a str, is of the type {type(value).__name__}")
    return dict(labels)


def _check_depth(depth: object) -> None:
    if not isinstance(depth, int) or isinstance(depth, bool):
        raise TypeError(f"context.depth must be an int, is of the type {type(depth).__name__}")
    if not 0 <= depth <= _MAX_UINT32:
        raise ValueError(f"context.depth must be from 0 to {_MAX_UINT32}, is {depth}")


def _check_correlation_id(value: object) -> None:
    if isinstance(value, str) and not (is_visible_ascii(value) and len(value) <= _MAX_CORRELATION_ID):
        raise ValueError(f"context.correlation_id must have 1 to {_MAX_CORRELATION_ID} visible ASCII characters")


def is_visible_ascii(text: str) -> bool:
    """Whether it is a text that a header can carry, without spaces, and not empty."""
    return text.isascii() and text.isprintable() and text != "" and " " not in text


def encode_context(context: CallContext) -> gateway_pb2.RequestContext:
    """The part of a checked context that is in a call's message."""
    message = gateway_pb2.RequestContext(depth=context.get("depth"))
    values = cast("Mapping[str, str]", context)
    for name in _TEXTS:
        if name in values:
            setattr(message, name, well_formed(values[name]))
    for name, value in (context.get("labels") or {}).items():
        message.labels[well_formed(name)] = well_formed(value)
    return message
