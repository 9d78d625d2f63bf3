"""Addresses, and channels to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from support.certificates import Ca

from hookgate._address import TcpAddress, UnixAddress, parse_address
from hookgate._channel import TlsFiles, dial
from hookgate.host._dial import CA_FILE, CERT_FILE, KEY_FILE, DialError, read_endpoint


@asynccontextmanager
async def serving(target: str, credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[int]:
    """A server that answers each call with the authority by which it was called."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Authority(),))
    port = server.add_insecure_port(target) if credentials is None else server.add_secure_port(target, credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


class _Authority(grpc.GenericRpcHandler):
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def behave(_request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            # gRPC tells servers the authority in no other way.
            return context.peer().encode()

        return grpc.unary_unary_rpc_method_handler(behave)


async def call(channel: grpc.aio.Channel, timeout: float = 5) -> bytes:
    send: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/a/b")
    return await send(b"", timeout=timeout)


def test_addresses_are_parsed_and_written() -> None:
    cases = {
        "unix:///run/a b.sock": (UnixAddress("/run/a b.sock"), "unix:/run/a%20b.sock"),
        "http://10.1.2.3:7000": (TcpAddress("10.1.2.3", 7000, False), "10.1.2.3:7000"),
        "https://Gateway.example": (TcpAddress("gateway.example", 443, True), "gateway.example:443"),
        "http://[::1]/": (TcpAddress("::1", 80, False), "[::1]:80"),
        "http://127.0.0.1:0": (TcpAddress("127.0.0.1", 0, False), "127.0.0.1:0"),
    }
    for text, (address, target) in cases.items():
        assert parse_address(text) == address
        assert address.target == target
        assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:80",
        "unix://",
        "unix:///",
        "unix://relative",
        "http://",
        "http://:80",
        "http://a b",
        "http://a\n:80",
        "http://a:99999",
        "http://a:-1",
        "http://a:x",
        "http://u@a:80",
        "http://a:80/path",
        "http://a:80?",
        "http://a:80#",
        "http://[::1",
        "http://[a]:80",
        "ftp://a:80",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is neither unix:///path, http://host:port nor https://host:port"):
        parse_address(text)


async def test_a_server_is_reached_over_tcp_and_a_unix_socket(tmp_path: Path) -> None:
    socket = tmp_path / "a b%.sock"
    address = parse_address(f"unix://{socket}")
    async with serving(address.target), dial(address) as channel:
        assert (await call(channel)).startswith(b"unix:")
        assert socket.exists()
    async with serving("127.0.0.1:0") as port, dial(parse_address(f"http://127.0.0.1:{port}")) as channel:
        assert (await call(channel)).startswith(b"ipv4:127.0.0.1:")


async def test_a_server_is_reached_over_tls_with_a_ca_of_its_own_and_no_other(tmp_path: Path) -> None:
    ca, other = Ca(tmp_path), Ca(tmp_path, "other")
    pair = ca.issue("server")
    async with serving("localhost:0", grpc.ssl_server_credentials([(pair.key, pair.certificate)])) as port:
        address = parse_address(f"https://localhost:{port}")
        for pem in (ca.certificate, ca.certificate.decode()):
            async with dial(address, TlsFiles(ca=pem)) as channel:
                assert await call(channel)
        for wrong in (TlsFiles(), TlsFiles(ca=other.certificate)):
            async with dial(address, wrong) as channel:
                with pytest.raises(grpc.aio.AioRpcError, match=r"(?i)certificate") as failure:
                    await call(channel)
                assert failure.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_server_can_ask_for_a_client_certificate(tmp_path: Path) -> None:
    ca = Ca(tmp_path)
    server, client = ca.issue("server"), ca.issue("client")
    pair = (server.key, server.certificate)
    credentials = grpc.ssl_server_credentials([pair], ca.certificate, require_client_auth=True)
    async with serving("localhost:0", credentials) as port:
        address = parse_address(f"https://localhost:{port}")
        async with dial(address, TlsFiles(ca.certificate, client.certificate, client.key)) as channel:
            assert await call(channel)
        async with dial(address, TlsFiles(ca.certificate)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call(channel)
            assert failure.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_server_that_starts_later_is_reached_soon(tmp_path: Path) -> None:
    # A machine that is busy may be slow once.
    waits = [await wait_for_a_late_server(tmp_path / f"{attempt}.sock") for attempt in range(3)]
    assert min(waits) < 0.7, "sooner than gRPC tries by default"


async def wait_for_a_late_server(socket: Path) -> float:
    """How many seconds after its start a server is reached that wasn't there for the first call."""
    address = parse_address(f"unix://{socket}")
    async with dial(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="No such file or directory"):
            await call(channel)
        async with serving(address.target):
            began = time.monotonic()
            for _ in range(1000):
                if await is_reached(channel):
                    break
                await asyncio.sleep(0.01)
            return time.monotonic() - began


async def is_reached(channel: grpc.aio.Channel) -> bool:
    try:
        await call(channel)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_each_channel_has_connections_of_its_own() -> None:
    async with serving("127.0.0.1:0") as port:
        address = parse_address(f"http://127.0.0.1:{port}")
        async with dial(address) as one, dial(address) as other:
            assert await call(one) != await call(other)


def test_an_endpoint_or_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    def file(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    text = file("text", "nothing")
    pem = file("pem", "-----BEGIN CERTIFICATE-----")
    encrypted = file("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----")
    ca = Ca(tmp_path)
    one = ca.issue("one")
    ca.issue("other")
    certificate, key, other_key = [str(tmp_path / name) for name in ("one.pem", "one.key", "other.key")]
    tls = "https://localhost:1"
    cases: list[tuple[str, dict[str, str], str]] = [
        ("localhost:80", {}, "is neither unix:///path, http://host:port nor https://host:port"),
        (tls, {CA_FILE: "/no/such/ca.pem"}, "HOST_CA_FILE: can't read /no/such/ca.pem: No such file or directory"),
        (tls, {CA_FILE: text}, "text has no certificate in PEM form"),
        (tls, {CA_FILE: pem}, "the CA certificates can't be used"),
        (tls, {CERT_FILE: certificate}, "HOOKGATE_HOST_KEY_FILE is not set"),
        (tls, {KEY_FILE: key}, "HOOKGATE_HOST_CERT_FILE is not set"),
        (tls, {CERT_FILE: certificate, KEY_FILE: text}, "text has no private key in PEM form"),
        (tls, {CERT_FILE: certificate, KEY_FILE: encrypted}, "encrypted is encrypted; name a file"),
        (tls, {CERT_FILE: certificate, KEY_FILE: other_key}, "check the files that HOOKGATE_HOST_CA_FILE"),
        (tls, {CERT_FILE: pem, KEY_FILE: key}, "TLS can't be used for the host services"),
    ]
    for endpoint, environment, expected in cases:
        with pytest.raises(DialError) as failure:
            read_endpoint(endpoint, environment)
        assert expected in str(failure.value)
    without_tls = read_endpoint("http://localhost:1", {CA_FILE: "/no/such/ca.pem"})
    assert without_tls.files == TlsFiles(), "without TLS no file is read"
    read = read_endpoint(tls, {CA_FILE: certificate, CERT_FILE: certificate, KEY_FILE: key})
    assert read.files.key == one.key
