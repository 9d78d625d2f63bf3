"""Registration of a plugin's process with a gateway."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from support.certificates import Ca
from support.fake_host import until
from support.fake_registrar import FakeRegistrar
from support.frame_server import FrameServer

from hookgate._proto import host_pb2
from hookgate._server.registration import (
    Registration,
    RegistrationAnswer,
    RegistrationError,
    RegistrationOptions,
    RegistrationTimes,
    TokenSource,
    start_registration,
)

ENDPOINT = "http://10.1.2.3:7000"
Code = grpc.StatusCode


class Setup:
    """Registrations that are stopped after the test."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.started: list[Registration] = []

    def start(
        self,
        *,
        gateway: str | None = None,
        token: TokenSource = "t1",
        endpoint: str = ENDPOINT,
        answer: float = 5.0,
        refusal_retry: float = 0.03,
    ) -> Registration:
        options = RegistrationOptions(gateway or self.address, token)
        registration = start_registration("guard", endpoint, options, RegistrationTimes(answer, refusal_retry))
        self.started.append(registration)
        return registration


@pytest.fixture
async def gateway() -> AsyncIterator[FakeRegistrar]:
    gateway = FakeRegistrar()
    yield gateway
    await gateway.stop()


@pytest.fixture
async def setup(gateway: FakeRegistrar, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Setup]:
    caplog.set_level(logging.INFO, "hookgate")
    setup = Setup(await gateway.listen())
    yield setup
    for registration in setup.started:
        await registration.stop()


