"""What a gateway tells a plugin when it starts it, and its services outside of calls."""

from __future__ import annotations

from collections.abc import Sequence

from hookgate.host._client import HostClient
from hookgate.host._event import EventSeverity, emit
from hookgate.host._links import HostLinks
from hookgate.host._log import Log
from hookgate.host._record import Attributes
from hookgate.host._storage import Storage


class Host:
    """What a gateway tells a plugin when it starts it, and its services outside of calls."""

    __slots__ = ("_client", "_links", "_log", "capabilities", "max_payload_bytes")

    capabilities: tuple[str, ...]
    """The capabilities that the gateway granted."""
    max_payload_bytes: int | None
    """Maximum size of a payload after a patch, encoded, in bytes; `None` if the gateway did not say."""

    def __init__(self, links: HostLinks, capabilities: Sequence[str], max_payload_bytes: int | None) -> None:
        """Only the SDK makes it."""
        self.capabilities = tuple(capabilities)
        self.max_payload_bytes = max_payload_bytes
        self._links = links
        self._client = HostClient(links, None)
        self._log: Log | None = None

    @property
    def storage(self) -> Storage:
        """The plugin's own data, which belongs to no tenant.

        Use it for background work too: the SDK keeps the token valid.
        """
        self._links.keep_tokens()
        return Storage(self._client)

    @property
    def log(self) -> Log:
        """Writes to the gateway's log outside of calls."""
        self._links.keep_tokens()
        if self._log is None:
            self._log = Log(self._client)
        return self._log

    async def emit(
        self,
        name: str,
        message: str = "",
        attributes: Attributes | None = None,
        *,
        severity: EventSeverity = "info",
    ) -> None:
        """Emits an event for the gateway's operators outside of calls. See `Context.emit`.

        :raises HostError: `rate_limited` if the plugin emits more than 100 events per second.
        :raises TypeError: If an argument has a wrong type.
        """
        self._links.keep_tokens()
        await emit(self._client, name, message, attributes, severity=severity)
