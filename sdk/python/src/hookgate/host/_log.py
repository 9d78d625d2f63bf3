"""Lines in the gateway's log. They are sent in the background, so no call waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from hookgate._proto import host_pb2
from hookgate.host._client import HostClient
from hookgate.host._errors import HostError
from hookgate.host._links import run_in
from hookgate.host._methods import WRITE_LOG
from hookgate.host._record import Attributes, attributes_to_wire, check_line, line_message

logger = logging.getLogger("hookgate.host")

_MAX_QUEUED: Final = 1000
"""Maximum number of lines that wait to be sent. Further ones are dropped."""
_MAX_BATCH: Final = 100
"""Maximum number of lines of one request."""


class Log:
    """Writes lines to the gateway's log.

    Each line names the plugin; those of a call also name its tenant and request id. The plugin needs the capability
    `log`.

    Lines are sent in the background, in their order, and no method raises an exception. A line that can't be sent is
    lost, and the process's own log says so (`logging`, the logger `hookgate.host`). Never log secrets or payloads. Any
    thread may call the methods.

        ctx.log.warn("the budget is used", {"tokens": 1200})
    """

    __slots__ = ("_client", "_dropped", "_is_sending", "_queue", "_queued_lines", "_settled_lines", "_waiters")

    def __init__(self, client: HostClient) -> None:
        """Only the SDK makes it."""
        # A line may be sent after the plugin's call has ended. Its token is valid for 5 s more.
        self._client = client.without_deadline()
        self._queue: deque[host_pb2.LogRecord] = deque()
        self._dropped = 0
        """Lines that found no room since the last batch."""
        self._queued_lines = 0
        self._settled_lines = 0
        """Of the lines that were ever queued, those that were sent or lost."""
        self._is_sending = False
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def debug(self, message: str, attributes: Attributes | None = None) -> None:
        """Writes a line for finding a mistake in the plugin.

        The gateway writes it if its `log.level` is `debug` or `trace`.
        """
        self._record(host_pb2.SEVERITY_DEBUG, message, attributes)

    def info(self, message: str, attributes: Attributes | None = None) -> None:
        """Writes a line about something normal."""
        self._record(host_pb2.SEVERITY_INFO, message, attributes)

    def warn(self, message: str, attributes: Attributes | None = None) -> None:
        """Writes a line about something that somebody should look at."""
        self._record(host_pb2.SEVERITY_WARN, message, attributes)

    def error(self, message: str, attributes: Attributes | None = None) -> None:
        """Writes a line about something that the plugin failed to do."""
        self._record(host_pb2.SEVERITY_ERROR, message, attributes)

    async def flush(self) -> None:
        """Waits until all lines so far are sent or lost. Raises no exception."""
        if self._settled_lines < self._queued_lines:
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((self._queued_lines, settled))
            await settled

    def _record(self, severity: host_pb2.Severity.ValueType, message: str, attributes: Attributes | None) -> None:
        try:
            line = host_pb2.LogRecord(
                severity=severity, message=line_message(message), attributes=attributes_to_wire(attributes)
            )
            # The gateway refuses all lines of a request if one is invalid.
            wrong = check_line(line)
            if wrong is not None:
                logger.warning("an invalid line for the gateway's log was dropped: `%s`: %s", wrong.field, wrong.range)
                return
            run_in(self._client.links.loop, lambda: self._push(line))
        except Exception as error:
            logger.warning("an invalid line for the gateway's log was dropped: %r", error)

    def _push(self, line: host_pb2.LogRecord) -> None:
        if len(self._queue) >= _MAX_QUEUED:
            self._dropped += 1
            return
        self._queue.append(line)
        self._queued_lines += 1
        if not self._is_sending:
            # It starts in a later turn of the event loop, so that the lines of this turn share a request.
            self._client.links.spawn(self._send())
            self._is_sending = True

    async def _send(self) -> None:
        """Sends lines until none are left."""
        try:
            while self._queue:
                lines = [self._queue.popleft() for _ in range(min(len(self._queue), _MAX_BATCH))]
                self._report_dropped()
                try:
                    await self._send_batch(lines)
                finally:
                    self._settle(len(lines))
        finally:
            self._is_sending = False
            # Only after a cancellation, at the end of the loop, are there still lines.
            self._settle(len(self._queue))
            self._queue.clear()

    def _settle(self, lines: int) -> None:
        self._settled_lines += lines
        for count, settled in self._waiters:
            if count <= self._settled_lines and not settled.done():
                settled.set_result(None)
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > self._settled_lines]

    async def _send_batch(self, lines: list[host_pb2.LogRecord]) -> None:
        try:
            answer = await self._client.call(WRITE_LOG, host_pb2.WriteLogRequest(records=lines))
        except HostError as error:
            logger.warning("%d lines for the gateway's log were lost: %s", len(lines), error)
            return
        if answer.dropped > 0:
            logger.warning("the gateway dropped %d lines for its log: too many in a second", answer.dropped)

    def _report_dropped(self) -> None:
        if self._dropped > 0:
            logger.warning("%d lines for the gateway's log were dropped: too many wait", self._dropped)
            self._dropped = 0
