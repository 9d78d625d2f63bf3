"""Tools and hooks of a plugin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from support.gateway_client import failure, served

from hookgate import (
    Context,
    Contribution,
    HookPayload,
    HookReply,
    Host,
    JsonObject,
    Notice,
    Plugin,
    Reply,
    Tool,
    ToolAnnotations,
    ToolError,
    cancel,
    contribute,
    proceed,
    tool,
)
from hookgate.hook import RecallBody


class Division(BaseModel, extra="forbid"):
    a: float
    b: float


def tools_plugin() -> Plugin[None, None]:
    plugin = Plugin("p", version="1.0.0")

    @plugin.tool("p.divide", annotations=ToolAnnotations(title="Divide", read_only_hint=True))
    async def divide(args: Division, ctx: Context) -> JsonObject:
        """Divides."""
        if args.b == 0:
            raise ToolError(f"{ctx.tenant} divides by zero.", "DIVIDED_BY_ZERO")
        if args.a < 0:
            raise RuntimeError("broken")
        return {"quotient": args.a / args.b}

    @plugin.tool("p.greet", description="Greets.")
    def greet(name: Annotated[str, Field(description="Who.")], schema: int = 2, *, copy: bool = False) -> str:
        return f"{name} {schema} {copy}"

    @plugin.tool("p.refuse", description="Refuses.")
    async def refuse() -> Reply[Any]:
        return cancel("FORBIDDEN", "no")

    @plugin.tool("p.proceed", description="Errs.")
    async def err() -> Reply[Any]:
        return proceed()

    return plugin


async def test_tools_are_listed_with_the_schemas_of_their_arguments() -> None:
    async with served(tools_plugin()) as (client, _):
        assert list((await client.describe()).tools) == ["p.divide", "p.greet", "p.refuse", "p.proceed"]
        divide, greet, refuse, _ = (await client.initialize()).tools
        assert (divide.name, divide.description) == ("p.divide", "Divides.")
        assert (divide.annotations.title, divide.annotations.read_only_hint) == ("Divide", True)
        assert not divide.annotations.HasField("destructive_hint")
        assert json.loads(divide.input_schema)["required"] == ["a", "b"]
        schema = json.loads(greet.input_schema)
        assert not greet.HasField("annotations")
        assert (schema["type"], schema["required"], schema["additionalProperties"]) == ("object", ["name"], False)
        assert schema["properties"]["name"] == {"description": "Who.", "title": "Name", "type": "string"}
        assert schema["properties"]["schema"]["default"] == 2
        assert json.loads(refuse.input_schema)["properties"] == {}


async def test_tools_run_with_checked_arguments_and_fail_for_the_model() -> None:
    async with served(tools_plugin()) as (client, _):
        await client.initialize()

        async def run(name: str, args: object) -> tuple[str, str, bytes]:
            cancelled = (await client.tool_call(name, args, run_tool=True)).cancel
            return cancelled.code, cancelled.message, cancelled.result

        assert await run("p.divide", {"a": 6, "b": 3}) == ("", "", b'{"quotient":2.0}')
        assert await run("p.divide", {"a": 6, "b": 0}) == ("DIVIDED_BY_ZERO", "acme divides by zero.", b"")
        assert await run("p.greet", {"name": "Ada", "copy": True}) == ("", "", b'"Ada 2 True"')
        assert await run("p.refuse", {}) == ("FORBIDDEN", "no", b"")
        wrong = await run("p.divide", {"a": "x", "b": 1, "c": 1})
        assert wrong[0] == "TOOL_ARGS_INVALID"
        assert wrong[1].startswith("The arguments are wrong: field `a`: Input should be a valid number, ")
        assert wrong[1].endswith("; field `c`: Extra inputs are not permitted")
        assert (await run("p.greet", {}))[1] == "The arguments are wrong: field `name`: Field required"
        assert (await run("p.greet", [1]))[0] == "TOOL_ARGS_INVALID"


async def test_a_broken_tool_an_unknown_one_and_one_that_is_only_called_are_errors() -> None:
    async with served(tools_plugin()) as (client, _):
        await client.initialize()
        broken = client.tool_call("p.divide", {"a": -1, "b": 1}, run_tool=True)
        assert await failure(broken) == ("ABORTED", "RuntimeError: broken")
        unknown = client.tool_call("p.multiply", {}, run_tool=True)
        assert await failure(unknown) == ("NOT_FOUND", "p does not provide the tool p.multiply")
        assert (await failure(client.tool_call("p.proceed", {}, run_tool=True)))[0] == "INTERNAL"
        called = client.tool_call("p.divide", {"a": 1, "b": 1})
        assert await failure(called) == ("UNIMPLEMENTED", "p does not answer at before_tool_call")


async def test_a_decorated_tool_can_be_called_in_a_test() -> None:
    @tool("p.add", description="Adds.")
    async def add(a: int, b: int) -> int:
        return a + b

    assert await add.function(1, b=2) == 3


class Names(BaseModel):
    names: list[str]


async def test_tools_may_depend_on_the_configuration_each_instance_with_its_own() -> None:
    def make(config: Names, state: str) -> Sequence[Tool[Any]]:
        def made(name: str) -> Tool[Any]:
            return tool(f"p.{name}", description=state)(lambda: name)

        return [made(name) for name in config.names]

    plugin = Plugin("p", version="1.0.0", config=Names, tools=make, tool_names=["p.*"])

    @plugin.initialize
    async def start(config: Names, host: Host) -> str:
        return "state"

    async with served(plugin) as (client, _):
        one = await client.initialize("one", {"names": ["a"]})
        two = await client.initialize("two", {"names": ["b", "c"]})
        assert [[it.name for it in tools] for tools in (one.tools, two.tools)] == [["p.a"], ["p.b", "p.c"]]
        assert one.tools[0].description == "state"
        assert (await client.tool_call("p.c", {}, digest="two", run_tool=True)).cancel.result == b'"c"'


async def test_a_hook_contributes_and_others_are_not_offered() -> None:
    plugin = Plugin("p", version="1.0.0")

    @plugin.hook("recall")
    async def recall(call: HookPayload[RecallBody], ctx: Context) -> HookReply:
        message = call.body["message"]
        if message == "odd":
            return contribute([("memory", 1)])  # type: ignore[list-item]
        return contribute([Contribution("memory", {"content": message})], notices=[Notice("info", call.hook)])

    @plugin.hook("forgotten")
    async def forgotten(call: HookPayload, ctx: Context) -> HookReply:
        return None  # type: ignore[return-value]

    async with served(plugin) as (client, _):
        await client.initialize()
        reply = await client.on_hook("recall", {"message": "hi"})
        assert [(it.kind, it.value) for it in reply.contributions] == [("memory", b'{"content":"hi"}')]
        assert [notice.message for notice in reply.notices] == ["recall"]
        odd = await failure(client.on_hook("recall", {"message": "odd"}))
        assert odd == ("ABORTED", "TypeError: contributions[0] is no Contribution")
        status, message = await failure(client.on_hook("forgotten", {}))
        assert (status, message) == (
            "INTERNAL",
            "the handler of forgotten returned None: return what contribute() makes",
        )
        assert await failure(client.on_hook("other", {})) == ("UNIMPLEMENTED", "p does not answer at other")


async def test_a_field_as_the_default_of_a_parameter_is_its_default_and_its_limits() -> None:
    plugin = Plugin("p", version="1.0.0")

    @plugin.tool("p.page", description="Pages.")
    async def page(
        first: int = Field(10, le=100, description="How many."),
        tags: list[str] = Field(default_factory=list),  # noqa: B008
        size: Annotated[int, Field(ge=1)] = Field(2, le=3),
        name: str = Field(min_length=2),
    ) -> JsonObject:
        return {"first": first, "tags": [*tags], "size": size, "name": name}

    async with served(plugin) as (client, _):
        schema = json.loads((await client.initialize()).tools[0].input_schema)
        assert schema["required"] == ["name"]
        first = {"default": 10, "description": "How many.", "maximum": 100, "title": "First", "type": "integer"}
        assert schema["properties"]["first"] == first
        assert (schema["properties"]["size"]["minimum"], schema["properties"]["size"]["maximum"]) == (1, 3)
        result = (await client.tool_call("p.page", {"name": "ab"}, run_tool=True)).cancel.result
        assert json.loads(result) == {"first": 10, "tags": [], "size": 2, "name": "ab"}
        for wrong in ({"first": 101}, {"size": 0}, {"size": 4}, {"name": "a"}):
            refused = (await client.tool_call("p.page", {"name": "ab", **wrong}, run_tool=True)).cancel
            assert refused.code == "TOOL_ARGS_INVALID", wrong


def test_a_type_that_is_not_there_at_run_time_is_named() -> None:
    async def run(a: int, ctx: Missing) -> int:  # type: ignore[name-defined] # noqa: F821
        return a

    with pytest.raises(TypeError, match=r"the tool p.t: name 'Missing' is not defined; import it at run time"):
        tool("p.t", description="d")(run)
