"""Lines in the gateway's log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from support.fake_host import FakeHost

from hookgate.host import Log
from hookgate.host._client import CallAccess, HostClient
from hookgate.host._links import HostLinks
from hookgate.point import Capability
from hookgate.testing._host_services import HostCall
from hookgate.testing._records import LogLine

MAX_QUEUED = 1000


@dataclass
class Setup:
    host: FakeHost
    links: HostLinks

    def log(self, capability: Capability = "log", deadline: float = float("inf")) -> Log:
        token = self.host.issue_token("p", "acme", (capability,))
        return Log(HostClient(self.links, CallAccess(token, deadline)))


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    async with FakeHost() as host:
        links = HostLinks()
        links.add(host.offer())
        yield Setup(host, links)
        links.close()


async def test_lines_arrive_in_their_order_with_what_they_say(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    log = setup.log()
    for number in range(250):
        log.warn(f"line {number}", {"number": number})
    await log.flush()
    assert setup.host.log_lines == [
        LogLine(
            plugin="p", tenant="acme", severity="warn", message=f"line {number}", attributes={"number": str(number)}
        )
        for number in range(250)
    ]
    assert len(setup.host.calls) == 3, "at most 100 lines for each request"
    assert caplog.messages == []


async def test_each_level_and_each_kind_of_attribute_has_its_form(setup: Setup) -> None:
    log = setup.log()
    attributes = {"text": "x", "number": 0.5, "big": 2**60, "flag": False, "nothing": None, "error": TypeError("wrong")}
    log.debug("a", attributes)
    log.info("b")
    log.warn("c")
    log.error("half \ud800")
    await log.flush()
    lines = setup.host.log_lines
    assert [(line.severity, line.message) for line in lines] == [
        ("debug", "a"),
        ("info", "b"),
        ("warn", "c"),
        ("error", "half \ufffd"),
    ]
    assert lines[0].attributes == {
        "text": "x",
        "number": "0.5",
        "big": "1152921504606846976",
        "flag": "false",
        "error": "TypeError: wrong",
    }


async def test_lines_beyond_those_that_may_wait_are_dropped_and_reported_and_later_ones_arrive(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    log = setup.log()
    # Nothing is sent before the loop ends.
    for number in range(MAX_QUEUED + 5):
        log.info(str(number))
    await log.flush()
    assert len(setup.host.log_lines) == MAX_QUEUED
    assert caplog.messages == ["5 lines for the gateway's log were dropped: too many wait"]
    log.info("last")
    await log.flush()
    assert setup.host.log_lines[-1].message == "last"


class _Odd:
    def __str__(self) -> str:
        raise ValueError("no text")


async def test_an_invalid_line_is_dropped_alone_and_a_long_one_is_cut(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    log = setup.log()
    log.info("one")
    log.info("")
    log.info("two", {"with space": 1})
    log.info("three", {"left_out": 1})
    log.info("four", {"odd": _Odd()})
    log.info("five", {f"a{number}": "" for number in range(33)})
    log.info("six", {1: "no text"})  # type: ignore[dict-item]
    log.info("seven", ["a"])  # type: ignore[arg-type]
    log.info("xü" * 4000, {"long": "€" * 1000})
    await log.flush()
    lines = setup.host.log_lines
    assert [len(line.message.encode()) for line in lines] == [3, 8191]
    assert len(lines[1].attributes["long"].encode()) == 1023
    assert [message.removeprefix("an invalid line for the gateway's log was dropped: ") for message in caplog.messages][
        :3
    ] == [
        "`message`: not empty",
        "`attributes`: at most 32, whose names have 1 to 64 letters, digits, `_`, `-` or `.`",
        "`attributes`: at most 32, whose names have 1 to 64 letters, digits, `_`, `-` or `.`",
    ]
    assert "ValueError('no text')" in caplog.messages[3]
    assert "`attributes` must have texts as names, not int" in caplog.messages[5]
    assert "`attributes` must be a mapping of names to values, not list" in caplog.messages[6]
    assert len(caplog.messages) == 7


async def test_lost_lines_are_reported_and_no_exception_is_raised(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    log = setup.log("emit")
    log.error("one")
    log.error("two")
    await log.flush()
    reason = "the gateway refused the call: the plugin lacks the capability `log`"
    assert caplog.messages == [f"2 lines for the gateway's log were lost: {reason}"]


async def test_lines_that_the_gateway_drops_are_reported(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    log = setup.log()
    setup.host.dropped_lines = 2
    for message in ("one", "two", "three"):
        log.info(message)
    await log.flush()
    assert len(setup.host.log_lines) == 1
    assert caplog.messages == ["the gateway dropped 2 lines for its log: too many in a second"]


async def test_lines_may_be_sent_after_the_deadline_of_the_call(setup: Setup) -> None:
    log = setup.log(deadline=time.monotonic())
    log.info("late")
    await log.flush()
    assert len(setup.host.log_lines) == 1


async def test_a_flush_waits_for_the_lines_so_far_only(setup: Setup) -> None:
    log = setup.log()
    await log.flush()
    log.info("first")
    flushing = asyncio.ensure_future(log.flush())

    def write_another(_: HostCall) -> None:
        # Lines without end don't hold it up.
        if not flushing.done():
            log.info("another")

    setup.host.on_call = write_another
    await flushing
    await log.flush()
    assert setup.host.log_lines[0].message == "first"


async def test_lines_from_other_threads_arrive(setup: Setup) -> None:
    log = setup.log()

    def write() -> None:
        for number in range(50):
            log.info(str(number))

    await asyncio.gather(*(asyncio.to_thread(write) for _ in range(4)))
    await log.flush()
    messages = [line.message for line in setup.host.log_lines]
    assert sorted(messages) == sorted(str(number) for number in range(50) for _ in range(4))


async def test_lines_that_were_written_before_the_end_of_the_plugin_are_sent_and_later_ones_are_lost(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    log = setup.log()
    log.info("last")
    setup.links.close()
    await log.flush()
    assert [line.message for line in setup.host.log_lines] == ["last"]
    log.info("too late")
    await log.flush()
    assert len(setup.host.log_lines) == 1
    reason = "the gateway's host services are unavailable: the plugin has been shut down"
    assert caplog.messages == [f"1 lines for the gateway's log were lost: {reason}"]
