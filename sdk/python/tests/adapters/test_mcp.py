"""MCP clients and servers behind the gateway, each with the real library at both ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pytest
from mcp import Client
from mcp.server import MCPServer, Server, ServerRequestContext
from mcp.server.extension import Extension
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListToolsResult,
    Request,
    TaskMetadata,
    TextContent,
    Tool,
)
from pydantic import BaseModel
from support.fake_gateway import FakeGateway
from support.points import PointReply, Points, answer, block, hang, outage, patch, replace_text

from hookgate.adapters._function_tool import guard_tool
from hookgate.adapters.mcp import BLOCKED_CODE, NO_DECISION_CODE, find_gateway_error, guard_client, guard_server
from hookgate.agent import Blocked, NoDecision, call_context
from hookgate.agent import sync as blocking

Side: TypeAlias = Literal["client", "server"]
Mode: TypeAlias = Literal["legacy", "auto"]


@pytest.fixture(params=["client", "server"])
def side(request: pytest.FixtureRequest) -> Side:
    return "client" if request.param == "client" else "server"


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> Mode:
    """Protocol of 2025, or of 2026."""
    return "legacy" if request.param == "legacy" else "auto"


class Number(BaseModel):
    number: int


@dataclass
class Peers:
    """A client that is connected to a server with the tools `read` and `safe_read`."""

    client: Client
    server: MCPServer[Any]
    paths: list[str] = field(default_factory=list)
    """Those that `read` got."""

    async def read(self, name: str = "read") -> CallToolResult:
        return await self.client.call_tool(name, {"path": "/etc/hosts"})


def content_of(path: str) -> str:
    return f"the content of {path}"


@asynccontextmanager
async def peers(
    points: Points, side: Side, mode: Mode = "auto", read: Callable[[str], object] = content_of, **options: Any
) -> AsyncIterator[Peers]:
    """Both ends of a connection, of which one is guarded. The tools are registered afterwards."""
    server = MCPServer[Any]("test", **options)
    both = Peers(Client(server, mode=mode), server)
    if side == "server":
        assert guard_server(points.agent, server) is server

    @server.tool(name="read", structured_output=False)
    def tool(path: str) -> Any:
        both.paths.append(path)
        return read(path)

    @server.tool(structured_output=False)
    def safe_read(path: str) -> str:
        return f"safe {path}"

    async with points.agent, both.client:
        if side == "client":
            assert guard_client(points.agent, both.client) is both.client
        yield both


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return f"error {content.text}" if result.is_error else content.text


async def test_an_allowed_call_passes_both_points_and_nothing_changes(
    fake_gateway: FakeGateway, side: Side, mode: Mode
) -> None:
    points = Points(fake_gateway)
    async with peers(points, side, mode) as both:
        with call_context(session_id="s-1"):
            result = await both.read()
    assert text(result) == "the content of /etc/hosts"
    assert both.paths == ["/etc/hosts"]
    assert points.names == ["BeforeToolCall", "AfterToolResult"]
    [before] = points.payloads("BeforeToolCall")
    assert before["tool_name"] == "read"
    assert before["args"] == {"path": "/etc/hosts"}
    assert isinstance(before.get("call_id"), str) is (side == "server")
    [after] = points.payloads("AfterToolResult")
    assert isinstance(after["result"], dict)
    assert after["result"]["content"] == [{"type": "text", "text": "the content of /etc/hosts"}]
    assert after["success"] is True
    assert side == "server" or points.sessions() == ["s-1", "s-1"]


async def test_rewritten_arguments_are_what_the_tool_gets_after_validation(
    fake_gateway: FakeGateway, side: Side
) -> None:
    points = Points(fake_gateway, before_tool_call=patch(args={"path": "/tmp/a"}))
    async with peers(points, side) as both:
        assert text(await both.read()) == "the content of /tmp/a"
        Points(fake_gateway, before_tool_call=patch(args={"path": 5}))
        assert text(await both.read()).startswith("error Error executing tool read")
    assert both.paths == ["/tmp/a"]


async def test_arguments_that_are_no_object_fail(fake_gateway: FakeGateway, side: Side) -> None:
    points = Points(fake_gateway, before_tool_call=patch(args=["/tmp/a"]))
    async with peers(points, side) as both:
        with pytest.raises(Exception, match=r"no object|Internal server error"):
            await both.read()
    assert both.paths == []


async def test_a_renamed_call_runs_the_other_tool(fake_gateway: FakeGateway, side: Side) -> None:
    points = Points(fake_gateway, before_tool_call=patch(tool_name="safe_read"))
    async with peers(points, side) as both:
        assert text(await both.read()) == "safe /etc/hosts"
    assert both.paths == []


async def test_a_rewritten_result_is_what_the_client_gets(fake_gateway: FakeGateway, side: Side, mode: Mode) -> None:
    points = Points(fake_gateway, after_tool_result=replace_text("/etc/hosts", "[X]"))
    async with peers(points, side, mode) as both:
        assert text(await both.read()) == "the content of [X]"


@pytest.mark.parametrize(
    ("value", "content", "structured"),
    [
        ({"content": [{"type": "text", "text": "whole"}]}, "whole", None),
        ({"id": 9007199254740993}, '{"id":9007199254740993}', {"id": 9007199254740993}),
        ("cached", "cached", None),
        (None, "null", None),
        (False, "false", None),
    ],
)
async def test_an_answer_of_a_plugin_replaces_the_tool(
    fake_gateway: FakeGateway, side: Side, mode: Mode, value: Any, content: str, structured: object
) -> None:
    points = Points(fake_gateway, before_tool_call=answer(value))
    async with peers(points, side, mode) as both:
        result = await both.read()
    assert text(result) == content
    assert result.structured_content == structured
    assert both.paths == []
    assert points.names == ["BeforeToolCall", "AfterToolResult"]


async def test_an_answer_that_is_no_result_of_mcp_fails(fake_gateway: FakeGateway, side: Side) -> None:
    points = Points(fake_gateway, before_tool_call=answer({"content": [{"type": "nonsense"}]}))
    async with peers(points, side) as both:
        with pytest.raises(Exception, match=r"none of MCP|Internal server error"):
            await both.read()


async def test_a_tool_that_raises_is_told_as_a_failure(fake_gateway: FakeGateway, side: Side) -> None:
    def fail(path: str) -> object:
        from mcp.server.mcpserver.exceptions import ToolError

        raise ToolError("no such file: /home/ada")

    points = Points(fake_gateway)
    async with peers(points, side, read=fail) as both:
        assert text(await both.read()) == "error Error executing tool read: no such file: /home/ada"
        assert points.payloads("AfterToolResult")[0]["success"] is False
        Points(fake_gateway, after_tool_result=replace_text("/home/ada", "[X]"))
        assert text(await both.read()) == "error Error executing tool read: no such file: [X]"


async def test_a_protocol_error_of_a_tool_is_told_as_a_failure(fake_gateway: FakeGateway, side: Side) -> None:
    def fail(path: str) -> object:
        raise MCPError(-32000, "no such file: /home/ada")

    points = Points(fake_gateway)
    async with peers(points, side, read=fail) as both:
        with pytest.raises(MCPError, match="no such file"):
            await both.read()
        assert points.payloads("AfterToolResult")[0]["result"] == "no such file: /home/ada"
        Points(fake_gateway, after_tool_result=patch(result="[X]"))
        assert text(await both.read()) == "error [X]"


async def test_a_url_elicitation_is_no_failure(fake_gateway: FakeGateway, side: Side) -> None:
    def ask(path: str) -> object:
        request = ElicitRequestURLParams(message="Log in", url="https://example.com/", elicitation_id="1")
        raise UrlElicitationRequiredError([request])

    points = Points(fake_gateway)
    async with peers(points, side, "legacy", read=ask) as both:
        with pytest.raises(MCPError, match="URL elicitation required"):
            await both.read()
    assert points.names == ["BeforeToolCall"]


@pytest.mark.parametrize("point", ["before_tool_call", "after_tool_result"])
async def test_the_message_of_a_block_is_an_error_result(
    fake_gateway: FakeGateway, side: Side, mode: Mode, point: str
) -> None:
    points = Points(fake_gateway, **{point: block("not on your plan")})
    async with peers(points, side, mode) as both:
        assert text(await both.read()) == "error not on your plan"
    is_before = point == "before_tool_call"
    assert len(both.paths) == (0 if is_before else 1)
    assert len(points.payloads("AfterToolResult")) == (0 if is_before else 1)


@pytest.mark.parametrize("reply", [block("stop", "run"), outage])
async def test_what_ends_a_run_within_a_servers_tool_is_an_error_and_no_result(
    fake_gateway: FakeGateway, mode: Mode, reply: PointReply
) -> None:
    points = Points(fake_gateway, before_tool_call=only_inner(reply))
    agent = blocking.Agent(fake_gateway.url, token="token")
    inner = guard_tool(agent, content_of, name="inner")
    async with peers(points, "server", mode, inner) as both:
        with pytest.raises(MCPError) as raised:
            await both.read()
    assert raised.value.code == (NO_DECISION_CODE if reply is outage else BLOCKED_CODE)
    assert "unix" not in raised.value.error.model_dump_json()
    assert points.payloads("AfterToolResult") == []


def only_inner(reply: PointReply) -> PointReply:
    """A reply about the tool `inner` alone."""
    return lambda response, values: reply(response, values) if values["tool_name"] == "inner" else response


@pytest.mark.parametrize("point", ["before_tool_call", "after_tool_result"])
@pytest.mark.parametrize("reply", [block("stop", "run"), outage])
async def test_a_block_of_the_run_and_a_missing_decision_are_errors(
    fake_gateway: FakeGateway,
    side: Side,
    mode: Mode,
    point: str,
    reply: PointReply,
    caplog: pytest.LogCaptureFixture,
) -> None:
    points = Points(fake_gateway, **{point: reply})
    is_outage = reply is outage
    async with peers(points, side, mode) as both:
        with pytest.raises(Exception, match=r"stop|no decision") as raised:
            await both.read()
    assert len(both.paths) == (0 if point == "before_tool_call" else 1)
    if side == "client":
        found = find_gateway_error(raised.value)
        assert isinstance(found, NoDecision if is_outage else Blocked)
        return
    assert isinstance(raised.value, MCPError)
    assert raised.value.code == (NO_DECISION_CODE if is_outage else BLOCKED_CODE)
    assert "unix" not in raised.value.error.model_dump_json()
    assert ("unix:///p" in caplog.text) is is_outage


async def test_a_request_past_call_tool_is_guarded(fake_gateway: FakeGateway) -> None:
    class OwnRequest(Request[dict[str, Any], Literal["tools/call"]]):
        method: Literal["tools/call"] = "tools/call"

    points = Points(fake_gateway, before_tool_call=block("no"))
    params = {"name": "read", "arguments": {"path": "a"}}
    async with peers(points, "client") as both:
        session = both.client.session
        request = CallToolRequest(params=CallToolRequestParams.model_validate(params))
        assert text(await session.send_request(request, CallToolResult)) == "error no"
        assert text(await session.send_request(OwnRequest(params=params), CallToolResult)) == "error no"
        await session.call_tool("read", {"path": "a"})
    assert points.names == ["BeforeToolCall"] * 3
    assert both.paths == []


async def test_other_requests_pass(fake_gateway: FakeGateway, side: Side, mode: Mode) -> None:
    points = Points(fake_gateway)
    async with peers(points, side, mode) as both:
        assert [tool.name for tool in (await both.client.list_tools()).tools] == ["read", "safe_read"]
    assert points.names == []


async def test_results_of_plugins_need_not_fit_the_schema_of_the_tool_but_those_of_tools_do(
    fake_gateway: FakeGateway,
) -> None:
    server = MCPServer[Any]("test")
    server.add_tool(lambda: Number(number=1), name="one", structured_output=False)

    @server.tool()
    def two() -> Number:
        return Number(number=2)

    points = Points(fake_gateway, before_tool_call=patch(tool_name="two"))
    async with points.agent, Client(server) as client:
        guard_client(points.agent, client)
        assert (await client.call_tool("one", {})).structured_content == {"number": 2}
        Points(fake_gateway, before_tool_call=answer("none"))
        assert text(await client.call_tool("two", {})) == "none"
        Points(fake_gateway, before_tool_call=patch(tool_name="one"))
        assert json.loads(text(await client.call_tool("two", {}))) == {"number": 1}


async def test_cancelling_a_call_cancels_the_one_of_the_gateway(fake_gateway: FakeGateway, side: Side) -> None:
    points = Points(fake_gateway, before_tool_call=hang)
    async with peers(points, side) as both:
        running = asyncio.create_task(both.read())
        assert await asyncio.to_thread(fake_gateway.arrived.acquire, timeout=10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(fake_gateway.calls[0].ended.wait, 10)
    assert both.paths == []


def low_level(result: Any, calls: list[str]) -> Server[Any]:
    """A server without `MCPServer` around it."""

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> Any:
        calls.append(params.name)
        return result

    async def list_tools(context: ServerRequestContext[Any], params: object) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="any", input_schema={"type": "object"})])

    return Server[Any]("test", on_call_tool=call_tool, on_list_tools=list_tools)


SECRET = CallToolResult(content=[TextContent(type="text", text="a secret")])


@pytest.mark.parametrize("result", [SECRET, SECRET.model_dump(by_alias=True, mode="json", exclude_none=True)])
async def test_a_low_level_server_is_guarded(fake_gateway: FakeGateway, result: Any, mode: Mode) -> None:
    points = Points(fake_gateway, after_tool_result=replace_text("secret", "[X]"))
    calls: list[str] = []
    server = guard_server(points.agent, low_level(result, calls))
    async with points.agent, Client(server, mode=mode) as client:
        assert text(await client.call_tool("any", {})) == "a [X]"
        Points(fake_gateway)
        assert text(await client.call_tool("any", {})) == "a secret"
    assert calls == ["any", "any"]


async def test_a_handler_that_is_set_later_is_guarded(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_tool_call=block("no"))
    calls: list[str] = []
    server = guard_server(points.agent, low_level(SECRET, calls))
    entry = low_level(SECRET, calls).get_request_handler("tools/call")
    assert entry is not None
    server.add_request_handler("tools/call", CallToolRequestParams, entry.handler)
    async with points.agent, Client(server) as client:
        assert text(await client.call_tool("any", {})) == "error no"
    assert calls == []


async def test_an_interceptor_that_answers_calls_is_guarded(fake_gateway: FakeGateway) -> None:
    class Cache(Extension):
        identifier = "com.example/cache"

        async def intercept_tool_call(self, params: CallToolRequestParams, ctx: Any, call_next: Any) -> Any:
            return SECRET

    points = Points(fake_gateway, after_tool_result=replace_text("secret", "[X]"))
    async with peers(points, "server", extensions=[Cache()]) as both:
        assert text(await both.read()) == "a [X]"
    assert points.names == ["BeforeToolCall", "AfterToolResult"]


async def test_calls_as_tasks_are_refused(fake_gateway: FakeGateway, side: Side) -> None:
    points = Points(fake_gateway)
    params = CallToolRequestParams(name="read", arguments={"path": "a"}, task=TaskMetadata(ttl=1000))
    async with peers(points, side, "legacy") as both:
        with pytest.raises(MCPError, match="the tool read can't run as a task"):
            await both.client.session.send_request(CallToolRequest(params=params), CallToolResult)
    assert points.names == []
    assert both.paths == []


async def test_results_that_come_later_are_refused(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway)
    for result in ({"resultType": "task", "taskId": "1", "content": []}, {"task": {"taskId": "1"}}):
        server = guard_server(points.agent, low_level(result, []))
        async with Client(server) as client:
            with pytest.raises(MCPError, match="the tool any gave no complete result"):
                await client.call_tool("any", {})
    await points.agent.close()


async def test_a_call_that_needs_more_input_is_judged_again_with_it(fake_gateway: FakeGateway, side: Side) -> None:
    points = Points(fake_gateway)
    calls: list[object] = []

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> Any:
        calls.append(params.request_state)
        if params.request_state is None:
            return InputRequiredResult(request_state="1")
        return SECRET

    server = low_level(SECRET, [])
    server.add_request_handler("tools/call", CallToolRequestParams, call_tool)
    if side == "server":
        guard_server(points.agent, server)
    async with points.agent, Client(server) as client:
        if side == "client":
            guard_client(points.agent, client)
        assert text(await client.call_tool("any", {})) == "a secret"
    assert calls == [None, "1"]
    assert points.names == ["BeforeToolCall", "BeforeToolCall", "AfterToolResult"]


async def test_a_client_without_a_session_is_refused(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway)
    with pytest.raises(RuntimeError, match="within an async context"):
        guard_client(points.agent, Client(MCPServer[Any]("test")))
