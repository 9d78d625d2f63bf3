"""Serves plugins as a process: with health checks and reflection, registered if asked to, stopped gracefully."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]

from hookgate._address import Address, UnixAddress, parse_address
from hookgate._logging import log_to_stderr
from hookgate._server.listen import TlsOptions, listen
from hookgate._server.plugin_host import PluginHost
from hookgate._server.plugin_service import SERVICE, Load, plugin_service
from hookgate._server.registration import Registration, RegistrationOptions, start_registration
from hookgate.plugin import Plugin

logger = logging.getLogger("hookgate")

_MAX_CALL_BYTES: Final = 17 * 1024 * 1024
"""The largest call: the largest request limit of a gateway (16 MiB) and the 1 MiB that a call may add to it."""

_DEFAULT_DRAIN_MS: Final = 25_000
"""How long calls in flight may take to finish after a stop; less than the 30 s that Kubernetes allows."""

_MAX_LAST_WRITE: Final = 1.0
"""How long the last answers may take to be written, in seconds, when other streams keep connections open."""

_AnyPlugin: TypeAlias = Plugin[Any, Any]


async def serve(
    plugins: _AnyPlugin | Sequence[_AnyPlugin],
    address: str,
    *,
    tls: TlsOptions | None = None,
    drain_ms: float = _DEFAULT_DRAIN_MS,
    registration: RegistrationOptions | None = None,
    signals: bool = True,
    reuse_port: bool = False,
) -> Server:
    """Serves one or several plugins at `unix:///path`, `http://host:port` or `https://host:port`.

    Several at one address are separate plugins to a gateway, each with its own entry, configuration and storage. What
    happens in the process goes to the logger `hookgate` of `logging`; if nothing takes it, to stderr as JSON lines.

    :param tls: Required for an `https://` address.
    :param drain_ms: How long calls in flight may take to finish after a stop, in milliseconds.
    :param registration: Registers the plugins with a gateway while they are served.
    :param signals: Whether SIGTERM and SIGINT stop the server; only in the main thread.
    :param reuse_port: Whether other processes may listen at the same TCP port.
    :raises ValueError: If the address is malformed, two plugins have the same name, or TLS doesn't fit.
    :raises TypeError: If a plugin can't work.
    :raises OSError: If the address is taken, or can't be used.
    :raises RegistrationError: If the registration can't work.
    """
    log_to_stderr(logger)
    served = [plugins] if isinstance(plugins, Plugin) else list(plugins)
    _check_names(served)
    hosts = [PluginHost(plugin) for plugin in served]
    wanted = parse_address(address)
    options = [
        ("grpc.max_receive_message_length", _MAX_CALL_BYTES),
        ("grpc.max_send_message_length", -1),
        # By default gRPC lets two processes listen at one port, and each gets a part of the calls.
        ("grpc.so_reuseport", int(reuse_port)),
    ]
    grpc_server = grpc.aio.server(options=options)
    load = Load()
    grpc_server.add_generic_rpc_handlers((plugin_service(hosts, load),))
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, grpc_server)
    names = (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, grpc_server)
    bound = listen(grpc_server, wanted, tls)
    await grpc_server.start()
    server = Server(grpc_server, health_servicer, hosts, load, bound, drain_ms / 1000)
    if signals:
        # Before the log says that it listens, which is when others may stop it.
        server._stop_at_signals()
    try:
        server._begin(registration)
    except BaseException:
        server._ignore_signals()
        await grpc_server.stop(None)
        server._remove_socket()
        raise
    return server


def _check_names(plugins: Sequence[_AnyPlugin]) -> None:
    names = [plugin.name for plugin in plugins]
    if not names:
        raise ValueError("there is no plugin to serve")
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise ValueError(f"two of the plugins are named `{twice}`: each needs a name of its own")


class Server:
    """Plugins that are being served. Made by `serve`."""

    def __init__(
        self,
        grpc_server: grpc.aio.Server,
        health_servicer: health.aio.HealthServicer,
        hosts: Sequence[PluginHost],
        load: Load,
        bound: Address,
        drain: float,
    ) -> None:
        """Only the SDK makes it."""
        self._grpc = grpc_server
        self._health = health_servicer
        self._hosts = hosts
        self._load = load
        self._bound = bound
        self._drain_seconds = drain
        self._loop = asyncio.get_running_loop()
        self._registrations: list[Registration] = []
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    @property
    def address(self) -> str:
        """The address with the actual port."""
        return str(self._bound)

    async def stopped(self) -> None:
        """Waits until the server has stopped."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Stops: ends the registration, accepts no more calls, finishes those in flight, and shuts the plugins down."""
        await asyncio.shield(self._start_stop())

    def _begin(self, registration: RegistrationOptions | None) -> None:
        for host in self._hosts:
            attributes = {"plugin": host.plugin.name, "version": host.plugin.version, "address": self.address}
            logger.info("plugin listens", extra={"attributes": attributes})
        if registration is not None:
            names = [host.plugin.name for host in self._hosts]
            self._registrations = [start_registration(name, self.address, registration) for name in names]

    def _stop_at_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Only the main thread gets signals.
            with suppress(ValueError, RuntimeError):
                self._loop.add_signal_handler(number, self._start_stop)

    def _ignore_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError, RuntimeError):
                self._loop.remove_signal_handler(number)

    def _start_stop(self) -> asyncio.Task[None]:
        if self._stopping is None:
            self._stopping = self._loop.create_task(self._stop_once())
        return self._stopping

    async def _stop_once(self) -> None:
        try:
            await asyncio.gather(*(registration.stop() for registration in self._registrations))
            await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
            # Before the drain, so that a successor can listen immediately.
            self._remove_socket()
            await self._drain()
            await asyncio.gather(*(host.shutdown() for host in self._hosts))
            for host in self._hosts:
                logger.info("plugin stopped", extra={"attributes": {"plugin": host.plugin.name}})
        finally:
            self._ignore_signals()
            self._stopped.set()

    def _remove_socket(self) -> None:
        if isinstance(self._bound, UnixAddress):
            with suppress(OSError):
                Path(self._bound.path).unlink()

    async def _drain(self) -> None:
        """Finishes the calls in flight, but not longer than the limit."""
        finished = asyncio.ensure_future(self._grpc.stop(self._drain_seconds))
        idle = asyncio.ensure_future(self._load.idle())
        await asyncio.wait({finished, idle}, timeout=self._drain_seconds, return_when=asyncio.FIRST_COMPLETED)
        if idle.done():
            # Health checks and reflection may be streams without an end.
            await asyncio.wait({finished}, timeout=_MAX_LAST_WRITE)
        else:
            idle.cancel()
            attributes = {"address": self.address}
            logger.warning("calls are still in flight; stopping without them", extra={"attributes": attributes})
        await self._grpc.stop(None)
        await finished
