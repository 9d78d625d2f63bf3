"""Addresses as the gateway's configuration writes them: `unix:///path`, `http://host:port` or `https://host:port`."""

import ipaddress
import json
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_.])?", re.ASCII)
_UNIX_PREFIX = "unix://"
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A Unix socket."""

    path: str

    @property
    def target(self) -> str:
        """The address as gRPC names it: what a channel connects to, or a server listens at."""
        return f"unix:{quote(self.path)}"

    def __str__(self) -> str:
        return _UNIX_PREFIX + self.path


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP port, with or without TLS."""

    host: str
    """In lower case, an IPv6 address without brackets."""
    port: int
    """0 to 65,535; 0 lets a listener choose one."""
    tls: bool

    @property
    def target(self) -> str:
        """The address as gRPC names it: what a channel connects to, or a server listens at."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.target}"


Address = UnixAddress | TcpAddress


def parse_address(text: str) -> Address:
    """Parses `unix:///path`, `http://host:port` or `https://host:port`.

    :raises ValueError: It is malformed. The message says what is expected.
    """
    if text.startswith(f"{_UNIX_PREFIX}/") and len(text) > len(_UNIX_PREFIX) + 1 and "\0" not in text:
        return UnixAddress(text.removeprefix(_UNIX_PREFIX))
    try:
        address = _parse_tcp(text)
    except ValueError:
        address = None
    if address is None:
        shown = json.dumps(text)
        raise ValueError(f"the address {shown} is neither unix:///path, http://host:port nor https://host:port")
    return address


def _parse_tcp(text: str) -> TcpAddress | None:
    if not text.isascii() or not text.isprintable() or " " in text:
        return None
    parts = urlsplit(text)
    is_bare = parts.path in ("", "/") and "@" not in parts.netloc and not any(mark in text for mark in "?#")
    if parts.scheme not in ("http", "https") or not is_bare:
        return None
    host = _host_of(parts)
    tls = parts.scheme == "https"
    default_port = 443 if tls else 80
    port = parts.port
    return TcpAddress(host, default_port if port is None else port, tls) if host else None


def _host_of(parts: SplitResult) -> str | None:
    host = parts.hostname or ""
    if parts.netloc.startswith("["):
        return str(ipaddress.IPv6Address(host))
    return host if _HOST_NAME.fullmatch(host) else None
