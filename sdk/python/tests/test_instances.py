"""The instances of a plugin, at each step of a start."""

from __future__ import annotations

import asyncio
import math

import pytest

from hookgate._server.instances import HeldInstance, Instances
from hookgate.host._links import HostLinks, HostOffer
from hookgate.plugin import Instance

STEPS = range(12)
"""More steps of the event loop than a start takes until its instance is ready."""


class CountedStarts:
    """Starts that end at once, or fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.count = 0
        self._error = error

    async def start(self) -> HeldInstance:
        self.count += 1
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        return HeldInstance(Instance({}, {}, {}, None, None, None), HostLinks(), math.inf)


def offer(gateway: str) -> HostOffer:
    return HostOffer(gateway, "", "")


@pytest.mark.parametrize("steps", STEPS)
async def test_a_gateway_that_comes_at_any_step_of_a_start_shares_it(steps: int) -> None:
    instances, starts = Instances(), CountedStarts()
    first = asyncio.ensure_future(instances.start("d", offer("g-1"), starts.start))
    for _ in range(steps):
        await asyncio.sleep(0)
    second, left = await instances.start("d", offer("g-2"), starts.start)
    assert (await first) == (second, None)
    assert left is None
    assert starts.count == 1
    assert instances.release("g-1", "d") == []
    assert instances.release("g-2", "d") == [second]


@pytest.mark.parametrize("steps", STEPS)
async def test_after_a_failed_start_there_is_another_one(steps: int) -> None:
    instances, failing = Instances(), CountedStarts(RuntimeError("no"))
    first = asyncio.ensure_future(instances.start("d", offer("g-1"), failing.start))
    for _ in range(steps):
        await asyncio.sleep(0)
    with pytest.raises(RuntimeError):
        await instances.start("d", offer("g-2"), failing.start)
    with pytest.raises(RuntimeError):
        await first
    starts = CountedStarts()
    await instances.start("d", offer("g-1"), starts.start)
    assert starts.count == 1
