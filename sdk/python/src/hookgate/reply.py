"""A plugin's answer at a point, or at a lifecycle hook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypedDict, TypeVar, overload

from hookgate.media import Media

PatchT = TypeVar("PatchT", bound=Mapping[str, object])


class BeforeLlmRequestPatch(TypedDict, total=False):
    """Changes at `before_llm_request`: a present member replaces the whole value."""

    text: str
    """The user's message."""
    images: Sequence[Media]
    """An empty list removes the images."""
    files: Sequence[Media]
    """An empty list removes the files."""
    system_prompt: str
    """The system prompt."""
    messages: Sequence[object]
    """The conversation, in the agent's own format."""
    tools: Sequence[object]
    """The tools offered to the model, in the agent's own format."""
    extra: Mapping[str, object]
    """Additional data for plugins: any JSON object."""


class BeforeToolCallPatch(TypedDict, total=False):
    """Changes at `before_tool_call`: a present member replaces the whole value."""

    tool_name: str
    """1 to 256 bytes."""
    args: object
    """Any JSON value."""
    extra: Mapping[str, object]
    """Additional data for plugins: any JSON object."""


class AfterToolResultPatch(TypedDict, total=False):
    """Changes at `after_tool_result`: a present member replaces the whole value."""

    result: object
    """Any JSON value."""
    extra: Mapping[str, object]
    """Additional data for plugins: any JSON object."""


class BeforeResponsePatch(TypedDict, total=False):
    """Changes at `before_response`: a present member replaces the whole value."""

    content: str
    """The answer's text."""
    reasoning: str
    """The model's reasoning."""
    extra: Mapping[str, object]
    """Additional data for plugins: any JSON object."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark that the agent gets with the decision."""

    kind: Literal["allow", "block", "warn", "info"]
    """Its severity."""
    message: str
    """For people."""
    code: str | None = None
    """`[A-Za-z][A-Za-z0-9_.:-]{0,63}`."""
    details: Mapping[str, object] | None = None
    """Facts: at most 4 KiB as JSON."""


class _Absent:
    """The type of `ABSENT`, where `None` is a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Cancel:
    """Why a plugin stops an action."""

    code: str
    """Machine-readable reason, `[A-Za-z][A-Za-z0-9_.:-]{0,63}`; empty if it is an answer."""
    message: str
    """For the user; at most 1 KiB."""
    scope: Literal["step", "run"] = "step"
    """`run` ends the whole run, `step` only this action."""
    retry_after_ms: float | None = None
    """When it makes sense to try again, in milliseconds."""
    result: object = ABSENT
    """The tool's result, if `is_answer`."""

    @property
    def is_answer(self) -> bool:
        """Whether it gives the tool's result."""
        return self.result is not ABSENT


@dataclass(frozen=True, slots=True)
class Reply(Generic[PatchT]):
    """How a handler answers at a point. Made by `proceed`, `cancel` and `answer`."""

    cancelled: Cancel | None
    """Why the action stops; `None` if it goes on."""
    patch: PatchT | None
    """The changes to the payload."""
    notices: Sequence[Notice]
    """The remarks, in order."""
    consumed: int | None = None
    """In a window of an answer: how many characters of `content` go on; `None` if all do."""


LlmRequestReply: TypeAlias = Reply[BeforeLlmRequestPatch]
"""How a handler answers at `before_llm_request`."""

ToolCallReply: TypeAlias = Reply[BeforeToolCallPatch]
"""How a handler answers at `before_tool_call`."""

ToolResultReply: TypeAlias = Reply[AfterToolResultPatch]
"""How a handler answers at `after_tool_result`."""

ResponseReply: TypeAlias = Reply[BeforeResponsePatch]
"""How a handler answers at `before_response`."""


@overload
def proceed(*, notices: Sequence[Notice] = (), consumed: int | None = None) -> Reply[PatchT]: ...


@overload
def proceed(patch: PatchT, *, notices: Sequence[Notice] = (), consumed: int | None = None) -> Reply[PatchT]: ...


def proceed(
    patch: PatchT | _Absent = ABSENT, *, notices: Sequence[Notice] = (), consumed: int | None = None
) -> Reply[PatchT]:
    """Goes on, with the payload as it is or with these changes.

    :param notices: At most 16, 8 KiB together.
    :param consumed: Only at `before_response`: how many characters of `content` the plugin is done with. They go on;
        `content` of the patch replaces exactly them. The rest, at most 64 KiB, comes again with more text behind it.
        By default all. In the last window and without `call.window` it must be all.
    :raises TypeError: If the patch is `None`: a forgotten `return` in what makes it must not let the payload pass.
    """
    if isinstance(patch, _Absent):
        return Reply(None, None, notices, consumed)
    if patch is None:
        raise TypeError("the patch of `proceed` is None: leave it out, or give a dict")
    return Reply(None, patch, notices, consumed)


def cancel(
    code: str,
    message: str,
    *,
    scope: Literal["step", "run"] = "step",
    retry_after_ms: float | None = None,
    notices: Sequence[Notice] = (),
    patch: PatchT | None = None,
) -> Reply[PatchT]:
    """Stops the action.

    :param code: `[A-Za-z][A-Za-z0-9_.:-]{0,63}`. It decides the HTTP status (docs/errors.md).
    :param message: Shown to the user; at most 1 KiB.
    :param scope: `run` ends the whole run, `step` only this action.
    :param retry_after_ms: When it makes sense to try again, in milliseconds.
    :param notices: At most 16, 8 KiB together.
    :param patch: Changes to the payload that the agent gets with the block.
    """
    return Reply(Cancel(code, message, scope, retry_after_ms), patch, notices)


def answer(result: object, message: str = "", *, notices: Sequence[Notice] = ()) -> ToolCallReply:
    """Gives the tool's result instead of running the tool; only at `before_tool_call`, with access `modify`.

    :param result: Any JSON value; `None` is null.
    :param message: Shown where an agent takes no results: it gets a block with the code TOOL_ANSWERED.
    :param notices: At most 16, 8 KiB together.
    """
    return Reply(Cancel("", message, result=result), None, notices)


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a plugin adds at a hook."""

    kind: str
    """`[a-z][a-z0-9_]{0,63}`; at a known hook, one of its kinds."""
    value: object
    """Any JSON value."""


@dataclass(frozen=True, slots=True)
class HookReply:
    """How a handler answers at a hook. Made by `contribute`."""

    contributions: Sequence[Contribution]
    """What the agent gets, in this order."""
    notices: Sequence[Notice]
    """The remarks, in order."""


def contribute(contributions: Sequence[Contribution] = (), *, notices: Sequence[Notice] = ()) -> HookReply:
    """Contributes at a hook; nothing if the list is empty. The agent gets the contributions in this order.

    :param contributions: At most 64.
    :param notices: At most 16, 8 KiB together.
    """
    return HookReply(contributions, notices)
