"""Endpoints of a gateway's host services, with the TLS files that the environment names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookgate._address import Address, TcpAddress, parse_address
from hookgate._channel import TlsFiles, check_tls_files

CA_FILE: Final = "HOOKGATE_HOST_CA_FILE"
"""Names a PEM file with the CAs to trust at `https://` endpoints. Without it, those of the machine."""
CERT_FILE: Final = "HOOKGATE_HOST_CERT_FILE"
"""Names the PEM file of a client certificate, for a gateway with `server.tls.client_ca_file`."""
KEY_FILE: Final = "HOOKGATE_HOST_KEY_FILE"
"""Names the PEM file of the client certificate's private key."""


class DialError(Exception):
    """Why an endpoint can't be used, and what to do."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint that can be connected to."""

    address: Address
    files: TlsFiles


def read_endpoint(endpoint: str, environment: Mapping[str, str] = os.environ) -> Endpoint:
    """Reads `unix:///path`, `http://host:port` or `https://host:port`, and the TLS files for it.

    :raises DialError: If the text is malformed, or a file can't be used.
    """
    try:
        address = parse_address(endpoint)
    except ValueError as error:
        raise DialError(str(error)) from error
    has_tls = isinstance(address, TcpAddress) and address.tls
    return Endpoint(address, _read_tls_files(environment) if has_tls else TlsFiles())


def _read_tls_files(environment: Mapping[str, str]) -> TlsFiles:
    files = TlsFiles(
        ca=_read_pem(environment, CA_FILE, b"-----BEGIN CERTIFICATE-----", "certificate"),
        certificate=_read_pem(environment, CERT_FILE, b"-----BEGIN CERTIFICATE-----", "certificate"),
        key=_read_pem(environment, KEY_FILE, b"PRIVATE KEY-----", "private key"),
    )
    if (files.certificate is None) != (files.key is None):
        missing = KEY_FILE if files.key is None else CERT_FILE
        raise DialError(f"{CERT_FILE} and {KEY_FILE} belong together; {missing} is not set")
    try:
        check_tls_files(files)
    except ValueError as error:
        remedy = f"check the files that {CA_FILE}, {CERT_FILE} and {KEY_FILE} name"
        raise DialError(f"TLS can't be used for the host services: {error}; {remedy}") from error
    return files


def _read_pem(environment: Mapping[str, str], variable: str, marker: bytes, content: str) -> bytes | None:
    file = environment.get(variable)
    if file is None:
        return None
    try:
        pem = Path(file).read_bytes()
    except OSError as error:
        raise DialError(f"{variable}: can't read {file}: {error.strerror}") from error
    if marker not in pem:
        raise DialError(f"{variable}: {file} has no {content} in PEM form")
    if b"ENCRYPTED" in pem:
        raise DialError(f"{variable}: {file} is encrypted; name a file with the key in plaintext")
    return pem
