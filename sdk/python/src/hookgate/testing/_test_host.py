"""The gateway's services in memory, for tests of plugins."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Final

from hookgate.host import Storage
from hookgate.host._client import CallAccess, HostClient
from hookgate.host._links import HostLinks, HostOffer
from hookgate.point import Capability
from hookgate.testing._host_services import HostServices
from hookgate.testing._in_process import InProcessConnection
from hookgate.testing._records import EmittedEvent, LogLine

_MAX_WAIT: Final = 5.0
"""How long a test waits for log lines, in seconds."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_STORAGE: Final[tuple[Capability, ...]] = ("storage:read", "storage:write")


class TestHost:
    """The gateway's services in memory: a storage with the rules of the real one, a log and events.

    There are no limits per second. Several `TestPlugin`s with one host are like replicas.

    Its clock starts at 2026-01-01T00:00:00Z, so at the beginning of a minute and of a day, and stands still until
    `advance`.
    """

    # Not a class of tests, whatever pytest thinks of its name.
    __test__ = False

    def __init__(self, quota_bytes: float = math.inf) -> None:
        """
        :param quota_bytes: Most bytes of keys and values for a plugin and tenant; a counter counts as 8 bytes. By
            default there is no quota.
        """
        self._services = HostServices(quota_bytes)

    @property
    def now(self) -> datetime:
        """What its clock shows."""
        return _EPOCH + timedelta(milliseconds=self._services.now_ms)

    def advance(self, ms: int) -> None:
        """Moves its clock on by this many milliseconds: entries expire, and windows end."""
        self._services.now_ms += ms

    def set_available(self, is_available: bool) -> None:
        """Makes the services unavailable, or available again.

        Meanwhile each call fails as if the database didn't answer.
        """
        self._services.is_available = is_available

    def storage_of(self, plugin: str, tenant: str | None = None) -> Storage:
        """A plugin's data, for a test to prepare or to read: for a tenant, or without one the plugin's own."""
        links = HostLinks(lambda _endpoint: InProcessConnection(self._services))
        links.add(HostOffer("test", "test", ""))
        return Storage(HostClient(links, CallAccess(self._services.issue_token(plugin, tenant, _STORAGE))))

    @property
    def events(self) -> Sequence[EmittedEvent]:
        """The events so far."""
        return tuple(self._services.events)

    async def log_lines(self, count: int = 0) -> Sequence[LogLine]:
        """The lines in the log so far, at least `count`.

        Lines are sent in the background, so it waits for them, at most 5 s.

        :raises AssertionError: If there are fewer lines by then.
        """
        lines = self._services.log_lines
        if len(lines) < count:
            try:
                await asyncio.wait_for(self._until_lines(count), _MAX_WAIT)
            except asyncio.TimeoutError:
                raise AssertionError(f"the log has {len(lines)} lines after {_MAX_WAIT:g} s, not {count}") from None
        return tuple(lines)

    async def _until_lines(self, count: int) -> None:
        listeners = self._services.log_listeners
        while len(self._services.log_lines) < count:
            has_more = asyncio.Event()
            listeners.add(has_more.set)
            try:
                await has_more.wait()
            finally:
                listeners.discard(has_more.set)


def services_of(host: TestHost) -> HostServices:
    """What a test host is made of."""
    return host._services
