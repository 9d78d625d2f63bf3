"""Channels to a gateway. Knows no service."""

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import grpc
import grpc.aio

from hookgate._address import Address, TcpAddress, UnixAddress

MAX_RECEIVE_BYTES = 17 * 1024 * 1024
"""The largest request limit of a gateway (16 MiB), and the 1 MiB that a message may add to it."""

_Options: TypeAlias = tuple[tuple[str, int | str], ...]

_OPTIONS: Final[_Options] = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A connection that broke while idle is found before a call needs it.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_RECEIVE_BYTES),
    # The gateway's limits decide, with an error that names them.
    ("grpc.max_send_message_length", -1),
    # gRPC fails calls at once during its back-off. With its defaults of 1 s to 2 min, a gateway that has come back
    # would be out of reach for minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A gateway runs beside its callers: no proxy for the internet reaches it, and its DNS holds no service configs.
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    # gRPC would share connections among all channels of the process, so that closing one wouldn't end anything.
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificates for an `https://` address, in PEM form."""

    ca: str | bytes | None = None
    """The CAs to trust. Without it, those of the machine."""
    certificate: str | bytes | None = None
    """The client certificate, for a server that asks for one. Needs `key`."""
    key: str | bytes | None = field(default=None, repr=False)
    """The private key of the client certificate, not encrypted."""


def dial(address: Address, files: TlsFiles | None = None) -> grpc.aio.Channel:
    """Makes a channel to an address.

    It connects with the first call, and again after a lost connection. It belongs to the running event loop. Close it
    after use.

    :raises ValueError: The certificates can't be used. The message says which.
    """
    options, credentials = _settings(address, files)
    if credentials is None:
        return grpc.aio.insecure_channel(address.target, options)
    return grpc.aio.secure_channel(address.target, credentials, options)


def dial_blocking(address: Address, files: TlsFiles) -> grpc.Channel:
    """Like `dial`, for threads that share the channel.

    :raises ValueError: The certificates can't be used. The message says which.
    """
    options, credentials = _settings(address, files)
    if credentials is None:
        return grpc.insecure_channel(address.target, options)
    return grpc.secure_channel(address.target, credentials, options)


def _settings(address: Address, files: TlsFiles | None) -> tuple[_Options, grpc.ChannelCredentials | None]:
    """The options of a channel to an address, and its credentials if it uses TLS."""
    if isinstance(address, TcpAddress) and address.tls:
        return _OPTIONS, _credentials(files or TlsFiles())
    if isinstance(address, UnixAddress):
        return (*_OPTIONS, ("grpc.default_authority", "localhost")), None
    return _OPTIONS, None


def check_tls_files(files: TlsFiles) -> None:
    """Checks that TLS takes the certificates; gRPC itself would only fail every call.

    :raises ValueError: The certificates can't be used. The message says which.
    """
    if (files.certificate is None) != (files.key is None):
        raise ValueError("a client certificate and its private key belong together")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if files.ca is not None:
        _check_ca(context, _bytes(files.ca))
    if files.certificate is not None and files.key is not None:
        _check_pair(context, _bytes(files.certificate), _bytes(files.key))


def _credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    check_tls_files(files)
    return grpc.ssl_channel_credentials(
        root_certificates=_machine_roots() if files.ca is None else _bytes(files.ca),
        private_key=None if files.key is None else _bytes(files.key),
        certificate_chain=None if files.certificate is None else _bytes(files.certificate),
    )


def _check_ca(context: ssl.SSLContext, pem: bytes) -> None:
    try:
        context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"the CA certificates can't be used: {error}") from error


def _check_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    if b"ENCRYPTED" in key:
        raise ValueError("the private key is encrypted: give it in plaintext")
    # `ssl` reads a certificate and its key from files only. The folder is readable by this user alone.
    with tempfile.TemporaryDirectory(prefix="hookgate-") as folder:
        pair = Path(folder, "pair.pem")
        pair.touch(mode=0o600)
        pair.write_bytes(key + b"\n" + certificate)
        try:
            context.load_cert_chain(pair)
        except (ssl.SSLError, OSError) as error:
            raise ValueError(f"the client certificate and its private key can't be used: {error}") from error


def _machine_roots() -> bytes | None:
    """The CAs that the machine trusts; `None`, so those of gRPC, if it names none or the environment names others."""
    if "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" in os.environ:
        return None
    context = ssl.create_default_context()
    roots = [ssl.DER_cert_to_PEM_cert(root) for root in context.get_ca_certs(binary_form=True)]
    # OpenSSL reads a folder of certificates only when it looks for one.
    folder = ssl.get_default_verify_paths().capath
    if not roots and folder is not None:
        roots = [file.read_text("utf-8", "replace") for file in Path(folder).glob("*.[0-9]") if file.is_file()]
    return "\n".join(roots).encode() or None


def _bytes(pem: str | bytes) -> bytes:
    return pem.encode() if isinstance(pem, str) else pem
