"""Functions that are tools behind the gateway, for code that runs them itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

import pytest
from support.fake_gateway import FakeGateway
from support.points import PointReply, Points, answer, block, for_tool, outage, patch

from hookgate.adapters._function_tool import ToolError, guard_tool
from hookgate.adapters._guard import PatchError
from hookgate.agent import Blocked, NoDecision
from hookgate.agent import sync as blocking

Mode: TypeAlias = Literal["async", "blocking", "threads"]


@pytest.fixture(params=["async", "blocking", "threads"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return cast("Mode", request.param)


class Tool:
    """A function behind a gateway."""

    def __init__(
        self, gateway: FakeGateway, mode: Mode, execute: Callable[[str], object] | None = None, **replies: Any
    ) -> None:
        self.points = Points(gateway, **replies)
        self.calls: list[tuple[str, dict[str, object]]] = []
        self._is_async = mode != "blocking"
        agent = self.points.agent if mode == "async" else blocking.Agent(gateway.url, token="token")

        def read(path: str, **more: object) -> object:
            self.calls.append((path, more))
            return execute(path) if execute else f"the {path}"

        async def read_async(path: str, **more: object) -> object:
            return read(path, **more)

        self._function: Any = guard_tool(agent, name="read")(read_async if self._is_async else read)

    async def call(self, *args: object, **kwargs: object) -> object:
        result = self._function(*args, **kwargs)
        return await result if self._is_async else result


async def test_a_guarded_function_is_judged_before_and_after(fake_gateway: FakeGateway, mode: Mode) -> None:
    tool = Tool(fake_gateway, mode)
    assert await tool.call("a", depth=2) == "the a"
    assert tool.calls == [("a", {"depth": 2})]
    assert tool.points.payloads("BeforeToolCall") == [{"tool_name": "read", "args": {"path": "a", "depth": 2}}]
    after = tool.points.payloads("AfterToolResult")[0]
    assert (after["result"], after["success"]) == ("the a", True)


async def test_a_guarded_function_gets_and_gives_what_plugins_left(fake_gateway: FakeGateway, mode: Mode) -> None:
    replies: dict[str, PointReply] = {
        "before_tool_call": patch(args={"path": "b"}),
        "after_tool_result": patch(result=[1]),
    }
    tool = Tool(fake_gateway, mode, **cast("Any", replies))
    assert (await tool.call("a"), tool.calls) == ([1], [("b", {})])
    given = Tool(fake_gateway, mode, before_tool_call=answer({"id": 1}))
    assert (await given.call("a"), given.calls) == ({"id": 1}, [])
    for reply in (patch(tool_name="write"), patch(args=[1])):
        refused = Tool(fake_gateway, mode, before_tool_call=reply, after_tool_result=patch(result="redacted"))
        with pytest.raises(PatchError):
            await refused.call("a")
        assert refused.calls == []
        assert refused.points.names[-1] == "BeforeToolCall"


async def test_what_a_guarded_function_raises(fake_gateway: FakeGateway, mode: Mode) -> None:
    def fail(_: str) -> object:
        raise FileNotFoundError("no such file: /home/ada")

    with pytest.raises(FileNotFoundError):
        await Tool(fake_gateway, mode, fail).call("a")
    with pytest.raises(ToolError, match=r"^no such file$"):
        await Tool(fake_gateway, mode, fail, after_tool_result=patch(result="no such file")).call("a")
    for scope in ("step", "run"):
        blocked = Tool(fake_gateway, mode, before_tool_call=block("not on your plan", scope))
        with pytest.raises(Blocked, match="not on your plan") as caught:
            await blocked.call("a")
        assert (caught.value.scope, blocked.calls) == (scope, [])
    with pytest.raises(Blocked):
        await Tool(fake_gateway, mode, after_tool_result=block("secret")).call("a")
    for point in ("before_tool_call", "after_tool_result"):
        with pytest.raises(NoDecision):
            await Tool(fake_gateway, mode, **cast("Any", {point: outage})).call("a")
    with pytest.raises(ValueError, match="result"):
        await Tool(fake_gateway, mode, lambda _: iter(())).call("a")


async def test_a_guarded_function_within_another_fails_it_by_a_step_and_ends_the_run_otherwise(
    fake_gateway: FakeGateway,
) -> None:
    for reply, results in ((block("no"), ["no"]), (block("no", "run"), []), (outage, [])):
        points = Points(fake_gateway, before_tool_call=for_tool("inner", reply))
        inner = guard_tool(points.agent, inner_tool, name="inner")
        outer = guard_tool(points.agent, inner, name="outer")
        with pytest.raises((Blocked, NoDecision)):
            await outer()
        assert [told["result"] for told in points.payloads("AfterToolResult")] == results
        fake_gateway.calls.clear()


async def test_what_ends_a_run_within_a_function_is_raised_whatever_the_function_makes_of_it(
    fake_gateway: FakeGateway, mode: Mode
) -> None:
    inner = guard_tool(blocking.Agent(fake_gateway.url, token="token"), lambda: None, name="inner")

    def catch(_: str) -> object:
        with pytest.raises(NoDecision):
            inner()
        return "never mind"

    tool = Tool(fake_gateway, mode, catch, before_tool_call=for_tool("inner", outage))
    with pytest.raises(NoDecision):
        await tool.call("a")
    assert tool.points.payloads("AfterToolResult") == []


async def inner_tool() -> None:
    """Never runs."""
    raise AssertionError


def test_a_function_that_cant_be_judged_is_refused(fake_gateway: FakeGateway) -> None:
    agent = Points(fake_gateway).agent

    async def many() -> Any:
        yield 1

    async def unnamed(*paths: str) -> None: ...

    for function in (many, unnamed):
        with pytest.raises(TypeError, match=r"generator|no name"):
            guard_tool(agent, function)
