"""Calls to the gateway's services: tokens, deadlines, several gateways, and broken connections."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from support.fake_host import FakeHost, until

from hookgate.host import HostError, Storage
from hookgate.host._client import CallAccess, HostClient
from hookgate.host._connection import acquire_connection
from hookgate.host._links import Clock, HostLinks, HostOffer
from hookgate.testing._host_services import HostCall
from hookgate.testing._host_status import HostStatusError

HOUR = 3600.0
DEAD_ENDPOINT = "unix:///nonexistent/host.sock"


def storage_at(endpoints: Sequence[str], token: str) -> Storage:
    """The storage as a call gets it from gateways at these endpoints, the newest last."""
    links = HostLinks()
    for number, endpoint in enumerate(endpoints):
        links.add(HostOffer(f"g{number}", endpoint, "unknown"))
    return Storage(HostClient(links, CallAccess(token)))


def token_of(host: FakeHost) -> str:
    return host.issue_token("p", "acme", ("storage:read", "storage:write"))


async def failure_of(call: object) -> HostError:
    assert asyncio.iscoroutine(call)
    with pytest.raises(HostError) as failure:
        await call
    return failure.value


async def test_a_call_says_how_much_time_it_has_its_token_and_what_it_passes_on() -> None:
    async with FakeHost() as host:
        links = HostLinks()
        links.add(host.offer())
        forwarded = {"traceparent": "00-a-b-01", "hookgate-depth": "2", "tracestate": "naïve"}
        client = HostClient(links, CallAccess("t", time.monotonic() + 0.9, forwarded))
        assert (await failure_of(Storage(client).get("k"))).kind == "denied"
        assert (await failure_of(Storage(client.without_deadline()).get("k"))).kind == "denied"
        first, second = host.calls
        assert first.headers["authorization"] == "Bearer t"
        assert (first.headers["traceparent"], first.headers["hookgate-depth"]) == ("00-a-b-01", "2")
        assert second.headers["traceparent"] == "00-a-b-01"
        assert "tracestate" not in first.headers, "a header can't hold it"
        assert first.time_left < 1
        # gRPC rounds it up on its way.
        assert 4 < second.time_left < 5.1


async def test_a_call_ends_at_the_deadline_of_the_plugins_call() -> None:
    async with FakeHost() as host:
        host.on_call = lambda _: asyncio.Event().wait()  # type: ignore[assignment, return-value]
        links = HostLinks()
        links.add(host.offer())
        began = time.monotonic()
        storage = Storage(HostClient(links, CallAccess("t", began + 0.2)))
        failure = await failure_of(storage.put("k", "v"))
        assert failure.is_unavailable
        assert failure.is_outcome_unknown
        assert str(failure).endswith("Deadline Exceeded; the write may or may not have happened")
        assert time.monotonic() - began < 4
        calls = len(host.calls)
        late = await failure_of(storage.put("k", "v"))
        assert "the time of the call is over" in str(late)
        assert not late.is_outcome_unknown, "nothing is sent"
        assert len(host.calls) == calls


async def test_a_gateway_without_host_services_is_reported_with_the_remedy() -> None:
    for storage in (storage_at([], "t"), storage_at([""], "")):
        failure = await failure_of(storage.get("k"))
        assert failure.kind == "not_offered"
        assert failure.is_unavailable
        assert "set `server.host_addr` or `server.host_socket`" in str(failure)
    for token in ("", "a\nb", "é"):
        assert "can't sign tokens" in str(await failure_of(storage_at([DEAD_ENDPOINT], token).get("k")))
    unreachable = await failure_of(storage_at([DEAD_ENDPOINT], "t").put("k", "v"))
    assert re.search(r"unavailable: unix:///nonexistent/host\.sock: .*No such file or directory$", str(unreachable))
    assert not unreachable.is_outcome_unknown, "nothing was sent"
    malformed = await failure_of(storage_at(["localhost:80"], "t").get("k"))
    assert '"localhost:80" is neither unix:///path' in str(malformed)
    links = HostLinks()
    links.close()
    assert "the plugin has been shut down" in str(await failure_of(Storage(HostClient(links, None)).get("k")))


async def test_another_gateway_is_used_if_the_newest_is_gone_or_refuses_the_token() -> None:
    async with FakeHost() as host, FakeHost() as stranger:
        storage = storage_at([host.endpoint, stranger.endpoint, DEAD_ENDPOINT], token_of(host))
        for expected in (1, 2, 3):
            assert (await storage.add("n", 1)).counter == expected
        assert len(stranger.calls) == 3

        stranger.is_available = False
        failure = await failure_of(storage.add("n", 1))
        assert "the test made the services unavailable; the write may or may not have happened" in str(failure)
        assert (await storage.add("n", 1)).counter == 4, "the gateway that failed is tried last"


async def test_a_call_whose_connection_broke_is_not_repeated() -> None:
    async with FakeHost() as host, FakeHost() as other:
        storage = storage_at([other.endpoint, host.endpoint], token_of(host))
        await storage.get("k")
        host.on_call = lambda _: asyncio.Event().wait()  # type: ignore[assignment, return-value]
        calls = len(host.calls)
        adding = asyncio.ensure_future(storage.add("n", 1))
        await until(lambda: len(host.calls) > calls)
        await host.stop()
        with pytest.raises(HostError) as broken:
            await adding
        failure = broken.value
        assert failure.kind == "unavailable"
        assert failure.is_outcome_unknown
        assert other.calls == []
        # The gateway that is gone certainly didn't make the next one.
        other.issue_token("p", "acme", ("storage:read", "storage:write"))
        assert (await storage.add("n", 1)).added


@asynccontextmanager
async def silent_server(socket: Path) -> AsyncIterator[str]:
    """Accepts connections, and says nothing."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(lambda _, writer: writers.append(writer), socket)
    try:
        yield f"unix://{socket}"
    finally:
        for writer in writers:
            writer.close()
        server.close()


