"""Configurations and payloads that no handler can change in place."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, PrivateAttr
from support.gateway_client import failure, served

from hookgate import BeforeToolCall, Context, HookPayload, HookReply, JsonObject, Plugin, ToolCallReply, proceed
from hookgate._frozen import freeze
from hookgate._json import dumps, loads
from hookgate._proto import plugin_pb2, types_pb2


class Inner(BaseModel):
    limit: int = 1


@dataclasses.dataclass
class Data:
    names: list[str]


@dataclasses.dataclass(slots=True)
class Slotted:
    names: list[str]


class Pair(NamedTuple):
    names: list[str]
    limit: int


class Everything(BaseModel, extra="allow"):
    limit: int = 1
    inner: Inner = Inner()
    data: Data = Data(["a"])
    slotted: Slotted = Slotted(["a"])
    queue: deque[int] = deque([1], 3)
    counts: defaultdict[str, list[int]]
    pair: Pair = Pair(["a"], 1)
    _cache: int | None = PrivateAttr(None)

    def cached(self) -> int:
        if self._cache is None:
            self._cache = self.limit * 2
        return self._cache


JSON = {"counts": {"a": [1]}, "pair": [["a"], 1]}


def everything() -> Everything:
    return Everything.model_validate(JSON)


CHANGES: dict[str, Callable[[Any], object]] = {
    "member": lambda it: setattr(it, "limit", 1000),
    "new": lambda it: setattr(it, "added", 1),
    "del": lambda it: delattr(it, "limit"),
    "inner": lambda it: setattr(it.inner, "limit", 1000),
    "data": lambda it: setattr(it.data, "names", []),
    "data-list": lambda it: it.data.names.append("x"),
    "slotted": lambda it: setattr(it.slotted, "names", []),
    "slotted-list": lambda it: it.slotted.names.append("x"),
    "deque": lambda it: it.queue.append(2),
    "default": lambda it: it.counts["b"].append(2),
    "default-item": lambda it: it.counts.update(b=[]),
    "pair": lambda it: it.pair.names.append("x"),
}


async def test_no_tenant_changes_a_configuration_of_another_one() -> None:
    plugin = Plugin("p", version="1.0.0", tenant_config=Everything)

    @plugin.before_tool_call
    async def change(call: BeforeToolCall, ctx: Context[None, Everything]) -> ToolCallReply:
        CHANGES[call.tool_name](ctx.tenant_config)
        return proceed()

    async with served(plugin) as (client, _):
        await client.initialize()
        for kind in CHANGES:
            status, message = await failure(client.tool_call(kind, tenant_config=JSON))
            assert (status, "can't be changed" in message) == ("ABORTED", True), kind


def test_a_frozen_configuration_behaves_like_an_ordinary_one() -> None:
    config = freeze(everything())
    assert freeze(config) is config
    assert config == everything()
    assert everything() == config
    assert config.data == Data(["a"])
    assert config.slotted == Slotted(["a"])
    assert isinstance(config, Everything)
    assert config.model_dump() == everything().model_dump()
    assert config.model_dump_json() == everything().model_dump_json()
    assert config.cached() == 2
    assert "b" not in config.counts
    assert config.counts["b"] == []
    assert "b" not in config.counts


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: it.model_copy(deep=True)])
def test_a_deep_copy_of_a_configuration_is_an_ordinary_one(copied: Callable[[Any], Any]) -> None:
    config = freeze(everything())
    for change in CHANGES.values():
        change(copied(config))
    assert type(copied(config)) is Everything
    assert copied(config) == config == everything()


def test_a_shallow_copy_with_other_members_is_an_ordinary_one() -> None:
    config = freeze(everything())
    changed = config.model_copy(update={"limit": 5})
    changed.limit += 1
    assert (type(changed), changed.limit, config.limit) == (Everything, 6, 1)
    assert dataclasses.replace(config.data, names=["b"]) == Data(["b"])
    for made in (copy.copy(config.data), copy.copy(config.slotted)):
        made.names = ["b"]
    for container in (copy.copy(config.queue), config.queue.copy(), copy.deepcopy(config.queue)):
        container.append(2)
        assert container.maxlen == 3
    for counts in (copy.copy(config.counts), config.counts.copy(), copy.deepcopy(config.counts)):
        counts["z"].append(1)


def test_a_class_that_can_not_be_derived_from_keeps_its_objects() -> None:
    @dataclasses.dataclass
    class Final:
        names: list[str]

        def __init_subclass__(cls) -> None:
            raise TypeError("final")

    value = freeze(Final(["a"]))
    value.limit = 1
    with pytest.raises(TypeError, match="can't be changed"):
        value.names.append("b")


def test_the_json_of_a_call_can_not_be_changed_in_place() -> None:
    data = b'{"secret":"AKIA","n":[123456789012345678901234567890,1.0,{"a":null}]}'
    call: Any = BeforeToolCall.from_call(types_pb2.BeforeToolCallPayload(tool_name="t", args=data, extra=b"{}"))
    changes: list[Callable[[], object]] = [
        lambda: call.args.update(secret="x"),
        lambda: call.args.pop("secret"),
        lambda: call.args["n"].append(1),
        lambda: call.args["n"][2].clear(),
        lambda: call.extra.setdefault("a", 1),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="a payload can't be changed: return proceed"):
            change()
    assert call.args == loads(data)
    assert dumps(call.args) == data
    assert call == BeforeToolCall(tool_name="t", args=loads(data), extra={})
    for copied in (copy.deepcopy(call.args), copy.copy(call.args), dict(call.args), {**call.args}):
        copied["secret"] = "x"
        assert type(copied) is dict
    copy.deepcopy(call).args["secret"] = "x"
    copy.deepcopy(call.args)["n"].append(1)
    assert json.dumps(call.args, separators=(",", ":")).encode() == data


def test_the_json_of_an_answer_is_ordinary() -> None:
    answer: Any = BeforeToolCall.from_message(types_pb2.BeforeToolCallPayload(tool_name="t", args=b'{"a":[]}'))
    answer.args["a"].append(1)
    assert answer.args == {"a": [1]}


async def test_the_body_of_a_hook_can_not_be_changed_in_place() -> None:
    plugin = Plugin("p", version="1.0.0")

    @plugin.hook("seen")
    async def seen(call: HookPayload[JsonObject], ctx: Context) -> HookReply:
        call.body["secret"] = "x"
        return HookReply((), ())

    async with served(plugin) as (client, _):
        await client.initialize()
        status, message = await failure(client.on_hook("seen", {"secret": "a"}))
        assert (status, "a payload can't be changed" in message) == ("ABORTED", True)


def test_a_caller_without_a_request_id_is_known() -> None:
    call = plugin_pb2.Call(context=plugin_pb2.CallContext(tenant="acme", operator="op"))
    ctx: Context = Context(call, None, None, config=None, tenant_config=None, state=None)  # type: ignore[arg-type]
    assert (ctx.caller.tenant, ctx.caller.operator, ctx.request_id) == ("acme", "op", "")


async def test_a_handler_that_changes_a_payload_in_place_fails_its_call() -> None:
    plugin = Plugin("redact", version="1.0.0")

    @plugin.before_tool_call
    async def redact(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        assert isinstance(call.args, dict)
        call.args["secret"] = "[redacted]"
        return proceed()

    async with served(plugin) as (client, _):
        await client.initialize()
        status, message = await failure(client.tool_call(args={"secret": "x"}))
        assert status == "ABORTED"
        assert "a payload can't be changed" in message