async def test_a_process_registers_renews_and_ends_the_registration_at_the_stop(
    gateway: FakeRegistrar, setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    registration = setup.start()
    assert await gateway.next() == ("stream", "Bearer t1")
    assert await gateway.next() == ("registration", "guard", ENDPOINT)
    assert await registration.first_answer() == RegistrationAnswer(300, False)
    for _ in range(2):
        assert await gateway.next() == ("renewal",)
    assert caplog.messages == [f"registered guard as {ENDPOINT} with the gateway {setup.address}, for 300 ms at a time"]

    gateway.ends_closed_streams = False
    stopping = asyncio.ensure_future(registration.stop())
    assert await gateway.next_but_renewal() == ("ended",)
    assert not stopping.done(), "the gateway has not removed the endpoint yet"
    gateway.end_stream(Code.OK, "")
    await stopping
    assert len(caplog.messages) == 1


async def test_a_gateway_that_never_ends_the_stream_does_not_keep_the_process(
    gateway: FakeRegistrar, setup: Setup
) -> None:
    gateway.ends_closed_streams = False
    options = RegistrationOptions(setup.address, "t1", endpoint="https://guard.example:443")
    registration = start_registration("guard", ENDPOINT, options)
    await registration.first_answer()
    assert await gateway.next() == ("stream", "Bearer t1")
    assert await gateway.next() == ("registration", "guard", "https://guard.example:443")
    began = time.monotonic()
    await registration.stop()
    assert 0.9 < time.monotonic() - began < 4


async def test_a_stop_before_the_answer_ends_the_registration_too(setup: Setup) -> None:
    server = FrameServer()
    async with server.listening() as address:
        registration = setup.start(gateway=address)
        await asyncio.wait_for(server.asked.wait(), 10)
        await registration.stop()
        assert server.closed.is_set()
        assert await registration.first_answer() is None


async def test_a_stream_that_ends_is_followed_by_a_registration_with_the_current_token(
    gateway: FakeRegistrar, setup: Setup
) -> None:
    tokens = iter(["t1", "t2", "t3", "t4", "t5"])

    async def token() -> str:
        return next(tokens)

    registration = setup.start(token=token)
    # An expired token, and a gateway that is full, are no refusals.
    ends = [
        (Code.UNAVAILABLE, "shutting down"),
        (Code.UNAUTHENTICATED, "the token has expired"),
        (Code.RESOURCE_EXHAUSTED, "too many streams"),
        (Code.OK, ""),
    ]
    for number, end in enumerate(ends):
        assert await gateway.next_but_renewal() == ("stream", f"Bearer t{number + 1}")
        assert await gateway.next() == ("registration", "guard", ENDPOINT)
        assert await gateway.next() == ("renewal",)
        gateway.end_stream(*end)
    assert await gateway.next_but_renewal() == ("stream", "Bearer t5")
    assert await registration.first_answer() == RegistrationAnswer(300, False)


async def test_a_process_registers_as_soon_as_there_are_a_token_and_a_gateway(
    setup: Setup, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    registration = setup.start(gateway=f"unix://{tmp_path}/host.sock", token=token)
    await until(lambda: len(caplog.messages) == 1)
    assert f"can't get the token from {token}: " in caplog.messages[0]
    token.write_text("t1\n")
    await until(lambda: len(caplog.messages) == 2)
    assert "UNAVAILABLE: " in caplog.messages[1]
    assert "No such file or directory; trying again" in caplog.messages[1]

    gateway = FakeRegistrar()
    await gateway.listen(f"unix:{tmp_path}/host.sock")
    assert await gateway.next() == ("stream", "Bearer t1")
    await registration.first_answer()
    levels = [(record.levelname, record.getMessage().split(" guard ")[0]) for record in caplog.records]
    assert levels == [("ERROR", "can't register"), ("WARNING", "not registered:"), ("INFO", "registered")]
    await registration.stop()
    await gateway.stop()


async def test_a_process_registers_over_tls_with_the_cas_that_the_environment_names(
    setup: Setup, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Ca(tmp_path).issue("gateway")
    gateway = FakeRegistrar()
    credentials = grpc.ssl_server_credentials([(pair.key, pair.certificate)])
    address = await gateway.listen("localhost:0", credentials)
    registration = setup.start(gateway=address)
    await until(lambda: len(caplog.messages) == 1)
    assert "certificate" in caplog.messages[0].lower()
    monkeypatch.setenv("HOOKGATE_HOST_CA_FILE", f"{tmp_path}/ca.pem")
    assert await gateway.next() == ("stream", "Bearer t1")
    assert await gateway.next() == ("registration", "guard", ENDPOINT)
    await registration.stop()
    await gateway.stop()


async def test_a_process_keeps_trying_after_a_refusal_which_is_logged_once(
    gateway: FakeRegistrar, setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.refusal = (Code.PERMISSION_DENIED, "the token's claim with plugins doesn't have `guard`")
    registration = setup.start()
    for _ in range(3):
        assert await gateway.next() == ("stream", "Bearer t1")
    gateway.refusal = None
    await registration.first_answer()
    refused, registered = caplog.records
    assert refused.levelname == "ERROR"
    assert refused.getMessage().startswith("the gateway refuses to register guard as ")
    assert refused.getMessage().endswith(": PERMISSION_DENIED: the token's claim with plugins doesn't have `guard`")
    assert registered.getMessage().startswith("registered guard")


async def test_a_lost_reason_is_logged_only_if_the_next_try_does_not_tell_it(
    gateway: FakeRegistrar, setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    # What grpcio itself says, if the gateway ends the stream while a message is written.
    lost, refusal = (Code.INTERNAL, "Internal error from Core"), (Code.PERMISSION_DENIED, "no")
    gateway.refusal = lost
    setup.start()
    assert await gateway.next() == ("stream", "Bearer t1")
    gateway.refusal = refusal
    await until(lambda: len(caplog.messages) == 1)
    assert caplog.messages[0].endswith(": PERMISSION_DENIED: no")
    gateway.refusal = lost
    await until(lambda: len(caplog.messages) == 2)
    assert caplog.messages[1].endswith(": the gateway ended the stream; trying again")


async def test_a_registration_without_an_answer_counts_as_broken(
    gateway: FakeRegistrar, setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.answer = None
    setup.start(answer=0.4)
    for _ in range(2):
        assert await gateway.next() == ("stream", "Bearer t1")
        assert await gateway.next() == ("registration", "guard", ENDPOINT)
        assert await gateway.next() == ("ended",)
    assert "no answer within 400 ms" in caplog.messages[0]


async def test_a_stream_that_counts_as_broken_is_not_closed_in_order_because_that_would_remove_the_endpoint(
    setup: Setup,
) -> None:
    server = FrameServer()
    async with server.listening() as address:
        registration = setup.start(gateway=address, answer=0.4)
        await asyncio.wait_for(server.broken.wait(), 10)
        assert not server.closed.is_set()
        server.answers = True
        await registration.first_answer()
        await registration.stop()
        assert server.closed.is_set()


async def test_a_renewal_without_an_answer_counts_as_broken(gateway: FakeRegistrar, setup: Setup) -> None:
    registration = setup.start(answer=0.4)
    await registration.first_answer()
    gateway.answer = None
    while await gateway.next_but_renewal() != ("ended",):
        pass
    gateway.answer = host_pb2.RegisterResponse(lease_ms=300)
    assert await gateway.next_but_renewal() == ("stream", "Bearer t1")


async def test_the_operators_approval_is_awaited_and_reported(
    gateway: FakeRegistrar, setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.answer = host_pb2.RegisterResponse(lease_ms=150, approval_pending=True)
    registration = setup.start()
    assert await registration.first_answer() == RegistrationAnswer(150, True)
    gateway.answer = host_pb2.RegisterResponse(lease_ms=150)
    await until(lambda: len(caplog.messages) == 3)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]
    assert caplog.messages[1:] == [
        "guard waits for approval: run `hookgate plugin approve guard`",
        f"guard was approved at the gateway {setup.address}",
    ]


async def test_a_stop_ends_every_wait(gateway: FakeRegistrar, setup: Setup) -> None:
    async def never() -> str:
        await asyncio.Event().wait()
        return ""

    without_token = setup.start(token=never)
    await asyncio.sleep(0)
    await without_token.stop()
    assert await without_token.first_answer() is None

    gateway.refusal = (Code.PERMISSION_DENIED, "")
    refused = setup.start(refusal_retry=1_000_000)
    await gateway.next()
    await refused.stop()

    unreachable = setup.start(gateway="unix:///nonexistent/host.sock")
    await unreachable.stop()
    await unreachable.stop()


async def test_an_address_that_takes_no_registrations_is_named_with_the_remedy(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    setup.start(gateway=f"http://127.0.0.1:{port}")
    await until(lambda: len(caplog.messages) == 1)
    remedy = "takes no registrations: name that of `server.host_addr` or `server.host_socket`"
    assert caplog.messages == [f"the address http://127.0.0.1:{port} {remedy}"]
    await server.stop(None)


@pytest.mark.parametrize(
    "endpoint", ["http://0.0.0.0:7000", "https://[::]:7000", "http://[::ffff:0.0.0.0]:7000", "http://0:7000"]
)
async def test_an_address_that_no_gateway_can_reach_is_not_registered(setup: Setup, endpoint: str) -> None:
    with pytest.raises(RegistrationError, match="is no address that gateways can reach: say where they") as refusal:
        setup.start(endpoint=endpoint)
    assert "`--register-endpoint` on the command line, or with `endpoint` of RegistrationOptions" in str(refusal.value)


async def test_a_gateway_or_an_endpoint_that_cannot_be_used_is_named_with_the_remedy(setup: Setup) -> None:
    cases = [
        ({"gateway": "hookgate:9092"}, 'gateway `hookgate:9092`: the address "hookgate:9092" is neither unix'),
        ({"gateway": "http://a b"}, 'gateway `http://a b`: the address "http://a b" is neither'),
        ({"endpoint": "10.1.2.3:7000"}, "endpoint `10.1.2.3:7000`: write unix:///absolute/path"),
        ({"endpoint": "http://10.1.2.3:0"}, "endpoint `http://10.1.2.3:0`: write"),
        ({"endpoint": f"unix:///{'a' * 400}"}, "at most 400 bytes"),
    ]
    for options, expected in cases:
        with pytest.raises(RegistrationError) as failure:
            setup.start(**options)  # type: ignore[arg-type]
        assert expected in str(failure.value)


async def test_a_token_that_no_header_can_hold_is_reported_by_its_source_and_never_printed(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    setup.start(token="se\ncret")
    await until(lambda: len(caplog.messages) == 1)
    assert caplog.messages[0].endswith(": the option `token` has no token that a header can hold")
    assert "cret" not in caplog.text
    assert "cret" not in repr(RegistrationOptions("http://a:1", "secret"))
