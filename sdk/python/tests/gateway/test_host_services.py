"""The host services of a real gateway."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from support.certificates import Ca
from support.fake_host import until
from support.gateway import Gateway
from support.plain_plugin import PlainPlugin
from support.storage_cases import CASES, Case

from hookgate._proto import host_pb2
from hookgate._server.registration import RegistrationOptions, start_registration
from hookgate.host import Host, HostError, Log, Storage
from hookgate.host._client import CallAccess, HostClient
from hookgate.host._connection import acquire_connection
from hookgate.host._event import emit
from hookgate.host._links import HostLinks, HostOffer
from hookgate.host._methods import RENEW_TOKEN, WRITE_LOG
from hookgate.point import CAPABILITIES


class Running:
    """A gateway with a plugin, and what the plugin was told."""

    def __init__(self, gateway: Gateway, plugin: PlainPlugin, links: HostLinks, host: Host) -> None:
        self.gateway = gateway
        self.plugin = plugin
        self.links = links
        self.host = host

    async def client(self, tenant: str) -> HostClient:
        """As a call of the tenant gets it."""
        token = await self.gateway.mint("--tenant", tenant)
        status, _ = await self.gateway.call(token)
        assert status == 200
        call = await self.plugin.calls.get()
        return HostClient(self.links, CallAccess(call.host_token))


def sections(name: str, entry: dict[str, JsonValue]) -> dict[str, JsonValue]:
    binding: dict[str, JsonValue] = {"plugin": name, "tenant": "*", "priority": 10}
    return {"plugins": [{"name": name, **entry}], "bindings": [binding]}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    plugin = PlainPlugin("quota", tmp_path / "plugin.sock", CAPABILITIES)
    entry: dict[str, JsonValue] = {"endpoint": plugin.endpoint, "grants": list(CAPABILITIES)}
    gateway = Gateway(tmp_path, sections("quota", entry))
    async with plugin.running(), gateway.running():
        request = await asyncio.wait_for(plugin.initialized.get(), 20)
        links = HostLinks()
        links.add(HostOffer(request.gateway_instance_id, request.host_endpoint, request.host_token))
        yield Running(gateway, plugin, links, Host(links, request.capabilities, None))
        links.close()


async def test_the_storage_of_the_test_kit_is_like_that_of_a_gateway(running: Running) -> None:
    # One gateway for all, and the data of a case is gone before the next one.
    for case in CASES:
        await run_case(case, running.host.storage)
    # The same for a tenant.
    tenant = Storage(await running.client("acme"))
    await run_case(CASES[0], tenant)


async def run_case(case: Case, storage: Storage) -> None:
    try:
        await case(storage)
        keys = [entry.key async for entry in storage.list()]
        for key in keys:
            await storage.delete(key)
    except AssertionError as error:
        raise AssertionError(case.__name__) from error


async def test_data_belongs_to_one_tenant_or_to_the_plugin_alone(running: Running) -> None:
    acme, globex = [Storage(await running.client(tenant)) for tenant in ("acme", "globex")]
    await acme.put("k", "acme")
    await running.host.storage.put("k", "own")
    assert await globex.get("k") is None
    entry = await acme.get("k")
    assert entry is not None
    assert entry.kind == "value"
    assert entry.text() == "acme"


async def test_lines_and_events_arrive_with_the_tenant_and_the_plugin(running: Running) -> None:
    client = await running.client("acme")
    log = Log(client)
    log.warn("the budget is used", {"tokens": 1200})
    await log.flush()
    line = await running.gateway.line(lambda line: line.get("message") == "the budget is used")
    assert (line["level"], line["plugin"], line["tenant"]) == ("WARN", "quota", "acme")
    assert "1200" in str(line)
    await emit(client, "catalog.updated", "12 entries", {"entries": 12}, severity="error")
    event = await running.gateway.event("plugin.emitted")
    assert (event["plugin"], event["tenant"], event["level"]) == ("quota", "acme", "ERROR")
    await running.host.emit("started")
    running.host.log.debug("own")
    await running.host.log.flush()
    own = await running.gateway.line(lambda line: line.get("message") == "own")
    assert "tenant" not in own


async def test_a_forged_token_is_refused(running: Running) -> None:
    with pytest.raises(HostError) as failure:
        await Storage(HostClient(running.links, CallAccess("forged"))).put("k", "v")
    assert failure.value.kind == "denied"
    assert not failure.value.is_outcome_unknown


async def test_the_plugins_token_is_exchanged_for_another(running: Running) -> None:
    client = HostClient(running.links, None)
    answer = await client.call(RENEW_TOKEN, host_pb2.RenewTokenRequest())
    assert answer.expires_in_ms > 23 * 3_600_000
    renewed = Storage(HostClient(running.links, CallAccess(answer.token)))
    assert (await renewed.put("k", "v")).written
    assert await running.host.storage.get("k") is not None


async def test_too_many_events_are_limited_and_an_invalid_request_names_its_field(running: Running) -> None:
    client = HostClient(running.links, None)

    async def emit_many() -> None:
        for _ in range(1000):
            await emit(client, "again")

    with pytest.raises(HostError) as limited:
        await emit_many()
    assert limited.value.kind == "rate_limited"
    assert limited.value.retry_after_ms is not None
    assert limited.value.retry_after_ms > 0
    with pytest.raises(HostError, match="invalid call to the gateway: `records`") as invalid:
        await client.call(WRITE_LOG, host_pb2.WriteLogRequest())
    assert invalid.value.kind == "invalid"


async def test_the_host_port_is_reached_over_tls_with_the_files_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = Ca(tmp_path)
    ca.issue("server")
    ca.issue("client")
    plugin = PlainPlugin("quota", tmp_path / "plugin.sock", CAPABILITIES)
    entry: dict[str, JsonValue] = {"endpoint": plugin.endpoint, "grants": list(CAPABILITIES)}
    ports: dict[str, JsonValue] = dict.fromkeys(("data_addr", "ops_addr", "admin_addr", "host_addr"), "127.0.0.1:0")
    files = {"cert_file": "server.pem", "key_file": "server.key", "client_ca_file": "ca.pem"}
    tls: JsonValue = {name: f"{tmp_path}/{file}" for name, file in files.items()}
    gateway = Gateway(tmp_path, sections("quota", entry) | {"server": {**ports, "tls": tls}})
    async with plugin.running(), gateway.running():
        told = await asyncio.wait_for(plugin.initialized.get(), 20)
        endpoint = told.host_endpoint.replace("127.0.0.1", "localhost")

        async def put() -> None:
            links = HostLinks()
            links.add(HostOffer("g", endpoint, told.host_token))
            try:
                await Storage(HostClient(links, None)).put("k", "v")
            finally:
                links.close()

        with pytest.raises(HostError, match=r"(?i)certificate"):
            await put()
        monkeypatch.setenv("HOOKGATE_HOST_CA_FILE", f"{tmp_path}/ca.pem")
        with pytest.raises(HostError) as without_certificate:
            await put()
        assert without_certificate.value.kind == "unavailable"
        monkeypatch.setenv("HOOKGATE_HOST_CERT_FILE", f"{tmp_path}/client.pem")
        monkeypatch.setenv("HOOKGATE_HOST_KEY_FILE", f"{tmp_path}/client.key")
        await put()


async def test_a_gateway_that_is_gone_makes_no_call(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, {})
    links = HostLinks()
    links.add(HostOffer("g", gateway.host_endpoint, "t"))
    storage = Storage(HostClient(links, None))
    async with gateway.running():
        with pytest.raises(HostError) as denied:
            await storage.put("k", "v")
        assert denied.value.kind == "denied"
    with pytest.raises(HostError) as gone:
        await storage.put("k", "v")
    assert gone.value.kind == "unavailable"
    links.close()


async def test_a_process_registers_itself_and_is_removed_at_the_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hookgate")
    plugin = PlainPlugin("guard", tmp_path / "plugin.sock")
    entry: dict[str, JsonValue] = {"self_registration": True}
    gateway = Gateway(tmp_path, sections("guard", entry) | {"egress": {"socket_dirs": [str(tmp_path)]}})
    async with plugin.running(), gateway.running():
        agent = await gateway.mint("--tenant", "acme")
        assert (await gateway.call(agent))[0] == 503
        token = tmp_path / "token"
        token.write_text(await gateway.mint("--plugin", "guard"))
        registration = start_registration("guard", plugin.endpoint, RegistrationOptions(gateway.host_endpoint, token))
        answer = await asyncio.wait_for(registration.first_answer(), 20)
        assert answer is not None
        assert answer.lease_ms == 30_000
        assert not answer.approval_pending
        await asyncio.wait_for(plugin.initialized.get(), 20)
        await until_status(gateway, agent, 200)
        await registration.stop()
        await until_status(gateway, agent, 503)

        refused = start_registration("other", plugin.endpoint, RegistrationOptions(gateway.host_endpoint, token))
        await until(lambda: caplog.messages[-1].startswith("the gateway refuses to register other"))
        await refused.stop()


async def until_status(gateway: Gateway, token: str, status: int) -> None:
    deadline = time.monotonic() + 20
    while (await gateway.call(token))[0] != status:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_connection_to_a_gateway_is_shared(running: Running) -> None:
    await running.host.storage.get("k")
    connection = acquire_connection(running.gateway.host_endpoint)
    assert running.links.candidates()[0].connection() is connection
    connection.release()
