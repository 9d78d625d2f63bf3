"""Why an agent must not go on: a block, which is a decision, or the lack of a decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from hookgate.agent._types import AnswerFacts, Payload, PluginNotice, Step, StepReason
from hookgate.point import PointName

CallErrorKind: TypeAlias = Literal["error", "unreachable", "timeout", "malformed", "token"]
"""What went wrong:

- `error`: the gateway answered with an error, whose `code` says why.
- `unreachable`: the gateway gave no answer.
- `timeout`: it gave none in time.
- `malformed`: the answer isn't a gateway's, or contradicts itself.
- `token`: the token source failed, and nothing was sent.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFacts(AnswerFacts):
    """What a block says."""

    point: PointName
    code: str
    message: str
    scope: Literal["step", "run"]
    retry_after_ms: int | None
    plugin: str | None
    binding: str | None
    payload: Payload


class Blocked(Exception):  # noqa: N818 - it is a decision, not an error
    """A plugin stopped the action. Never retry it. `str()` of it is its `message`."""

    point: PointName
    """The point of the call."""
    code: str
    """Machine-readable reason, such as `TOOL_NOT_ALLOWED`."""
    message: str
    """For the user, or for the model as a tool error."""
    scope: Literal["step", "run"]
    """`step`: this one action; tell the model and go on. `run`: end the whole run."""
    retry_after_ms: int | None
    """When it makes sense to try again, in milliseconds."""
    plugin: str | None
    """The plugin, if the gateway reveals it."""
    binding: str | None
    """The binding that put it into the chain, if the gateway reveals it."""
    payload: Payload
    """The payload as the chain left it."""
    notices: tuple[PluginNotice, ...]
    """The plugins' notices, in the order of the chain."""
    steps: tuple[Step, ...]
    """What happened at each step; empty if the gateway doesn't reveal it."""
    plan_digest: str
    """Digest of the plan that ran: lower-case hex SHA-256."""
    revision: int
    """Revision of the gateway's routing table."""
    request_id: str
    """The gateway's id of this invocation (UUIDv7)."""

    def __init__(self, facts: BlockFacts) -> None:
        """Only the SDK makes it."""
        super().__init__(facts.message)
        self._facts = facts
        self.point = facts.point
        self.code = facts.code
        self.message = facts.message
        self.scope = facts.scope
        self.retry_after_ms = facts.retry_after_ms
        self.plugin = facts.plugin
        self.binding = facts.binding
        self.payload = facts.payload
        self.notices = facts.notices
        self.steps = facts.steps
        self.plan_digest = facts.plan_digest
        self.revision = facts.revision
        self.request_id = facts.request_id

    def __reduce__(self) -> tuple[type[Blocked], tuple[BlockFacts]]:
        # Pools of processes pickle errors, and would call the class with the message alone.
        return type(self), (self._facts,)


@dataclass(frozen=True, slots=True)
class Violation:
    """What is wrong with a request."""

    field: str
    """JSON pointer to the member, such as `/payload/args`; empty for the whole request."""
    description: str
    """One sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailure:
    """Why a call has no answer."""

    kind: CallErrorKind
    detail: str
    code: str | None = None
    retry_after_ms: int | None = None
    violations: tuple[Violation, ...] = ()
    plugin: str | None = None
    binding: str | None = None
    reason: StepReason | None = None
    steps: tuple[Step, ...] = ()
    omitted_steps: int = 0
    request_id: str | None = None
    cause: BaseException | None = None


def malformed(detail: str, request_id: str | None = None, cause: BaseException | None = None) -> CallFailure:
    """The failure of a call whose answer can't be trusted."""
    detail = f"the gateway's answer is malformed: {detail}"
    return CallFailure(kind="malformed", detail=detail, request_id=request_id, cause=cause)


_TRANSIENT_CODES: Final = frozenset(
    {
        "OVERLOADED",
        "DRAINING",
        "STORE_UNAVAILABLE",
        "RECORD_UNAVAILABLE",
        "PLUGIN_UNAVAILABLE",
        "PLUGIN_TIMEOUT",
        "BUDGET_EXHAUSTED",
        "TENANT_LIMITED",
    }
)
"""Codes of errors that may be gone when the same call is made again."""


class CallError(Exception):
    """A call has no answer. Calls at points raise its subclass `NoDecision`."""

    kind: CallErrorKind
    """What went wrong."""
    code: str | None
    """The gateway's error code, such as `PLUGIN_TIMEOUT` (docs/errors.md); `None` if the kind isn't `error`."""
    detail: str
    """What happened, in one sentence."""
    retry_after_ms: int | None
    """When to try again, in milliseconds, if the gateway says so."""
    violations: tuple[Violation, ...]
    """What is wrong with the request."""
    plugin: str | None
    """The plugin of the step that ended the chain, if the gateway reveals it. The same holds for the next members."""
    binding: str | None
    """The binding that put it into the chain."""
    reason: StepReason | None
    """Why that step failed, such as `timeout` or `breaker_open`."""
    steps: tuple[Step, ...]
    """What happened at each step; the one that ended the chain is `failed`."""
    omitted_steps: int
    """How many steps of a long chain are omitted before the first of `steps`."""
    request_id: str | None
    """The gateway's id of the call, if it answered."""

    def __init__(self, what: str, failure: CallFailure) -> None:
        """Only the SDK makes it."""
        code = "" if failure.code is None else f"{failure.code}: "
        super().__init__(f"{what}: {code}{failure.detail}")
        self._what = what
        self._failure = failure
        self.__cause__ = failure.cause
        self.kind = failure.kind
        self.code = failure.code
        self.detail = failure.detail
        self.retry_after_ms = failure.retry_after_ms
        self.violations = failure.violations
        self.plugin = failure.plugin
        self.binding = failure.binding
        self.reason = failure.reason
        self.steps = failure.steps
        self.omitted_steps = failure.omitted_steps
        self.request_id = failure.request_id

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later. Trying again runs the plugins again."""
        return self.kind in ("unreachable", "timeout") if self.code is None else self.code in _TRANSIENT_CODES

    def __reduce__(self) -> tuple[Callable[..., CallError], tuple[str, CallFailure]]:
        # Causes, such as errors of gRPC, can't be pickled.
        return type(self), (self._what, replace(self._failure, cause=None))


class NoDecision(CallError):  # noqa: N818 - named after what it is, as in the other SDKs
    """No decision could be made at a point: stop. It is no block, and a block is never one."""

    point: PointName
    """The point of the call."""

    def __init__(self, point: PointName, failure: CallFailure) -> None:
        """Only the SDK makes it."""
        super().__init__(f"no decision at {point}", failure)
        self.point = point

    def __reduce__(self) -> tuple[Callable[..., CallError], tuple[str, CallFailure]]:
        return type(self), (self.point, replace(self._failure, cause=None))