async def test_a_gateway_that_accepts_connections_but_does_not_serve_is_given_up_after_2_s(tmp_path: Path) -> None:
    async with FakeHost() as host, silent_server(tmp_path / "silent.sock") as silent:
        began = time.monotonic()
        adding = asyncio.ensure_future(storage_at([host.endpoint, silent], token_of(host)).add("n", 1))
        failure = await failure_of(storage_at([silent], "t").put("k", "v"))
        assert str(failure).endswith("silent.sock: no connection within 2 s")
        assert not failure.is_outcome_unknown
        assert 1.9 < time.monotonic() - began < 4.5
        assert (await adding).added
        links = HostLinks()
        links.add(HostOffer("g", silent, ""))
        hasty = Storage(HostClient(links, CallAccess("t", time.monotonic() + 0.1)))
        assert str(await failure_of(hasty.get("k"))).endswith("no connection within the time of the call")


async def test_a_gateway_that_returns_is_used_again(tmp_path: Path) -> None:
    socket = tmp_path / "host.sock"
    async with FakeHost(socket) as before:
        storage = storage_at([before.endpoint], token_of(before))
        await storage.get("k")
    assert (await failure_of(storage.get("k"))).is_unavailable
    socket.unlink(missing_ok=True)
    async with FakeHost(socket) as after:
        token_of(after)
        deadline = time.monotonic() + 5
        while True:
            try:
                await storage.get("k")
                break
            except HostError:
                # The channel waits a moment after a failure.
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)


async def test_links_share_a_connection_and_the_last_one_closes_it() -> None:
    async with FakeHost() as host:
        shared = acquire_connection(host.endpoint)
        one, other = HostLinks(), HostLinks()
        for links in (one, other):
            links.add(host.offer())
        assert [links.candidates()[0].connection() for links in (one, other)] == [shared, shared]
        one.close()
        assert acquire_connection(host.endpoint) is shared
        shared.release()
        shared.release()
        assert acquire_connection(host.endpoint) is shared
        shared.release()
        other.close()
        replacement = acquire_connection(host.endpoint)
        assert replacement is not shared
        replacement.release()


