"""Listens at an address: a Unix socket or a TCP port."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from hookgate._address import Address, TcpAddress, UnixAddress

_SOCKET_MODE: Final = 0o660
"""The gateway's user must share the socket's group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS of a TCP address, each in PEM."""

    certificate: bytes
    """The certificate, and those between it and its authority."""
    key: bytes
    """The private key of the certificate, not encrypted."""
    client_ca: bytes | None = None
    """Accept only clients with a certificate of these authorities."""


def listen(server: grpc.aio.Server, address: Address, tls: TlsOptions | None) -> Address:
    """Binds the server to the address, and returns the address with the actual port.

    A stale socket file is replaced, one in use is not. The new file has the mode 0660.

    :raises ValueError: If TLS and the address don't fit together.
    :raises OSError: If the address is taken, or can't be used.
    """
    is_secure = isinstance(address, TcpAddress) and address.tls
    if is_secure != (tls is not None):
        needs = f"{address} needs a certificate and a key"
        raise ValueError(needs if is_secure else "a certificate and a key need an https:// address")
    try:
        if isinstance(address, TcpAddress):
            return replace(address, port=_bind(server, address, tls))
        _remove_stale_socket(address.path)
        _bind_socket(server, address)
        return address
    except (OSError, RuntimeError) as error:
        raise OSError(f"can't listen at {address}: {error}") from error


def _bind_socket(server: grpc.aio.Server, address: UnixAddress) -> None:
    # A server of gRPC removes the path that it was bound to some time after its stop. That must not be the socket of a
    # successor, so the socket gets its name afterwards.
    unnamed = replace(address, path=f"{address.path}.{os.getpid()}")
    _remove_stale_socket(unnamed.path)
    _bind(server, unnamed, None)
    Path(unnamed.path).chmod(_SOCKET_MODE)
    Path(unnamed.path).rename(address.path)


def _bind(server: grpc.aio.Server, address: Address, tls: TlsOptions | None) -> int:
    if tls is None:
        return server.add_insecure_port(address.target)
    credentials = grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], tls.client_ca, require_client_auth=tls.client_ca is not None
    )
    return server.add_secure_port(address.target, credentials)


def _remove_stale_socket(path: str) -> None:
    # gRPC would remove any socket file, also that of a running process.
    with socket.socket(socket.AF_UNIX) as client:
        code = client.connect_ex(path)
    if code == 0:
        raise OSError("another process listens there")
    if code == errno.ECONNREFUSED:
        Path(path).unlink(missing_ok=True)
    elif code != errno.ENOENT:
        raise OSError(code, os.strerror(code))
