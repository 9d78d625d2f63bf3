"""Agents with a real gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue
from support.agents import Kind, PluginCall, make_agent
from support.certificates import Ca
from support.fake_gateway import FakeGateway
from support.gateway import _SECRET, Gateway

from hookgate import BeforeToolCall, Context, Plugin, ToolCallReply, proceed, serve
from hookgate._proto import gateway_pb2
from hookgate.agent import (
    Agent,
    Blocked,
    CallContext,
    CallError,
    NoDecision,
    call_context,
    hs256_signer,
    token_file,
)

SIGNER = hs256_signer(secret=_SECRET, issuer="test", audience="hookgate", operator="bot", tenant="acme")


def sections(folder: Path) -> dict[str, JsonValue]:
    """`globex` requires a plugin at `before_response` that is down."""
    employee: dict[str, JsonValue] = {"name": "employee", "regex": r"E-\d{4}"}
    allowed: dict[str, JsonValue] = {"name": "files", "tools": ["fs.*"], "action": "allow"}
    return {
        "plugins": [
            {"name": "tool-policy", "builtin": "tool-policy", "config": {"default": "deny", "rules": [allowed]}},
            {
                "name": "redact",
                "builtin": "redact",
                "config": {"patterns": [employee]},
            },
            {"name": "absent", "endpoint": f"unix://{folder}/absent.sock", "required": False},
        ],
        "bindings": [
            {"plugin": "tool-policy", "tenant": "*", "priority": 10},
            {"plugin": "redact", "tenant": "*", "priority": 20},
            {"plugin": "absent", "tenant": "globex", "priority": 30, "points": ["before_response"]},
        ],
        "limits": {"request": "100KiB"},
    }


@asynccontextmanager
async def serving(folder: Path, more: Mapping[str, JsonValue] | None = None) -> AsyncIterator[Gateway]:
    gateway = Gateway(folder, sections(folder) | dict(more or {}))
    async with gateway.running():
        yield gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with serving(tmp_path) as running:
        yield running


async def test_a_policy_allows_one_tool_and_blocks_another(agent_kind: Kind, gateway: Gateway) -> None:
    async with make_agent(agent_kind, gateway.data_url, token=SIGNER) as agent:
        decision = await agent.before_tool_call(tool_name="fs.read", args={"path": "/etc/hosts"}, call_id="c1")
        assert (decision.decision, decision.modified, decision.no_decision) == ("continue", False, None)
        assert (decision.payload.tool_name, decision.payload.args) == ("fs.read", {"path": "/etc/hosts"})
        assert [(step.plugin, step.outcome) for step in decision.steps] == [
            ("tool-policy", "continued"),
            ("redact", "continued"),
        ]
        with pytest.raises(Blocked) as raised:
            await agent.before_tool_call(tool_name="shell.exec", args={"cmd": "ls"})
    block = raised.value
    assert (block.point, block.code, block.scope) == ("before_tool_call", "TOOL_NOT_ALLOWED", "step")
    assert (block.plugin, block.binding) == ("tool-policy", "tool-policy")
    assert block.plan_digest == decision.plan_digest != ""
    assert "shell.exec" in block.message


async def test_every_point_gives_back_what_plugins_made_of_the_payload(agent_kind: Kind, gateway: Gateway) -> None:
    async with make_agent(agent_kind, gateway.data_url, token=SIGNER, trace=True) as agent:
        request = await agent.before_llm_request(
            text="I am E-1234.", messages=[{"role": "user", "content": "E-1234", "seed": 2**70}], extra={"n": 2**64}
        )
        assert request.modified
        assert request.payload.text == "I am [REDACTED]."
        assert request.payload.messages == [{"role": "user", "content": "[REDACTED]", "seed": 2**70}]
        assert request.payload.extra == {"n": 2**64}
        (step,) = [step for step in request.steps if step.outcome == "modified"]
        assert step.changes is not None
        assert step.changes["text"] == "I am [REDACTED]."
        result = await agent.after_tool_result(
            tool_name="fs.read", result=["E-1234", 1.5], success=False, args={"path": "E-1234"}, duration_ms=12.4
        )
        assert result.payload.result == ["[REDACTED]", 1.5]
        assert (result.payload.args, result.payload.duration_ms) == ({"path": "E-1234"}, 12)
        response = await agent.before_response(content="Bye, E-1234 \ud83d")
        assert response.payload.content == "Bye, [REDACTED] \ufffd"
        call = await agent.before_tool_call(tool_name="fs.read", args={"path": "E-1234"})
        assert call.payload.args == {"path": "[REDACTED]"}
        # What was approved is what passes again.
        again = await agent.before_tool_call(call.payload, expect_plan_digest=call.plan_digest)
        assert not again.modified


async def test_a_plugin_that_is_down_is_no_decision_with_its_step(agent_kind: Kind, gateway: Gateway) -> None:
    async with make_agent(agent_kind, gateway.data_url, token=SIGNER) as agent:
        with call_context(tenant="globex"):
            with pytest.raises(NoDecision) as raised:
                await agent.before_response(content="c")
            shown = await agent.before_response(content="c", on_no_decision="go_on")
            assert shown.no_decision is not None
            assert shown.payload.content == "c"
        assert (await agent.before_response(content="c")).no_decision is None
    error = raised.value
    assert (error.code, error.plugin, error.is_transient) == ("PLUGIN_UNAVAILABLE", "absent", True)
    assert error.reason is not None
    assert [(step.plugin, step.outcome) for step in error.steps] == [("redact", "continued"), ("absent", "failed")]
    assert error.request_id


async def test_the_gateways_refusals_are_errors_that_never_go_on(agent_kind: Kind, gateway: Gateway) -> None:
    cases: list[tuple[str, dict[str, object]]] = [
        ("TOKEN_MISSING", {"token": None}),
        ("TOKEN_INVALID", {"token": "not.a.token"}),
        ("TENANT_UNKNOWN", {"context": {"tenant": "initech"}}),
        ("PAYLOAD_INVALID", {"context": {"labels": {"claim.x": "y"}}}),
    ]
    for code, options in cases:
        options = {"token": SIGNER, "on_no_decision": "go_on", **options}
        async with make_agent(agent_kind, gateway.data_url, **options) as agent:
            with pytest.raises(NoDecision) as raised:
                await agent.before_response(content="c")
            assert (raised.value.kind, raised.value.code) == ("error", code)
            assert not raised.value.is_transient
    async with make_agent(agent_kind, gateway.data_url, token=SIGNER, on_no_decision="go_on") as agent:
        with pytest.raises(NoDecision) as raised:
            await agent.before_response(content="x" * 200_000)
        assert raised.value.code == "PAYLOAD_TOO_LARGE"
        with pytest.raises(NoDecision) as raised:
            await agent.before_response(content="x", expect_plan_digest="0" * 64)
        assert raised.value.code == "PLAN_CHANGED"
        with pytest.raises(NoDecision) as raised:
            await agent.before_tool_call(tool_name="x" * 257, args={})
        assert [violation.field for violation in raised.value.violations] == ["/payload/tool_name"]


async def test_hooks_and_tools_are_answered(agent_kind: Kind, gateway: Gateway) -> None:
    async with make_agent(agent_kind, gateway.data_url, token=SIGNER) as agent:
        answer = await agent.run_hook("recall", {"message": "hi"})
        assert answer.contributions == ()
        assert answer.request_id
        assert (await agent.list_tools()).tools == ()
        with pytest.raises(CallError) as raised:
            await agent.run_hook("recall", {"message": 7})
        assert raised.value.code == "PAYLOAD_INVALID"


async def test_a_token_file_names_the_caller(agent_kind: Kind, gateway: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{await gateway.mint('--tenant', 'acme')}\n")
    async with make_agent(agent_kind, gateway.data_url, token=token_file(file)) as agent:
        assert (await agent.before_response(content="c")).no_decision is None


async def test_calls_at_the_same_time_keep_their_context(agent_kind: Kind, gateway: Gateway) -> None:
    async def run(tenant: str, agent: Agent) -> str | None:
        context: CallContext = {"tenant": tenant, "session_id": tenant}
        with call_context(**context):
            try:
                await agent.before_response(content="c")
            except NoDecision as error:
                return error.code
        return None

    async with make_agent(agent_kind, gateway.data_url, token=SIGNER) as agent:
        codes = await asyncio.gather(*(run(tenant, agent) for tenant in ["acme", "globex", "initech"] * 5))
    assert codes == [None, "PLUGIN_UNAVAILABLE", "TENANT_UNKNOWN"] * 5


async def test_tls_with_a_client_certificate(agent_kind: Kind, tmp_path: Path) -> None:
    ca = Ca(tmp_path)
    ca.issue("server")
    client = ca.issue("client")
    files = {"cert_file": "server.pem", "key_file": "server.key", "client_ca_file": "ca.pem"}
    addresses: dict[str, JsonValue] = dict.fromkeys(("data_addr", "ops_addr", "admin_addr"), "127.0.0.1:0")
    server: dict[str, JsonValue] = {**addresses, "tls": {name: f"{tmp_path}/{file}" for name, file in files.items()}}
    async with serving(tmp_path, {"server": server}) as gateway:
        url = gateway.data_url.replace("http://", "https://")
        pair: dict[str, object] = {"certificate": client.certificate, "key": client.key}
        async with make_agent(agent_kind, url, token=SIGNER, ca=ca.certificate, **pair) as agent:
            assert (await agent.before_response(content="c")).no_decision is None
        async with make_agent(agent_kind, url, token=SIGNER, ca=ca.certificate) as agent:
            with pytest.raises(NoDecision) as raised:
                await agent.before_response(content="c")
            assert raised.value.kind == "unreachable"


async def test_a_gateway_that_ends_is_no_decision(agent_kind: Kind, tmp_path: Path) -> None:
    async with serving(tmp_path) as gateway:
        agent = make_agent(agent_kind, gateway.data_url, token=SIGNER)
        assert (await agent.before_response(content="c")).no_decision is None
    with pytest.raises(NoDecision) as raised:
        await agent.before_response(content="c")
    assert raised.value.kind == "unreachable"
    await agent.close()


async def test_a_plugin_calls_a_gateway_within_its_callers_time_trace_and_depth(
    agent_kind: Kind, fake_gateway: FakeGateway, tmp_path: Path
) -> None:
    plugin = Plugin("forward", version="1.0.0")
    inner = make_agent(agent_kind, fake_gateway.url)

    @plugin.before_tool_call(access="read", side_effects="some")
    async def forward(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        await inner.before_tool_call(call, caller=ctx)
        return proceed()

    endpoint = f"unix://{tmp_path}/plugin.sock"
    entry: dict[str, JsonValue] = {"name": "forward", "endpoint": endpoint}
    binding: dict[str, JsonValue] = {"plugin": "forward", "tenant": "*", "priority": 10, "timeout": "5s"}
    server = await serve(plugin, endpoint)
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    caller = PluginCall(traceparent=f"00-{trace_id}-b7ad6b7169203331-01", depth=1)
    async with (
        serving(tmp_path, {"plugins": [entry], "bindings": [binding]}) as gateway,
        make_agent(agent_kind, gateway.data_url, token=SIGNER) as agent,
    ):
        await agent.before_tool_call(tool_name="t", args={"n": 2**70}, caller=caller)
    await inner.close()
    await server.stop()
    (received,) = fake_gateway.calls
    assert received.request(gateway_pb2.BeforeToolCallRequest).payload.args == b'{"n":1180591620717411303424}'
    assert received.headers["hookgate-depth"] == "2"
    assert received.headers["traceparent"].split("-")[1] == trace_id
    assert received.timeout <= 5.1