async def test_a_call_in_flight_ends_normally_when_the_links_are_closed() -> None:
    async with FakeHost() as host:
        links = HostLinks()
        links.add(host.offer())
        answer = asyncio.Event()

        async def wait(_: HostCall) -> None:
            await answer.wait()

        host.on_call = wait
        adding = asyncio.ensure_future(Storage(HostClient(links, CallAccess(token_of(host)))).add("n", 1))
        await until(lambda: len(host.calls) == 1)
        links.close()
        answer.set()
        assert (await adding).added


async def test_a_cancelled_call_disturbs_no_other() -> None:
    async with FakeHost() as host:
        storage = host.storage_of("p")
        host.on_call = lambda _: asyncio.Event().wait()  # type: ignore[assignment, return-value]
        reading = asyncio.ensure_future(storage.get("k"))
        await until(lambda: len(host.calls) == 1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        host.on_call = None
        assert await storage.get("k") is None


async def test_an_offer_that_a_gateway_sends_again_replaces_its_earlier_one_and_the_last_one_stays() -> None:
    async with FakeHost() as host:
        links = HostLinks()
        links.add(HostOffer("g", DEAD_ENDPOINT, ""))
        links.add(host.offer())
        assert len(links.candidates()) == 1
        links.remove("g")
        assert (await Storage(HostClient(links, CallAccess(token_of(host)))).add("n", 1)).added
        links.add(HostOffer("h", "", ""))
        links.remove("g")
        assert [link.gateway for link in links.candidates()] == ["h"]


class _FakeClock(Clock):
    """A time that passes only when a test says so."""

    def __init__(self) -> None:
        self.time = 0.0
        self.sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sleepers.append((self.time + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        # Those who are about to sleep begin to.
        for _ in range(3):
            await asyncio.sleep(0)
        self.time += seconds
        for at, woken in self.sleepers:
            if at <= self.time and not woken.done():
                woken.set_result(None)
        self.sleepers = [sleeper for sleeper in self.sleepers if not sleeper[1].done()]


async def test_the_plugins_token_is_renewed_at_half_of_its_life_and_again_after_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeHost() as host:
        clock = _FakeClock()
        links = HostLinks(clock=clock)
        old = host.issue_token("p", None, ("storage:read", "storage:write"))
        links.add(host.offer(old))
        storage = Storage(HostClient(links, None))
        links.keep_tokens()

        def header() -> str | None:
            return links.candidates()[0].authorization

        await clock.advance(11 * HOUR)
        assert host.calls == []

        def fail(_: HostCall) -> None:
            raise HostStatusError(grpc.StatusCode.UNAVAILABLE, "no database")

        host.on_call = fail
        await clock.advance(HOUR)
        await until(lambda: len(caplog.records) == 1)
        assert caplog.messages == ["can't renew the token for host services of the gateway g: UNAVAILABLE: no database"]
        assert header() == f"Bearer {old}"

        host.on_call = None
        await until(lambda: bool(clock.sleepers))
        await clock.advance(60)
        await until(lambda: header() != f"Bearer {old}")
        host.revoke_token(old)
        await storage.put("k", "v")
        renewed = header()
        await until(lambda: bool(clock.sleepers))
        await clock.advance(12 * HOUR)
        await until(lambda: header() != renewed)
        assert await storage.get("k") is not None
        links.close()


async def test_a_token_that_has_expired_is_not_renewed_any_more(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeHost() as host:
        clock = _FakeClock()
        links = HostLinks(clock=clock)
        links.keep_tokens()
        links.add(host.offer("unknown"))
        # The host refuses both.
        for failures, hours in ((1, 12), (2, 13)):
            await until(lambda: bool(clock.sleepers))
            await clock.advance(hours * HOUR)
            await until(lambda failures=failures: len(caplog.records) == failures)  # type: ignore[misc]
        await clock.advance(HOUR)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(host.calls) == 2
        assert clock.sleepers == []


async def test_secrets_are_in_no_repr() -> None:
    assert "secret" not in repr(HostOffer("g", "e", "secret"))
    assert "secret" not in repr(CallAccess("secret", math.inf))
