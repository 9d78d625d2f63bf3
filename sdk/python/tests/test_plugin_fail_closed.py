"""What a plugin does wrong must not let a call pass, nor reach another tenant."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from pydantic import BaseModel
from support.gateway_client import failure, served

from hookgate import (
    BeforeToolCall,
    Context,
    Media,
    Notice,
    Plugin,
    Reply,
    ToolCallReply,
    answer,
    cancel,
    proceed,
)
from hookgate._proto import plugin_pb2, types_pb2

LIMITS = plugin_pb2.Limits(max_reply_bytes=100_000, max_notice_bytes=8_192)


def plugin_of(handler: Any, **options: Any) -> Plugin[Any, Any]:
    plugin: Plugin[Any, Any] = Plugin("p", version="1.0.0", **options)
    plugin.before_tool_call(handler)
    return plugin


async def test_a_cancel_that_is_too_large_keeps_what_fits(caplog: pytest.LogCaptureFixture) -> None:
    text = "x" * 200_000

    async def reply(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        if call.tool_name == "patch":
            return cancel("NO", text, patch={"args": text}, notices=[Notice("info", "kept")])
        if call.tool_name == "answer":
            return answer(text, "known")
        return cancel("NO", "Stop.", notices=[Notice("info", "m", details={"text": text})])

    async with served(plugin_of(reply)) as (client, _):
        await client.initialize(limits=LIMITS)
        patch = await client.tool_call("patch")
        assert patch.WhichOneof("verdict") == "cancel"
        assert not patch.HasField("modify")
        assert [notice.message for notice in patch.notices] == ["kept"]
        assert len(patch.cancel.message.encode()) <= 1024
        notices = await client.tool_call("notices")
        assert (notices.cancel.message, len(notices.notices)) == ("Stop.", 0)
        known = (await client.tool_call("answer")).cancel
        assert (known.code, known.message, known.result) == ("TOOL_FAILED", "known", b"")
        assert any("more than 100000" in (record.exc_text or "") + str(record.exc_info) for record in caplog.records)


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")


ODD: dict[str, Any] = {
    "wait": lambda: cancel("NO", "m", retry_after_ms="soon"),  # type: ignore[arg-type]
    "nan": lambda: cancel("NO", "m", retry_after_ms=float("nan")),
    "message": lambda: cancel("NO", Hostile()),  # type: ignore[arg-type]
    "exception": lambda: cancel("NO", ValueError("m")),  # type: ignore[arg-type]
    "surrogate": lambda: cancel("NO\ud83d", "m\ud83d"),
    "code": lambda: cancel(None, "m"),  # type: ignore[arg-type]
    "patch": lambda: cancel("NO", "m", patch={"args": Hostile()}),
    "unknown": lambda: cancel("NO", "m", patch={"arg": 1}),
    "no patch": lambda: cancel("NO", "m", patch=7),  # type: ignore[arg-type]
    "notice": lambda: cancel("NO", "m", notices=["odd"]),  # type: ignore[list-item]
    "notices": lambda: cancel("NO", "m", notices=7),  # type: ignore[arg-type]
    "details": lambda: cancel("NO", "m", notices=[Notice("info", "m", details={"n": float("nan")})]),
    "kind": lambda: cancel("NO", "m", notices=[Notice("odd", "m")]),  # type: ignore[arg-type]
    "scope": lambda: cancel("NO", "m", scope=["odd"]),  # type: ignore[arg-type]
    "deep": lambda: cancel("NO", "m", patch={"args": nested(65)}),
    "result": lambda: answer({1, 2}),
}


def nested(levels: int) -> object:
    return [nested(levels - 1)] if levels else 1


@pytest.mark.parametrize("name", ODD)
async def test_a_cancel_with_odd_members_stays_a_cancel(name: str) -> None:
    async def reply(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        made: ToolCallReply = ODD[call.tool_name]()
        return made

    async with served(plugin_of(reply)) as (client, _):
        await client.initialize()
        answered = await client.tool_call(name)
        assert answered.WhichOneof("verdict") == "cancel"
        assert answered.cancel.retry_after_ms == 0
        assert answered.cancel.result == b""


@pytest.mark.parametrize(
    ("given", "expected"),
    [(1.5, 2), (0.1, 1), (-5.5, 0), (float("inf"), 2**53 - 1), (1e300, 2**53 - 1), (True, None), (10**400, 2**53 - 1)],
)
async def test_a_wait_is_rounded_up_to_a_number_that_every_language_has(given: float, expected: int | None) -> None:
    async def reply(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return cancel("NO", "m", scope="run", retry_after_ms=given)

    async with served(plugin_of(reply)) as (client, _):
        await client.initialize()
        cancelled = (await client.tool_call()).cancel
        assert cancelled.scope == types_pb2.CANCEL_SCOPE_RUN
        assert (cancelled.retry_after_ms if cancelled.HasField("retry_after_ms") else None) == expected


@pytest.mark.parametrize(
    "patch",
    [
        {"text": None},
        {"images": None},
        {"images": [{"url": "u"}]},
        {"images": "abc"},
        {"messages": {}},
        {"messages": "abc"},
        {"extra": []},
        {"extra": None},
        {"system_prompt": b"x"},
        {"tool_name": "x"},
    ],
)
async def test_a_patch_member_of_the_wrong_type_is_an_error(patch: dict[str, object]) -> None:
    plugin: Plugin[Any, Any] = Plugin("p", version="1.0.0")

    @plugin.before_llm_request
    async def reply(call: Any, ctx: Any) -> Reply[Any]:
        return proceed(patch)

    async with served(plugin) as (client, _):
        await client.initialize()
        call = plugin_pb2.Call(context=plugin_pb2.CallContext(tenant="acme"), config_digest="d")
        request = plugin_pb2.BeforeLlmRequestRequest(call=call, payload=types_pb2.BeforeLlmRequestPayload())
        status, message = await failure(client.call("BeforeLlmRequest", request))
        assert status == "ABORTED"
        assert next(iter(patch)) in message


class Lists(BaseModel, extra="allow"):
    names: list[str] = []
    by_name: dict[str, set[str]] = {}


async def test_tenants_with_the_same_configuration_can_not_change_it_for_each_other() -> None:
    changes: dict[str, Any] = {
        "append": lambda config, tenant: config.names.append(tenant),
        "item": lambda config, tenant: config.by_name.update({tenant: set()}),
        "set": lambda config, tenant: config.by_name["a"].add(tenant),
        "extra": lambda config, tenant: config.more[0].clear(),
    }

    async def change(call: BeforeToolCall, ctx: Context[Lists, Lists]) -> ToolCallReply:
        kind, _, which = call.tool_name.partition(" ")
        changes[kind](ctx.tenant_config if which == "tenant" else ctx.config, ctx.tenant)
        return proceed()

    config = {"names": [], "by_name": {"a": []}, "more": [{"b": 1}]}
    async with served(plugin_of(change, config=Lists, tenant_config=Lists)) as (client, _):
        await client.initialize("d", config)
        for kind in changes:
            for which in ("tenant", "plugin"):
                status, message = await failure(client.tool_call(f"{kind} {which}", tenant_config=config))
                assert (status, "can't be changed" in message) == ("ABORTED", True), (kind, which)


async def test_a_copy_of_a_configuration_can_be_changed_and_its_containers_are_those_that_they_were() -> None:
    seen: list[Lists] = []

    async def keep(call: BeforeToolCall, ctx: Context[Lists]) -> ToolCallReply:
        seen.append(ctx.config)
        return proceed({"args": {"names": ctx.config.names, "sorted": sorted(ctx.config.by_name)}})

    async with served(plugin_of(keep, config=Lists)) as (client, _):
        await client.initialize("d", {"names": ["b"], "by_name": {"c": ["d"]}})
        reply = await client.tool_call()
        assert json.loads(reply.modify.args) == {"names": ["b"], "sorted": ["c"]}
        config = seen[0]
        assert config == Lists(names=["b"], by_name={"c": {"d"}})
        copied = config.model_copy(deep=True)
        copied.names.append("x")
        copied.by_name["c"].add("y")
        [*config.names, "z"].append("a")
        copy.copy(config.names).append("b")
        assert config.model_dump() == {"names": ["b"], "by_name": {"c": {"d"}}}


async def test_a_payload_is_read_only_and_is_copied_and_compared_as_a_whole() -> None:
    seen: list[BeforeToolCall] = []

    async def keep(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        seen.append(call)
        return proceed()

    async with served(plugin_of(keep)) as (client, _):
        await client.initialize()
        await client.tool_call("a", {"secret": "AKIA"})
        (call,) = seen
        assert dataclasses.asdict(call) == {
            "tool_name": "a",
            "args": {"secret": "AKIA"},
            "call_id": None,
            "extra": None,
        }
        assert call == BeforeToolCall(tool_name="a", args={"secret": "AKIA"}) == copy.copy(call)
        with pytest.raises(dataclasses.FrozenInstanceError):
            call.args = {}  # type: ignore[misc]
        with pytest.raises(AttributeError, match="no member arg"):
            call.arg  # type: ignore[attr-defined] # noqa: B018


async def test_json_that_no_handler_reads_is_not_parsed_and_broken_json_fails_the_call() -> None:
    async def read(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return cancel("SEEN", str(call.args)) if call.tool_name == "read" else proceed()

    async with served(plugin_of(read)) as (client, _):
        await client.initialize()
        assert (await client.tool_call("pass", "{broken")).WhichOneof("verdict") == "continue"
        status, message = await failure(client.tool_call("read", "{broken"))
        assert status == "ABORTED"
        assert message.startswith("JsonError: args is not JSON: ")


def test_a_medium_has_either_data_or_a_url() -> None:
    for members in ({}, {"data": b"", "url": "u"}):
        with pytest.raises(ValueError, match="either `data` or `url`"):
            Media(mime_type="image/png", **members)  # type: ignore[arg-type]
