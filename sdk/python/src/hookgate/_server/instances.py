"""The instances of a plugin: one for each configuration digest that some gateway holds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from hookgate.host._links import HostLinks, HostOffer
from hookgate.plugin import Instance

_MAX_INSTANCES: Final = 16
"""Maximum number of instances, for what gateways leave behind that crash. Those with calls in flight may exceed it."""

_MAX_HOLDERS: Final = 64
"""Maximum number of holders of an instance, more than any installation has gateways."""


class HeldInstance:
    """An instance, the gateways that hold it, and its calls in flight."""

    __slots__ = ("_calls", "_holders", "_is_left", "_unused", "instance", "links", "max_reply_bytes")

    def __init__(self, instance: Instance, links: HostLinks, max_reply_bytes: float) -> None:
        self.instance = instance
        self.links = links
        self.max_reply_bytes = max_reply_bytes
        """Largest reply that the gateway accepts."""
        self._holders: dict[str, None] = {}
        """The gateways, the one that came last at the end."""
        self._calls = 0
        self._is_left = False
        self._unused: asyncio.Event | None = None

    @property
    def is_idle(self) -> bool:
        return self._calls == 0

    @property
    def is_held(self) -> bool:
        return bool(self._holders)

    def retire_once(self) -> HeldInstance | None:
        """The instance for the first caller, `None` for all others: it is shut down once."""
        if self._is_left:
            return None
        self._is_left = True
        return self

    def begin_call(self) -> None:
        """Counts a call in flight until `end_call`."""
        self._calls += 1

    def end_call(self) -> None:
        self._calls -= 1
        if self._unused is not None and self._calls == 0:
            self._unused.set()

    def hold(self, offer: HostOffer) -> None:
        self._holders.pop(offer.gateway, None)
        self._holders[offer.gateway] = None
        self.links.add(offer)
        # A crashed gateway never releases.
        if len(self._holders) > _MAX_HOLDERS:
            self.let_go(next(iter(self._holders)))

    def let_go(self, gateway: str) -> bool:
        """Returns whether the gateway was a holder."""
        if gateway not in self._holders:
            return False
        del self._holders[gateway]
        self.links.remove(gateway)
        return True

    async def unused(self) -> None:
        """Waits until the last call has ended."""
        if self._calls > 0:
            self._unused = self._unused or asyncio.Event()
            await self._unused.wait()


@dataclass(slots=True)
class _Start:
    """A start, and the gateways that still wait for it."""

    held: asyncio.Task[HeldInstance]
    gateways: set[str] = field(default_factory=set)


class Instances:
    """The instances by digest, ordered by their last use."""

    __slots__ = ("_is_closed", "_ready", "_starting")

    def __init__(self) -> None:
        self._ready: OrderedDict[str, HeldInstance] = OrderedDict()
        self._starting: dict[str, _Start] = {}
        """Starts that no gateway has taken yet, so that two with the same configuration share one."""
        self._is_closed = False

    def get(self, digest: str) -> HeldInstance | None:
        """The instance for a digest, for one call."""
        held = self._ready.get(digest)
        if held is not None:
            self._ready.move_to_end(digest)
        return held

    async def start(
        self, digest: str, offer: HostOffer, start: Callable[[], Awaitable[HeldInstance]]
    ) -> tuple[HeldInstance, HeldInstance | None]:
        """Starts an instance unless it exists, and records that the gateway holds it.

        Goes on when the caller is cancelled: the gateway asks again.

        :returns: The instance, and one that nobody needs any more: it had to make room, or its gateways left while it
            started.
        """
        known = self.get(digest)
        if known is not None:
            known.hold(offer)
            return known, None
        starting = self._starting.get(digest)
        if starting is None:
            starting = _Start(asyncio.ensure_future(start()))
            self._starting[digest] = starting
        starting.gateways.add(offer.gateway)
        try:
            started = await asyncio.shield(starting.held)
        except BaseException:
            if starting.held.done():
                self._end_start(digest, starting)
            raise
        # Up to here another gateway joins the start, also if it has just ended.
        if offer.gateway in starting.gateways or not starting.gateways:
            self._end_start(digest, starting)
        if self._is_closed or offer.gateway not in starting.gateways:
            is_left = self._is_closed or not (starting.gateways or started.is_held)
            return started, started.retire_once() if is_left else None
        started.hold(offer)
        self._ready[digest] = started
        self._ready.move_to_end(digest)
        return started, self._make_room(started)

    def _end_start(self, digest: str, start: _Start) -> None:
        if self._starting.get(digest) is start:
            del self._starting[digest]

    def release(self, gateway: str, digest: str | None) -> list[HeldInstance]:
        """Ends the gateway's use of one configuration, or of all.

        Returns the instances that nobody holds any more.
        """
        for started, start in self._starting.items():
            if digest in (None, started):
                start.gateways.discard(gateway)
        released = []
        for known, held in list(self._ready.items()):
            if digest in (None, known) and held.let_go(gateway) and not held.is_held:
                del self._ready[known]
                released.append(held)
        return released

    def take_all(self) -> list[HeldInstance]:
        """Removes all instances and returns them, the one used last first."""
        self._is_closed = True
        taken = list(reversed(self._ready.values()))
        self._ready.clear()
        return taken

    def _make_room(self, started: HeldInstance) -> HeldInstance | None:
        if len(self._ready) <= _MAX_INSTANCES:
            return None
        idle = (digest for digest, held in self._ready.items() if held.is_idle and held is not started)
        digest = next(idle, None)
        return None if digest is None else self._ready.pop(digest)
