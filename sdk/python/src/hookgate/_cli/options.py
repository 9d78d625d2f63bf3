"""The options of `python -m hookgate run`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from hookgate._address import UnixAddress, parse_address
from hookgate._server.listen import TlsOptions
from hookgate._server.registration import RegistrationOptions

_MAX_DRAIN = 3600.0
_MAX_WORKERS = 256


class UsageError(Exception):
    """A mistake on the command line."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to run."""

    plugins: tuple[str, ...]
    """Each `module:variable`."""
    listen: str
    tls: TlsOptions | None
    drain_ms: float
    registration: RegistrationOptions | None
    workers: int
    reload: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parser() -> argparse.ArgumentParser:
    """The command line. Options are never abbreviated, so that later ones can't change what a script means."""
    program = _Parser("python -m hookgate", description="Serves Hookgate plugins.", allow_abbrev=False)
    commands = program.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="serve the plugins of modules", allow_abbrev=False)
    run.add_argument(
        "plugins",
        metavar="PLUGIN",
        nargs="+",
        help="module:variable or module.py:variable, a plugin or a list of plugins",
    )
    add = run.add_argument
    add("--listen", required=True, metavar="ADDRESS", help="unix:///path, http://host:port or https://host:port")
    add("--reload", action="store_true", help="start again when a file changes")
    add("--workers", type=int, default=1, metavar="N", help="processes that share a TCP port (default: 1)")
    add("--tls-cert", metavar="FILE", help="certificate of an https:// address, in PEM")
    add("--tls-key", metavar="FILE", help="its key, in PEM")
    add("--tls-client-ca", metavar="FILE", help="accept only clients with a certificate of these authorities")
    drain = "how long calls in flight may take to finish after SIGTERM (default: 25)"
    add("--drain", type=float, default=25.0, metavar="SECONDS", help=drain)
    add("--register", metavar="URL", help="register the plugins with the gateway whose host port this is")
    add("--register-token", metavar="FILE", help="the token for it; read again for each attempt")
    endpoint = "the address at which gateways reach this process (default: that of --listen)"
    add("--register-endpoint", metavar="URL", help=endpoint)
    return program


def parse_run_options(arguments: Sequence[str]) -> RunOptions:
    """Parses the arguments.

    :raises UsageError: If they are wrong. The message names the option.
    :raises OSError: If a file of TLS can't be read.
    """
    values = parser().parse_args(arguments)
    if not 0 <= values.drain <= _MAX_DRAIN:
        raise UsageError(f"--drain must be between 0 and {_MAX_DRAIN:.0f} seconds")
    _check_workers(values)
    return RunOptions(
        tuple(values.plugins),
        values.listen,
        _tls(values),
        values.drain * 1000,
        _registration(values),
        values.workers,
        values.reload,
    )


def _check_workers(values: argparse.Namespace) -> None:
    try:
        address = parse_address(values.listen)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from None
    if not 1 <= values.workers <= _MAX_WORKERS:
        raise UsageError(f"--workers must be between 1 and {_MAX_WORKERS}")
    if values.workers == 1:
        return
    if isinstance(address, UnixAddress):
        raise UsageError(
            "--workers needs a TCP address, because a Unix socket belongs to one process: start several processes, each"
            " with its own socket, and list them in the plugin's `endpoints`"
        )
    if address.port == 0:
        raise UsageError("--workers needs a port other than 0, because all of them listen at it")
    if values.reload:
        raise UsageError("--workers and --reload don't go together")


def _tls(values: argparse.Namespace) -> TlsOptions | None:
    if values.tls_cert is None and values.tls_key is None and values.tls_client_ca is None:
        return None
    if values.tls_cert is None or values.tls_key is None:
        raise UsageError("--tls-cert and --tls-key need each other")
    client_ca = None if values.tls_client_ca is None else Path(values.tls_client_ca).read_bytes()
    certificate, key = Path(values.tls_cert).read_bytes(), Path(values.tls_key).read_bytes()
    return TlsOptions(certificate=certificate, key=key, client_ca=client_ca)


def _registration(values: argparse.Namespace) -> RegistrationOptions | None:
    if values.register is None:
        if values.register_token is not None or values.register_endpoint is not None:
            raise UsageError("--register-token and --register-endpoint need --register")
        return None
    if values.register_token is None:
        raise UsageError("--register needs --register-token")
    token = Path(values.register_token)
    return RegistrationOptions(gateway=values.register, token=token, endpoint=values.register_endpoint)
