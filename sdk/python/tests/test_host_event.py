"""Events for the gateway's operators, and the errors of the gateway's services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from support.fake_host import FakeHost

from hookgate._status import KEY, ErrorInfo, FieldViolation, StatusDetails, status_details
from hookgate.host import HostError
from hookgate.host._client import HostClient
from hookgate.host._errors import from_status
from hookgate.host._event import emit
from hookgate.testing._host_services import HostCall
from hookgate.testing._host_status import HostStatusError, StatusParts
from hookgate.testing._records import EmittedEvent

Code = grpc.StatusCode


@pytest.fixture
async def host() -> AsyncIterator[FakeHost]:
    async with FakeHost() as host:
        yield host


@pytest.fixture
async def client(host: FakeHost) -> HostClient:
    return host.client_of("p", None, ("emit",))


async def test_an_event_arrives_with_what_it_says(host: FakeHost, client: HostClient) -> None:
    await emit(client, "catalog.updated", "12 entries", {"entries": 12}, severity="warn")
    await emit(client, "started")
    assert host.events == [
        EmittedEvent(
            name="catalog.updated",
            plugin="p",
            tenant=None,
            severity="warn",
            message="12 entries",
            attributes={"entries": "12"},
        ),
        EmittedEvent(name="started", plugin="p", tenant=None, severity="info", message="", attributes={}),
    ]


async def test_an_invalid_event_is_refused_with_the_field(host: FakeHost, client: HostClient) -> None:
    many = dict.fromkeys((f"a{number}" for number in range(33)), "")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": ""}, "name"),
        ({"name": "Catalog"}, "name"),
        ({"name": "a..b"}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "a" * 129}, "name"),
        ({"name": "a", "severity": "debug"}, "severity"),
        ({"name": "a", "message": "é" * 513}, "message"),
        ({"name": "a", "attributes": {"with space": 1}}, "attributes"),
        ({"name": "a", "attributes": many}, "attributes"),
    ]
    for event, field in cases:
        with pytest.raises(HostError, match=f"`{field}`: ") as failure:
            await emit(client, **event)
        assert failure.value.kind == "invalid"
    assert host.calls == []


async def test_an_argument_of_an_event_of_a_wrong_type_is_named(host: FakeHost, client: HostClient) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": 5}, "`name` must be a text, not int"),
        ({"name": "a", "message": None}, "`message` must be a text, not NoneType"),
        ({"name": "a", "severity": []}, "`severity` must be a text, not list"),
        ({"name": "a", "attributes": ["b"]}, "`attributes` must be a mapping of names to values, not list"),
        ({"name": "a", "attributes": {1: "b"}}, "`attributes` must have texts as names, not int"),
    ]
    for event, expected in cases:
        with pytest.raises(TypeError, match=f"^{expected}$"):
            await emit(client, **event)
    assert host.calls == []


async def test_too_many_events_are_refused_with_the_time_to_wait(host: FakeHost, client: HostClient) -> None:
    def refuse(_: HostCall) -> None:
        parts = StatusParts(retry_delay_ms=730)
        raise HostStatusError(Code.RESOURCE_EXHAUSTED, "more than 100 events in a second", parts)

    host.on_call = refuse
    with pytest.raises(HostError, match="the gateway dropped the event: more than 100") as failure:
        await emit(client, "a")
    assert (failure.value.kind, failure.value.retry_after_ms) == ("rate_limited", 730)


def details_of(*metadata: tuple[str, bytes]) -> StatusDetails:
    return status_details(grpc.aio.AioRpcError(Code.UNKNOWN, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), "why"))


def test_the_details_of_a_status_are_read() -> None:
    info = ErrorInfo("LIMIT", "hookgate", {"a": "1", "b": ""})
    wrong = FieldViolation("key", "1 to 512 bytes" * 20)
    error = HostStatusError(Code.INVALID_ARGUMENT, "wrong", StatusParts(wrong, 1500, info)).to_rpc_error()
    assert status_details(error) == StatusDetails(info, 1500, [wrong], [])


def test_details_of_an_unknown_type_are_kept_as_bytes() -> None:
    any_ = b"\x0a\x03t/x\x12\x02\x08\x07"
    (other,) = details_of((KEY, b"\x08\x03\x12\x01a\x1a" + bytes([len(any_)]) + any_)).others
    assert (other.type_url, other.value) == ("t/x", b"\x08\x07")


def test_a_status_without_details_or_with_malformed_ones_has_none() -> None:
    for metadata in ([], [(KEY, b"\x1a\xc8")], [(KEY, b"\x1a\x02\x0a\xff")], [("other-bin", b"\x1a\x00")]):
        assert details_of(*metadata) == StatusDetails()


def test_each_status_becomes_a_kind_of_error_with_its_reason() -> None:
    def error_of(code: grpc.StatusCode, parts: StatusParts | None = None) -> HostError:
        return from_status(HostStatusError(code, "why", parts).to_rpc_error(), is_write=True)

    wrong = StatusParts(FieldViolation("key", "1 to 512 bytes"))
    unknown = "; the write may or may not have happened"
    cases: list[tuple[HostError, str, str]] = [
        (error_of(Code.UNAVAILABLE), "unavailable", f"the gateway's host services are unavailable: why{unknown}"),
        (error_of(Code.DEADLINE_EXCEEDED), "unavailable", f"the gateway's host services are unavailable: why{unknown}"),
        (error_of(Code.CANCELLED), "unavailable", f"the gateway's host services are unavailable: why{unknown}"),
        (error_of(Code.PERMISSION_DENIED), "denied", "the gateway refused the call: why"),
        (error_of(Code.UNAUTHENTICATED), "denied", "the gateway refused the call: why"),
        (error_of(Code.INVALID_ARGUMENT), "invalid", "invalid call to the gateway: why"),
        (error_of(Code.INVALID_ARGUMENT, wrong), "invalid", "invalid call to the gateway: `key`: 1 to 512 bytes"),
        (error_of(Code.RESOURCE_EXHAUSTED), "quota_exceeded", "the gateway's storage is full: why"),
        (error_of(Code.FAILED_PRECONDITION), "not_a_counter", "not a counter: why"),
        (error_of(Code.INTERNAL), "failed", f"the gateway's host services failed: INTERNAL: why{unknown}"),
    ]
    for error, kind, message in cases:
        assert (error.kind, str(error)) == (kind, message)
        assert error.is_unavailable == (kind == "unavailable")
        assert error.is_outcome_unknown == (kind in ("unavailable", "failed"))
    read = from_status(HostStatusError(Code.UNAVAILABLE, "why").to_rpc_error(), is_write=False)
    assert not read.is_outcome_unknown, "a read changes nothing"
