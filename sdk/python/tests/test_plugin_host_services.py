"""The gateway's services as handlers use them: storage, log and events."""

from __future__ import annotations

from typing import Any

from support.fake_host import ALL, FakeHost, until
from support.gateway_client import GatewayClient, call_of, failure, served

from hookgate import (
    AfterToolResult,
    BeforeLlmRequest,
    BeforeResponse,
    BeforeToolCall,
    Context,
    Host,
    LlmRequestReply,
    Plugin,
    ResponseReply,
    Tool,
    ToolCallReply,
    ToolResultReply,
    ValueEntry,
    cancel,
    proceed,
    wait,
)
from hookgate._proto import plugin_pb2, types_pb2


def counting_plugin() -> Plugin[None, None]:
    plugin = Plugin("counter", version="1.0.0", capabilities=ALL)

    @plugin.initialize
    async def start(config: None, host: Host) -> str:
        await host.storage.put("started", "yes")
        return ",".join(host.capabilities)

    @plugin.before_tool_call
    async def count(call: BeforeToolCall, ctx: Context[None, None, str]) -> ToolCallReply:
        added = await ctx.storage.add("calls", 1)
        ctx.log.info("counted", {"tool": call.tool_name})
        await ctx.emit("calls.counted", attributes={"tool": call.tool_name})
        return cancel("N", f"{added.counter} {ctx.state}")

    return plugin


async def count(client: GatewayClient, host: FakeHost, tenant: str) -> str:
    call = call_of("d")
    call.context.tenant = tenant
    call.host_token = host.issue_token("counter", tenant, ALL)
    payload = types_pb2.BeforeToolCallPayload(tool_name="fs.read", args=b"{}")
    reply = await client.call("BeforeToolCall", plugin_pb2.BeforeToolCallRequest(call=call, payload=payload))
    message: str = reply.cancel.message
    return message


async def test_handlers_use_the_services_of_the_gateway_for_the_tenant_of_the_call() -> None:
    async with FakeHost() as host, served(counting_plugin()) as (client, _):
        token = host.issue_token("counter", None, ALL)
        await client.initialize(capabilities=ALL, host_endpoint=host.endpoint, host_token=token)
        state = ",".join(ALL)
        assert [await count(client, host, tenant) for tenant in ("acme", "acme", "globex")] == [
            f"1 {state}",
            f"2 {state}",
            f"1 {state}",
        ]
        started = await host.storage_of("counter").get("started")
        assert isinstance(started, ValueEntry)
        assert started.text() == "yes"
        await until(lambda: len(host.log_lines) == 3 and len(host.events) == 3)


async def test_a_call_fails_as_unavailable_without_the_services() -> None:
    plugin = Plugin("counter", version="1.0.0")

    @plugin.before_tool_call
    async def read(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        await ctx.storage.get("calls")
        return cancel("NO", "never")

    async with served(plugin) as (client, _):
        await client.initialize()
        status, message = await failure(client.tool_call())
        assert status == "UNAVAILABLE"
        assert message.startswith("HostError: the gateway offers no host services to this plugin")


async def test_a_log_line_that_no_gateway_takes_fails_no_call() -> None:
    plugin = Plugin("counter", version="1.0.0")

    @plugin.before_tool_call
    async def note(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        ctx.log.warn("no gateway takes this")
        return cancel("NO", "answered")

    async with served(plugin) as (client, _):
        await client.initialize()
        assert await client.message() == "answered"


async def test_plain_functions_wait_for_the_services() -> None:
    plugin = Plugin("counter", version="1.0.0", capabilities=ALL)

    @plugin.initialize
    def start(config: None, host: Host) -> None:
        wait(host.storage.put("started", "yes"))

    @plugin.before_tool_call
    def count_in_a_thread(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        added = wait(ctx.storage.add("calls", 1, limit=1))
        wait(ctx.emit("calls.counted"))
        return cancel("N", f"{added.added} {added.counter}")

    async with FakeHost() as host, served(plugin) as (client, _):
        token = host.issue_token("counter", None, ALL)
        await client.initialize(capabilities=ALL, host_endpoint=host.endpoint, host_token=token)
        assert [await count(client, host, "acme") for _ in range(2)] == ["True 1", "False 1"]
        await until(lambda: len(host.events) == 2)


async def test_a_call_that_is_not_awaited_has_no_truth_value_and_passes_nothing() -> None:
    plugin = Plugin("counter", version="1.0.0", capabilities=ALL)

    @plugin.before_tool_call
    async def forget(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return proceed() if ctx.storage.add("calls", 1, limit=1) else cancel("QUOTA_EXCEEDED", "No more.")

    @plugin.after_tool_result
    async def compare(_: AfterToolResult, ctx: Context) -> ToolResultReply:
        return cancel("LOCKED", "Locked.") if ctx.storage.get_json("mode") == "locked" else proceed()

    @plugin.before_llm_request
    async def look_at_a_list(_: BeforeLlmRequest, ctx: Context) -> LlmRequestReply:
        return proceed() if ctx.storage.list("approved/") else cancel("NOT_APPROVED", "Not approved.")

    @plugin.before_response
    async def wait_in_a_coroutine(_: BeforeResponse, ctx: Context) -> ResponseReply:
        wait(ctx.storage.add("calls", 1))
        return proceed()

    async with served(plugin) as (client, _):
        await client.initialize()
        status, message = await failure(client.tool_call())
        assert (status, message) == (
            "ABORTED",
            "TypeError: a call of the gateway's services has no truth value before it is awaited",
        )
        result = types_pb2.AfterToolResultPayload(tool_name="t", result=b"1")
        after = plugin_pb2.AfterToolResultRequest(call=call_of("d"), payload=result)
        assert "can't be compared before" in (await failure(client.call("AfterToolResult", after)))[1]
        prompt = types_pb2.BeforeLlmRequestPayload(text="t")
        before = plugin_pb2.BeforeLlmRequestRequest(call=call_of("d"), payload=prompt)
        assert "no truth value before `async for`" in (await failure(client.call("BeforeLlmRequest", before)))[1]
        response = plugin_pb2.BeforeResponseRequest(call=call_of("d"), payload=types_pb2.BeforeResponsePayload())
        status, message = await failure(client.call("BeforeResponse", response))
        assert (status, message) == (
            "ABORTED",
            "RuntimeError: wait is for plain functions: use await in a coroutine",
        )


async def test_a_plain_function_that_raises_stop_iteration_fails_its_call_and_does_not_hang() -> None:
    plugin = Plugin("rules", version="1.0.0")

    @plugin.before_tool_call
    def first_rule(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        rules: list[ToolCallReply] = []
        return next(iter(rules))

    async with served(plugin) as (client, _):
        await client.initialize()
        assert await failure(client.tool_call()) == ("ABORTED", "RuntimeError: the handler raised StopIteration")


async def test_what_initialize_made_is_shut_down_if_the_tools_fail() -> None:
    shut_down: list[str] = []

    def fail(config: None, state: str) -> list[Tool[Any]]:
        raise ValueError("no tools")

    plugin = Plugin("tools", version="1.0.0", tools=fail, tool_names=["tools.*"])

    @plugin.initialize
    async def start(config: None, host: Host) -> str:
        return "pool"

    @plugin.shutdown
    async def stop(state: str) -> None:
        shut_down.append(state)

    async with served(plugin) as (client, _):
        assert "no tools" in (await failure(client.initialize()))[1]
        assert shut_down == ["pool"]
