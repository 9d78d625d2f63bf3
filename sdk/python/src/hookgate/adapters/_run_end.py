"""What ends a run, and how an outer run hears of it although an agent library catches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from hookgate.agent import Blocked, CallContext, NoDecision, current_context


class PatchError(Exception):
    """A plugin changed something that the agent library can't take. The action doesn't happen."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        # Here, because adapters raise it in many places.
        note_run_end(self)


def find_gateway_error(error: BaseException | None) -> Blocked | NoDecision | None:
    """The block or the missing decision that ended a run. Agent libraries wrap errors in their own, so look for it
    with this.

    :param error: What the library raised or reported.
    """
    return next((cause for cause in _causes(error) if isinstance(cause, (Blocked, NoDecision))), None)


def ends_run(error: BaseException) -> bool:
    """Whether an error, or one that a library wrapped in it, must end the run. A block of one step doesn't."""
    for cause in _causes(error):
        if isinstance(cause, (NoDecision, PatchError)) or (isinstance(cause, Blocked) and cause.scope == "run"):
            return True
    return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that led to it, the nearest first."""
    seen: set[int] = set()
    queue: list[object] = [error]
    while queue:
        current = queue.pop(0)
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        yield current
        seen.add(id(current))
        queue += [current.__cause__, None if current.__suppress_context__ else current.__context__]
        queue += getattr(current, "exceptions", ())


@dataclass(slots=True)
class _ToolScope:
    """A tool that is running, and what ended a run within it."""

    outer: _ToolScope | None
    context: CallContext = field(default_factory=current_context)
    end: Exception | None = None
    is_closed: bool = False
    """Whether the tool has ended. Workers may still have the scope, which must not keep errors of other runs then."""

    def covers(self, context: CallContext) -> bool:
        """Whether code with this context works for the tool. A worker that the tool started has its scope too, but may
        outlive the tool, and work for other runs.
        """
        own = self.context
        if self.is_closed or own.get("tenant") != context.get("tenant"):
            return False
        if own.get("session_id") != context.get("session_id"):
            return False
        run_id = own.get("run_id")
        return context.get("run_id") == run_id or (run_id is not None and context.get("parent_run_id") == run_id)


# Scopes are mutable, because libraries run tools in tasks and in threads like those of `asyncio.to_thread`, which get
# copies of the context. Other threads have none: those of `run_in_executor` and `ThreadPoolExecutor.submit`.
_tool_scope: ContextVar[_ToolScope | None] = ContextVar("hookgate_tool_scope", default=None)


def note_run_end(error: Exception) -> None:
    """Tells the tools around the current code of an error that is about to be raised, if it must end the run.

    These are the tools that are still running, and whose `call_context` has the same tenant, session and run. A run
    with another id must name that of the tool as its `parent_run_id`.
    """
    if not ends_run(error):
        return
    context, scope = current_context(), _tool_scope.get()
    while scope is not None:
        if scope.covers(context):
            scope.end = scope.end or error
        scope = scope.outer


@contextmanager
def raise_nested_run_end() -> Iterator[None]:
    """Runs a tool of a library that may make a result of what the tool raises. If something within the tool ended a
    run, this raises it again.

    What happens in a thread of a plain executor, or in a worker that was started outside of the tool, isn't noticed.
    A worker that was started within the tool and also works for others must give each its own `call_context`: without
    ids, what ends the run of another one ends this one too.
    """
    scope = _ToolScope(_tool_scope.get())
    token = _tool_scope.set(scope)
    try:
        yield
    except Exception:
        if scope.end is None:
            raise
    finally:
        _tool_scope.reset(token)
        scope.is_closed = True
    if scope.end is not None:
        # For tools around that are of the parent run of this one.
        note_run_end(scope.end)
        raise scope.end
