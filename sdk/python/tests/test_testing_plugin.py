"""The test kit: calls of a plugin as a gateway makes them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import BaseModel, SecretStr

from hookgate import (
    AfterToolResult,
    BeforeLlmRequest,
    BeforeResponse,
    BeforeToolCall,
    Cancel,
    Context,
    Contribution,
    HookPayload,
    HookReply,
    LlmRequestReply,
    Media,
    Notice,
    Offer,
    Plugin,
    PluginError,
    Reply,
    ResponseReply,
    TokenUsage,
    Tool,
    ToolAnnotations,
    ToolCallReply,
    ToolError,
    ToolResultReply,
    answer,
    cancel,
    contribute,
    proceed,
    tool,
)
from hookgate._proto import plugin_pb2, types_pb2
from hookgate.testing import CallError, TestPlugin
from hookgate.testing._glob import compile_glob
from hookgate.testing._manifest_rules import check_manifest, check_tools

Code = grpc.StatusCode
_TABLE = Path(__file__).parents[3] / "glob/table.json"


class Config(BaseModel, extra="forbid"):
    refused: list[str] = []


class TenantConfig(BaseModel, extra="forbid"):
    suffix: str = ""


async def failure_of(call: Any) -> CallError:
    with pytest.raises(CallError) as failure:
        await call
    return failure.value


async def started(handler: Callable[..., Any], **members: Any) -> TestPlugin:
    """A plugin with a handler at `before_tool_call`."""
    plugin: Plugin[None, None] = Plugin("p", version="1.0.0", **members)
    plugin.before_tool_call(handler)
    return await TestPlugin.start(plugin)


def everything() -> Plugin[Config, TenantConfig]:
    plugin = Plugin("p", version="1.0.0", config=Config, tenant_config=TenantConfig)

    @plugin.before_llm_request
    async def request(call: BeforeLlmRequest, ctx: Context[Config, TenantConfig]) -> LlmRequestReply:
        images = [Media(mime_type="image/png", data=b"\x00"), *call.images]
        messages = [*(call.messages or ()), 1 << 60]
        return proceed({"text": call.text.strip(), "images": images, "messages": messages, "extra": {"seen": True}})

    @plugin.before_tool_call
    async def tool_call(call: BeforeToolCall, ctx: Context[Config, TenantConfig]) -> ToolCallReply:
        if call.tool_name in ctx.config.refused:
            return cancel("NO", "no", scope="run", retry_after_ms=1.5)
        if call.tool_name == "cached":
            return answer(call.args)
        return proceed({"args": {"args": call.args, "suffix": ctx.tenant_config.suffix}})

    @plugin.after_tool_result
    def result(call: AfterToolResult, ctx: Context[Config, TenantConfig]) -> ToolResultReply:
        return proceed({"result": [call.success, call.duration_ms, call.result, call.has_args, call.args]})

    @plugin.before_response
    async def response(call: BeforeResponse, ctx: Context[Config, TenantConfig]) -> ResponseReply:
        notices = [Notice("info", "", "A", {"n": 1}), Notice("warn", "b")]
        usage = call.token_usage
        return proceed({"content": f"{call.content}{usage and usage.input}"}, notices=notices)

    return plugin


async def test_calls_reach_the_handlers_and_replies_are_read_as_they_were_written() -> None:
    plugin = await TestPlugin.start(everything(), Config(refused=["shell"]))
    image = Media(mime_type="image/png", url="u", filename="f")
    request = await plugin.before_llm_request(" hi ", messages=["m"], images=[image])
    assert request == Reply(
        None,
        {
            "text": "hi",
            "images": [Media(mime_type="image/png", data=b"\x00"), image],
            "messages": ["m", 1 << 60],
            "extra": {"seen": True},
        },
        [],
    )
    refused = await plugin.before_tool_call("shell")
    assert refused.cancelled == Cancel("NO", "no", "run", 2)
    assert not refused.cancelled.is_answer
    for result in ([1], None):
        cached = (await plugin.before_tool_call("cached", result)).cancelled
        assert cached is not None
        assert cached.is_answer
        assert cached.result == result
    call = await plugin.with_tenant_config(TenantConfig(suffix="!")).before_tool_call("t", {"id": 2**60})
    assert (call.cancelled, call.patch) == (None, {"args": {"args": {"id": 2**60}, "suffix": "!"}})
    assert (await plugin.before_tool_call("t")).patch == {"args": {"args": {}, "suffix": ""}}
    told = await plugin.after_tool_result("t", "r", duration_ms=7, args=None)
    assert told.patch == {"result": [True, 7, "r", True, None]}
    untold = await plugin.after_tool_result("t", success=False)
    assert untold.patch == {"result": [False, None, None, False, None]}
    response = await plugin.before_response("c", token_usage=TokenUsage(3, 4))
    assert response.patch == {"content": "c3"}
    assert response.notices == [Notice("info", "", "A", {"n": 1}), Notice("warn", "b")]


async def test_handles_differ_in_their_context() -> None:
    async def tell(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        who = ctx.caller
        seen = [ctx.tenant, ctx.operator, ctx.request_id, who.session_id, dict(who.labels), ctx.depth]
        end = (result := ctx.chain_result) and [result.decision, result.plugin, result.code]
        return proceed({"args": [*seen, ctx.traceparent, who.exchange_id, who.replay, who.part, ctx.time_left_ms, end]})

    plugin = await started(tell)

    async def facts_of(handle: TestPlugin) -> Any:
        return ((await handle.before_tool_call("t")).patch or {}).get("args")

    first = ["test-tenant", "test-operator", "01930000-0000-7000-8000-000000000000", None]
    assert await facts_of(plugin) == [*first, {}, 1, None, None, False, False, None, None]
    assert (await facts_of(plugin.with_context(part=True)))[8:10] == [False, True]
    other = plugin.with_tenant("acme").with_context(session_id="s", operator="Ada", labels={"a": "b"})
    traced = other.with_context(traceparent="00-a-b-01", request_id="r", exchange_id="e", replay=True)
    assert await facts_of(traced) == ["acme", "Ada", "r", "s", {"a": "b"}, 1, "00-a-b-01", "e", True, False, None, None]
    assert (await facts_of(plugin.with_chain_result("block", code="NO")))[-1] == ["block", None, "NO"]
    assert (await facts_of(plugin.with_chain_result(None, plugin="p")))[-1] == [None, "p", None]
    assert 0 < (await facts_of(plugin.with_time_left(60_000)))[-2] <= 60_000
    with pytest.raises(TypeError, match="a context has no member 'session'"):
        plugin.with_context(session="s")


async def test_a_call_ends_with_its_time_or_its_task() -> None:
    ends: list[str] = []
    began = asyncio.Event()

    async def wait(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        try:
            began.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append(call.tool_name)
            raise
        return proceed()

    plugin = await started(wait)
    late = await failure_of(plugin.with_time_left(20).before_tool_call("late"))
    assert (late.code, str(late)) == (Code.DEADLINE_EXCEEDED, "no reply within 20 ms")
    began.clear()
    calling = asyncio.ensure_future(plugin.before_tool_call("hung up"))
    await began.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert ends == ["late", "hung up"]


async def test_a_cancellation_within_the_plugin_is_an_error_of_the_plugin() -> None:
    async def wait_for_the_cancelled(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        raise asyncio.CancelledError

    plugin = await started(wait_for_the_cancelled)
    assert (await failure_of(plugin.before_tool_call("t"))).code is Code.ABORTED


async def test_errors_have_the_code_that_a_gateway_sees_and_their_cause() -> None:
    errors: dict[str, Exception] = {
        "broken": TypeError("broken"),
        "away": PluginError.unavailable("away"),
        "odd": PluginError.invalid("odd"),
    }

    async def fail(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        raise errors[call.tool_name]

    plugin = await started(fail)
    expected = {
        "broken": (Code.ABORTED, "TypeError: broken"),
        "away": (Code.UNAVAILABLE, "away"),
        "odd": (Code.INVALID_ARGUMENT, "odd"),
    }
    for name, error in errors.items():
        failure = await failure_of(plugin.before_tool_call(name))
        assert (failure.code, str(failure)) == expected[name]
        assert failure.__cause__ is error
    elsewhere = await failure_of(plugin.before_response(""))
    assert (elsewhere.code, str(elsewhere)) == (Code.UNIMPLEMENTED, "p does not answer at before_response")
    hook = await failure_of(plugin.on_hook("recall"))
    assert (hook.code, str(hook)) == (Code.UNIMPLEMENTED, "p does not answer at recall")
    missing = await failure_of(plugin.run_tool("t"))
    assert (missing.code, str(missing)) == (Code.NOT_FOUND, "p does not provide the tool t")
    await plugin.shutdown()
    shut_down = await failure_of(plugin.before_tool_call("odd"))
    assert (shut_down.code, str(shut_down)) == (Code.FAILED_PRECONDITION, "no instance for this config digest")


@pytest.mark.parametrize("returned", [None, True, {}, "proceed"])
async def test_what_is_no_reply_is_an_error_and_never_a_pass(returned: object) -> None:
    async def handle(call: BeforeToolCall, ctx: Context) -> object:
        return returned

    plugin = await started(handle)
    failure = await failure_of(plugin.before_tool_call("t"))
    assert failure.code is Code.INTERNAL


class Keyed(BaseModel, extra="forbid"):
    key: SecretStr


async def test_a_start_fails_as_a_gateways_does() -> None:
    plugin = Plugin("p", version="1.0.0", config=Keyed)
    plugin.before_tool_call(lambda call, ctx: proceed())
    wrong = await failure_of(TestPlugin.start(plugin))
    assert wrong.code is Code.INVALID_ARGUMENT
    assert str(wrong).startswith("config: ")
    assert "key" in str(wrong)

    @plugin.initialize
    async def initialize(config: Keyed, host: object) -> None:
        if len(config.key.get_secret_value()) < 16:
            raise PluginError.config("key", "at least 16 characters")

    refused = await failure_of(TestPlugin.start(plugin, {"key": "a"}))
    assert (refused.code, str(refused)) == (Code.INVALID_ARGUMENT, "config field `key`: at least 16 characters")
    await TestPlugin.start(plugin, {"key": "a" * 16})


def manifest(**members: Any) -> plugin_pb2.DescribeResponse:
    offer = plugin_pb2.PointOffer(point=types_pb2.EXTENSION_POINT_BEFORE_RESPONSE)
    right: dict[str, Any] = {"name": "p", "version": "1.0.0", "points": [offer]}
    return plugin_pb2.DescribeResponse(**{**right, **members})


def hooks(*names: str) -> list[plugin_pb2.HookOffer]:
    return [plugin_pb2.HookOffer(hook=name) for name in names]


def test_each_fault_of_a_manifest_is_named() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"capabilities": ["storage"]}, "`capabilities` has `storage`, which gateways don't have"),
        ({"points": []}, "the plugin offers no point, no hook and no tool"),
        ({"hooks": hooks("Recall")}, "`hooks` has `Recall`: the name of a hook is"),
        ({"hooks": hooks("before_response")}, "this is the name of a point"),
        ({"hooks": hooks(*(f"hook_{number}" for number in range(65)))}, "`hooks` has 65 hooks: keep it within 64"),
        ({"tools": ["*?"]}, "has only wildcards"),
        ({"tools": [""]}, "`tool_names` has ``: it is empty"),
        ({"tools": ["p.["]}, "`tool_names` has `p.[`: it has a `[` without its `]`"),
        ({"tools": ["p." + "a" * 127]}, "has a glob of more than 128 bytes"),
        ({"tools": [f"p.{number}" for number in range(65)]}, "`tool_names` has 65 globs: keep it within 64"),
        ({"config_schema": b'{"a":"' + b"x" * (64 << 10) + b'"}'}, "the JSON Schema of `config` is over 64 KiB"),
        (
            {"config_schema": b'{"properties":{"key":{}}}', "tenant_config_schema": b'{"properties":{"key":{}}}'},
            "`config` and `tenant_config` both have `key`: rename one",
        ),
    ]
    for members, expected in cases:
        with pytest.raises(CallError) as failure:
            check_manifest(manifest(**members))
        assert expected in str(failure.value)
        assert failure.value.code is Code.FAILED_PRECONDITION
    check_manifest(manifest(hooks=hooks("a", "b"), tools=["p.*"]))


async def test_a_plugin_whose_manifest_a_gateway_would_reject_does_not_start() -> None:
    plugin = Plugin("p", version="1.0.0")
    plugin.hook("Recall")(lambda call, ctx: contribute())
    assert (await failure_of(TestPlugin.start(plugin))).code is Code.FAILED_PRECONDITION


async def test_tools_are_listed_and_run_and_a_refusal_is_the_models_error() -> None:
    plugin = Plugin("p", version="1.0.0")

    @plugin.tool("p.divide", annotations=ToolAnnotations(read_only_hint=True))
    async def divide(a: float, b: float) -> object:
        """Divides."""
        if b == 0:
            raise ToolError("Nobody divides by zero.", "DIVIDED_BY_ZERO")
        if a < 0:
            raise ValueError("broken")
        return None if a == 0 else {"quotient": a / b}

    test = await TestPlugin.start(plugin)
    (provided,) = test.tools
    assert (provided.name, provided.description) == ("p.divide", "Divides.")
    assert provided.annotations == ToolAnnotations(read_only_hint=True)
    assert provided.input_schema["type"] == "object"
    assert await test.run_tool("p.divide", {"a": 6, "b": 3}) == {"quotient": 2}
    assert await test.run_tool("p.divide", {"a": 0, "b": 3}) is None
    with pytest.raises(ToolError, match=r"^Nobody divides by zero.$") as refused:
        await test.run_tool("p.divide", {"a": 1, "b": 0})
    assert refused.value.code == "DIVIDED_BY_ZERO"
    with pytest.raises(ToolError) as wrong:
        await test.run_tool("p.divide")
    assert wrong.value.code == "TOOL_ARGS_INVALID"
    broken = await failure_of(test.run_tool("p.divide", {"a": -1, "b": 1}))
    assert (broken.code, str(broken)) == (Code.ABORTED, "ValueError: broken")


async def test_each_fault_of_a_tool_is_named() -> None:
    schema = b'{"type":"object"}'

    def wire(**members: Any) -> types_pb2.Tool:
        return types_pb2.Tool(**{"name": "p.a", "description": "Does a.", "input_schema": schema, **members})

    title = types_pb2.ToolAnnotations(title="x" * 257)
    large = b'{"type":"object","a":"' + b"x" * (60 << 10) + b'"}'
    cases: list[tuple[list[types_pb2.Tool], str]] = [
        ([wire(), wire()], "`tools` names `p.a` twice"),
        ([wire(name=f"p.{number}") for number in range(65)], "`tools` has 65 tools"),
        ([wire(name=f"p.{number}", input_schema=large) for number in range(5)], "keep it within 256 KiB"),
        ([wire(name="q.a")], "no glob in `tool_names` covers the tool `q.a`"),
        ([wire(name="p.a b")], "a name must be 1 to 128 letters"),
        ([wire(description="")], "`p.a` needs a `description`"),
        ([wire(annotations=title)], "the `title` of `p.a` is longer than 256 bytes"),
        ([wire(input_schema=b'{"type":"string"}')], "the input of `p.a` must be an object"),
        ([wire(input_schema=large + b" " * (5 << 10))], "over 64 KiB as a JSON Schema"),
    ]
    for tools, expected in cases:
        with pytest.raises(CallError) as failure:
            check_tools(["p.*"], tools)
        assert expected in str(failure.value)
    check_tools(["p.*"], [wire(), wire(name="p.b")])

    @tool("q.a", description="Does a.")
    async def run() -> None: ...

    def make(config: object, state: object) -> list[Tool[Any]]:
        return [run]

    plugin = Plugin("p", version="1.0.0", tools=make, tool_names=["p.*"])
    uncovered = await failure_of(TestPlugin.start(plugin))
    assert (uncovered.code, str(uncovered)) == (
        Code.FAILED_PRECONDITION,
        "no glob in `tool_names` covers the tool `q.a`",
    )


async def test_a_hooks_contributions_are_read_and_checked_as_a_gateway_checks_them() -> None:
    plugin = Plugin("p", version="1.0.0")

    @plugin.hook("recall")
    async def recall(call: HookPayload[Any], ctx: Context) -> HookReply:
        body = {"kind": "memory", "count": 1, "size": 1, **call.body}
        contributions = [Contribution(body["kind"], "x" * body["size"])] * body["count"]
        return contribute(contributions, notices=[Notice("info", "", ctx.tenant)])

    test = await TestPlugin.start(plugin)
    reply = await test.with_tenant("acme").on_hook("recall", {"size": 2})
    assert reply == HookReply([Contribution("memory", "xx")], [Notice("info", "", "acme")])
    assert len((await test.on_hook("recall", {"size": 4_186_000})).contributions) == 1
    cases: list[tuple[Mapping[str, object], str]] = [
        ({"kind": "A-B"}, "/contributions/0 has the kind `A-B` outside [a-z][a-z0-9_]{0,63}"),
        ({"count": 65}, "65 contributions, 64 are allowed"),
        ({"size": 4_186_112}, "4186112 are allowed"),
    ]
    for body, expected in cases:
        failure = await failure_of(test.on_hook("recall", body))
        assert failure.code is Code.INTERNAL
        assert expected in str(failure)


def info(code: str, details: Mapping[str, object] | None = None) -> Notice:
    return Notice("info", "", code, details)


async def test_a_reply_that_a_gateway_rejects_is_an_error() -> None:
    replies: dict[str, ToolCallReply] = {
        "many": proceed({}, notices=[info("A")] * 17),
        "large": proceed({}, notices=[info("A", {"text": "x" * 4000})] * 3),
        "code": proceed({}, notices=[info("A"), info("1")]),
        "details": proceed({}, notices=[info("A", {"text": "x" * 4096})]),
        "list": proceed({}, notices=[info("A", [1])]),  # type: ignore[arg-type]
        "name": proceed({"tool_name": ""}),
        "long name": proceed({"tool_name": "x" * 257}),
        "cancel": cancel("NO", "no", notices=[info("1")]),
    }

    async def reply(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return replies[call.tool_name]

    plugin = await started(reply)
    cases = {
        "many": r"^17 notices, 16 are allowed$",
        "large": r"^notices of 12\d{3} bytes, 8192 are allowed$",
        "code": r"^/notices/1 has the code `1` outside",
        "details": r"^/notices/0 has details of 4107 bytes, 4096 are allowed$",
        "list": r"^/notices/0 has details that are not a JSON object$",
        "name": r"^`tool_name` of the patch must have 1 to 256 bytes$",
        "long name": r"^`tool_name` of the patch must have 1 to 256 bytes$",
    }
    for tool_name, expected in cases.items():
        failure = await failure_of(plugin.before_tool_call(tool_name))
        assert failure.code is Code.INTERNAL
        assert re.search(expected, str(failure)), str(failure)
    cancelled = (await plugin.before_tool_call("cancel")).cancelled
    assert cancelled is not None
    assert cancelled.code == "NO", "of a cancel, the rest is left out"


async def test_with_access_read_there_is_no_patch_and_no_answer() -> None:
    class Reader:
        async def before_tool_call(self, call: BeforeToolCall, ctx: Context) -> ToolCallReply:
            replies: dict[str, ToolCallReply] = {
                "patch": proceed({"args": 1}),
                "cancel": cancel("NO", "", patch={"args": 1}),
                "answer": answer(1),
            }
            return replies[call.tool_name]

        async def before_response(self, call: BeforeResponse, ctx: Context) -> ToolCallReply:
            return answer(1)

    points = {"before_tool_call": Offer(access="read")}
    plugin = await TestPlugin.start(Plugin("p", version="1.0.0", handler=Reader, points=points))  # type: ignore[arg-type]
    cases = {
        "patch": "returned a patch, but the plugin offers it with access `read`",
        "cancel": "a patch is forbidden: p offers before_tool_call with access `read`",
        "answer": "`answer` is forbidden: p offers before_tool_call with access `read`",
    }
    for tool_name, expected in cases.items():
        failure = await failure_of(plugin.before_tool_call(tool_name))
        assert failure.code is Code.INTERNAL
        assert expected in str(failure)
    elsewhere = await failure_of(plugin.before_response(""))
    assert str(elsewhere) == "`answer` is only for before_tool_call, not for before_response"


async def test_replies_that_are_too_large_and_media_without_content_or_type_are_refused() -> None:
    plugin = Plugin("large", version="1.0.0")

    @plugin.before_llm_request
    async def handle(call: BeforeLlmRequest, ctx: Context) -> LlmRequestReply:
        if call.text == "url":
            return proceed({"images": [Media(url="", mime_type="image/png")]})
        if call.text == "type":
            return proceed({"files": [Media(data=b"", mime_type="")]})
        return proceed({"text": "x" * (5 << 20)})

    test = await TestPlugin.start(plugin)
    cases = {
        "url": r"^`images\[0\].url` of the patch is empty$",
        "type": r"^`files\[0\].mime_type` of the patch is empty$",
        "large": r"^the reply has \d+ bytes, 4194304 are allowed$",
    }
    for text, expected in cases.items():
        failure = await failure_of(test.before_llm_request(text))
        assert re.search(expected, str(failure)), str(failure)


def test_globs_match_as_the_gateways_do() -> None:
    for glob, value, expected in json.loads(_TABLE.read_text()):
        assert bool(compile_glob(glob).match(value)) == expected, f"{glob} on {value}"
    faults = {
        "": "empty",
        "fs[": "without its `]`",
        "a[]": "without its",
        "[!": "without its",
        "[z-a]": "`z-a`, which is the wrong way round",
    }
    for glob, fault in faults.items():
        with pytest.raises(ValueError, match=re.escape(fault)):
            compile_glob(glob)
