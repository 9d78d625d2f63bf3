"""What has to be remembered of one run of Pydantic AI."""

from __future__ import annotations

from hookgate.agent import Blocked


class RunState:
    """A guarded run. Its model and all of its tools share it."""

    def __init__(self) -> None:
        self._error: Exception | None = None
        self.blocked_answer: Blocked | None = None
        """The block whose message stands in place of the model's last answer."""

    def end(self, error: Exception) -> None:
        """Keeps what ends the run: a hook of another capability may recover from the error itself."""
        self._error = self._error or error

    def check(self) -> None:
        """:raises Blocked: A block with the scope `run` ended it.
        :raises NoDecision: A missing decision did. Other errors are possible.
        """
        if self._error is not None:
            raise self._error
