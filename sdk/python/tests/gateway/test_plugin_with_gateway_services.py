"""A plugin of the SDK that registers itself with a real gateway, and uses its services."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pydantic import JsonValue
from support.gateway import Gateway

from hookgate import BeforeToolCall, Context, Host, Plugin, RegistrationOptions, ToolCallReply, cancel, proceed, serve


def budget() -> Plugin[None, None]:
    """Lets each tenant make two calls per day."""
    plugin = Plugin("budget", version="1.0.0", capabilities=["storage:read", "storage:write", "log", "emit"])

    @plugin.initialize
    async def initialize(config: None, host: Host) -> Host:
        await host.storage.add("starts", 1)
        return host

    @plugin.before_tool_call(access="read")
    async def count(call: BeforeToolCall, ctx: Context[None, None, Host]) -> ToolCallReply:
        result = await ctx.storage.add("calls", 1, limit=2, window="day")
        ctx.log.info("counted", {"calls": result.counter})
        if result:
            return proceed()
        await ctx.emit("budget.used", f"{ctx.tenant} made {result.counter} calls", severity="warn")
        return cancel("BUDGET_USED", "Come back tomorrow.", retry_after_ms=result.resets_in_ms)

    @plugin.shutdown
    async def say_goodbye(host: Host) -> None:
        host.log.warn("the last words", {"starts": await host.storage.get_json("starts")})

    return plugin


async def test_a_plugin_registers_itself_and_limits_each_tenant(tmp_path: Path) -> None:
    entry: dict[str, JsonValue] = {
        "name": "budget",
        "self_registration": True,
        "grants": ["storage:read", "storage:write", "log", "emit"],
    }
    binding: JsonValue = {"plugin": "budget", "tenant": "*", "priority": 10}
    egress: JsonValue = {"socket_dirs": [str(tmp_path)]}
    gateway = Gateway(tmp_path, {"plugins": [entry], "bindings": [binding], "egress": egress})
    async with gateway.running():
        token = await gateway.mint("--plugin", "budget")
        registration = RegistrationOptions(gateway.host_endpoint, token)
        server = await serve(budget(), f"unix://{tmp_path}/budget.sock", registration=registration, signals=False)
        await gateway.event("plugin.initialized")
        acme, globex = [await gateway.mint("--tenant", tenant) for tenant in ("acme", "globex")]
        answers = [await first_decision(gateway, acme)] + [await gateway.call(acme) for _ in range(2)]
        assert [answer["decision"] for _, answer in answers] == ["continue", "continue", "block"]
        assert (await gateway.call(globex))[1]["decision"] == "continue"
        counted = await gateway.line(lambda line: line.get("message") == "counted")
        assert (counted["plugin"], counted["tenant"]) == ("budget", "acme")
        used = await gateway.event("plugin.emitted")
        assert used["tenant"] == "acme"
        assert "acme made 2 calls" in str(used)
        await server.stop()
        last = await gateway.line(lambda line: line.get("message") == "the last words")
        assert "tenant" not in last
        assert (await gateway.call(globex))[0] == 503


async def first_decision(gateway: Gateway, token: str) -> tuple[int, dict[str, JsonValue]]:
    """Of a gateway that may not have put the plugin into its routing table yet."""
    deadline = time.monotonic() + 20
    answer = await gateway.call(token)
    for _ in range(400):
        if answer[0] != 503 or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.05)
        answer = await gateway.call(token)
    return answer
