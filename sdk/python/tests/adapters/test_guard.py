"""The core that all adapters share: values, media, and what an agent owes at the points."""

from __future__ import annotations

import asyncio
import base64
import datetime
import enum
import gc
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

import pytest
from google.protobuf.message import Message
from pydantic import BaseModel, Field
from support.fake_gateway import FakeGateway, Reply
from support.points import PointReply, Points, Values, block, outage, patch

from hookgate._json import JsonError, JsonValue
from hookgate._proto import gateway_pb2
from hookgate.adapters._answer_parts import ModelResponse, ModelResponsePatch
from hookgate.adapters._guard import (
    BlockedTool,
    FailedTool,
    ModelCall,
    ModelRequest,
    ModelRequestPatch,
    OwnResult,
    PatchError,
    ReplacedResult,
    ToolCall,
    ToolOutput,
    async_points,
    blocking_points,
    find_gateway_error,
    guard_model_request,
    guard_model_response,
    guard_tool_run,
    run_blocking,
)
from hookgate.adapters._media import drop_media, is_image, medium_from
from hookgate.adapters._run_end import raise_nested_run_end
from hookgate.adapters._values import is_same_json, merge_list, to_json, to_text
from hookgate.agent import Agent, Blocked, CallContext, Media, NoDecision, call_context
from hookgate.agent import sync as blocking


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2


class Person(BaseModel):
    name: str = Field(alias="Name")
    raw: bytes = b""


@dataclass
class Point:
    x: float


def test_values_become_what_pydantic_makes_of_them_and_integers_stay_exact() -> None:
    value = {
        "numbers": [10**5000, float("nan"), 1.5, True],
        "bytes": b"\x01\x02\x03",
        "enums": [Colour.RED, Level.HIGH],
        "objects": (Person(Name="Bo"), Person(Name="Ada", raw=b"\xff"), Point(float("inf"))),
        "date": datetime.date(2026, 1, 2),
        1: {"a"},
        "surrogate": "\ud800",
    }
    assert to_json(value) == {
        "numbers": [10**5000, None, 1.5, True],
        "bytes": "AQID",
        "enums": ["red", 2],
        "objects": [{"Name": "Bo", "raw": ""}, {"name": "Ada", "raw": "/w=="}, {"x": None}],
        "date": "2026-01-02",
        "1": ["a"],
        "surrogate": "\ufffd",
    }


def test_values_that_json_doesnt_have_are_refused_by_their_path() -> None:
    own: dict[str, object] = {}
    own["self"] = own
    for value, message in (
        ({"a": [object()]}, r"args\.a\[0\] is of the type object"),
        (own, "nested deeper"),
        (iter([1]), "iterator"),
        ({1: 1, "1": 2}, "two keys"),
    ):
        with pytest.raises(JsonError, match=message):
            to_json(value, "args")


def test_json_is_compared_by_its_text() -> None:
    assert is_same_json({"id": 2**70}, {"id": 2**70})
    for other in (1.0, True, "1"):
        assert not is_same_json(1, cast("JsonValue", other))
    assert (to_text({"id": 2**70}), to_text("text")) == ('{"id":1180591620717411303424}', "text")


def test_a_merged_list_keeps_the_originals_that_nobody_changed() -> None:
    originals = [object() for _ in range(4)]
    sent: list[JsonValue] = [1, 2, 2, 3]
    decoded: list[object] = []

    def merge(returned: list[JsonValue]) -> list[int]:
        decoded.clear()

        def decode(_: JsonValue, original: object | None) -> object:
            decoded.append(original)
            return object()

        merged = merge_list(originals, sent, returned, decode)
        return [originals.index(item) if item in originals else -1 for item in merged]

    assert merge([2, 2, 3]) == [1, 2, 3]
    assert merge([0, 1, 2, 2, 3]) == [-1, 0, 1, 2, 3]
    assert decoded == [None]
    assert merge([1, 9, 2, 3]) == [0, -1, 1, 3]
    assert decoded == [originals[1]]
    assert merge([]) == []


def test_media_are_urls_or_bytes() -> None:
    data = base64.b64encode(b"abc").decode()
    assert medium_from(f"data:image/png;base64,{data}", "image/*") == Media(data=b"abc", mime_type="image/png")
    assert medium_from(data, "audio/wav") == Media(data=b"abc", mime_type="audio/wav")
    assert medium_from("https://x/y", "image/*", "y") == Media(url="https://x/y", mime_type="image/*", filename="y")
    assert medium_from("no base64!", "image/*") is None
    media = [Media(data=b"abc", mime_type="image/png"), Media(url="u:", mime_type="audio/wav")]
    assert [is_image(medium) for medium in media] == [True, False]
    assert drop_media([*media, None], [media[0]], lambda part: part) == [media[1], None]


async def test_the_gateways_error_is_found_in_whatever_a_library_wraps_it_in(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=block("no"), before_llm_request=outage)
    with pytest.raises(Blocked) as blocked:
        await points.agent.before_response(content="")
    with pytest.raises(NoDecision) as missing:
        await points.agent.before_llm_request(text="")
    wrapped = RuntimeError("outer")
    wrapped.__cause__ = RuntimeError("inner")
    wrapped.__cause__.__context__ = blocked.value
    assert find_gateway_error(wrapped) is blocked.value
    assert find_gateway_error(missing.value) is missing.value
    group = RuntimeError("group")
    group.exceptions = (ValueError(), missing.value)  # type: ignore[attr-defined] # as an ExceptionGroup has
    assert find_gateway_error(group) is missing.value
    handled = RuntimeError("other")
    handled.__context__, handled.__suppress_context__ = blocked.value, True
    circle = RuntimeError("circle")
    circle.__cause__ = circle
    for other in (handled, circle, PatchError("p"), None):
        assert find_gateway_error(other) is None


async def test_who_was_told_to_go_on_without_a_decision_goes_on_with_its_own_values(fake_gateway: FakeGateway) -> None:
    Points(
        fake_gateway,
        before_llm_request=outage,
        before_tool_call=outage,
        after_tool_result=outage,
        before_response=outage,
    )
    points = async_points(Agent(fake_gateway.url, token="token", on_no_decision="go_on"))
    assert (await guard_model_request(points, ModelRequest(text="hi", messages=["m"]), ModelCall())).is_empty
    assert await guard_model_response(points, ModelResponse(texts=["c"], has_tool_calls=False), ModelCall()) is None
    args = {"id": 1}

    async def run(name: str, own: object) -> ToolOutput[object]:
        return ToolOutput(value=(name, own is args), result="r")

    assert await guard_tool_run(points, ToolCall(tool_name="t", args=args), run) == OwnResult(("t", True))


async def test_a_plugin_may_take_everything_of_a_request(fake_gateway: FakeGateway) -> None:
    def take(response: Message, _: Values) -> Reply:
        payload = getattr(response, "payload")  # noqa: B009 - the responses have no type in common
        payload.Clear()
        setattr(response, "modified", True)  # noqa: B010
        return response

    points = async_points(Points(fake_gateway, before_llm_request=take).agent)
    media = [Media(url="https://x/y", mime_type="image/png")]
    request = ModelRequest(text="hi", system_prompt="s", messages=[1], tools=[{}], media=media, extra={"a": 1})
    patched = await guard_model_request(points, request, ModelCall())
    assert patched.messages is not None
    assert patched.tools is not None
    assert (patched.messages.returned, patched.tools.returned) == ([], [])
    assert (patched.text, patched.system_prompt, patched.dropped_media, patched.extra) == ("", "", tuple(media), {})


async def test_only_a_changed_answer_is_patched(fake_gateway: FakeGateway) -> None:
    response = ModelResponse(texts=["c"], thoughts=["r"], has_tool_calls=True, input_tokens=True, output_tokens=-1)
    points = async_points(Points(fake_gateway, before_response=patch(reasoning="")).agent)
    assert await guard_model_response(points, response, ModelCall()) == ModelResponsePatch(texts=[None], thoughts=[""])
    request = fake_gateway.calls[0].request(gateway_pb2.BeforeResponseRequest)
    assert not request.payload.HasField("token_usage")
    calls_only = ModelResponse(texts=[], has_tool_calls=True)
    assert await guard_model_response(points, calls_only, ModelCall()) is None
    assert len(fake_gateway.calls) == 1
    nothing = ModelResponse(texts=[], has_tool_calls=False)
    await guard_model_response(points, nothing, ModelCall())
    assert len(fake_gateway.calls) == 2


async def test_a_tools_outcome_says_who_made_it(fake_gateway: FakeGateway) -> None:
    async def run(_: str, __: object) -> ToolOutput[str]:
        return ToolOutput(value="own", result={"n": 10**400})

    call = ToolCall(tool_name="t", args={})
    points = async_points(Points(fake_gateway, after_tool_result=patch(result={"n": 1})).agent)
    assert await guard_tool_run(points, call, run) == ReplacedResult({"n": 1}, success=True)
    same = async_points(Points(fake_gateway, after_tool_result=patch(result={"n": 10**400})).agent)
    assert await guard_tool_run(same, call, run) == OwnResult("own")
    blocked = async_points(Points(fake_gateway, after_tool_result=block("no")).agent)
    assert isinstance(await guard_tool_run(blocked, call, run), BlockedTool)


async def test_control_flow_passes_without_a_result(fake_gateway: FakeGateway) -> None:
    class Leave(Exception):  # noqa: N818 - it is no error
        """How a library leaves a tool."""

    async def run(_: str, __: object) -> ToolOutput[str]:
        raise Leave

    points = Points(fake_gateway)
    with pytest.raises(Leave):
        await guard_tool_run(
            async_points(points.agent), ToolCall(tool_name="t", args={}), run, lambda error: isinstance(error, Leave)
        )
    assert points.names == ["BeforeToolCall"]


async def gateway_error(gateway: FakeGateway, reply: PointReply) -> Blocked | NoDecision:
    """What an agent raises within a tool."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one depends on the reply
        await Points(gateway, before_response=reply).agent.before_response(content="")
    assert isinstance(raised.value, (Blocked, NoDecision))
    return raised.value


def wrapped(error: Exception) -> Exception:
    """The error as an agent library raises it."""
    outer = RuntimeError("the run failed")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize("wrap", [lambda error: error, wrapped], ids=["itself", "wrapped"])
@pytest.mark.parametrize("what", ["block", "outage", "patch"])
async def test_the_end_of_a_run_within_a_tool_is_no_failure_of_the_tool(
    fake_gateway: FakeGateway, what: str, wrap: Callable[[Exception], Exception]
) -> None:
    replies = {"block": block("stop", "run"), "outage": outage}
    error = PatchError("no such tool") if what == "patch" else await gateway_error(fake_gateway, replies[what])

    async def run(_: str, __: object) -> ToolOutput[str]:
        raise wrap(error)

    fake_gateway.calls.clear()
    points = Points(fake_gateway, after_tool_result=patch(result="redacted"))
    with pytest.raises(type(wrap(error))) as raised:
        await guard_tool_run(async_points(points.agent), ToolCall(tool_name="t", args={}), run)
    assert error in (raised.value, raised.value.__cause__)
    assert points.names == ["BeforeToolCall"]


async def test_a_block_of_a_step_within_a_tool_is_a_failure_of_the_tool(fake_gateway: FakeGateway) -> None:
    error = await gateway_error(fake_gateway, block("not on your plan"))

    async def run(_: str, __: object) -> ToolOutput[str]:
        raise error

    points = Points(fake_gateway)
    outcome = await guard_tool_run(async_points(points.agent), ToolCall(tool_name="t", args={}), run)
    assert outcome == FailedTool(error)
    assert points.payloads("AfterToolResult")[0]["result"] == "not on your plan"


async def end_run(gateway: FakeGateway) -> None:
    """A run that a plugin ends."""
    points = async_points(Points(gateway, before_response=block("stop", "run")).agent)
    await guard_model_response(points, ModelResponse(texts=["c"], has_tool_calls=False), ModelCall())


async def test_tools_that_are_caught_by_a_library_hear_of_a_run_that_ends_within(fake_gateway: FakeGateway) -> None:
    async def block_step() -> None:
        points = async_points(Points(fake_gateway, before_llm_request=block("no")).agent)
        await guard_model_request(points, ModelRequest(text="hi", messages=[]), ModelCall())

    async def catch(work: Callable[[], Awaitable[None]]) -> str:
        """A tool of a library, which runs it in a task of its own."""
        with raise_nested_run_end():
            [result] = await asyncio.gather(work(), return_exceptions=True)
            return str(result)

    assert await catch(block_step) == "no"
    with pytest.raises(Blocked, match="stop"):
        await catch(lambda: end_run(fake_gateway))
    with pytest.raises(Blocked, match="stop"), raise_nested_run_end(), pytest.raises(Blocked):
        await catch(lambda: end_run(fake_gateway))
    with pytest.raises(PatchError), raise_nested_run_end(), pytest.raises(PatchError):
        raise PatchError("no such tool")
    with pytest.raises(ValueError, match="own"), raise_nested_run_end():
        raise ValueError("own")


async def test_every_tool_ends_the_run_if_one_within_it_ended(fake_gateway: FakeGateway) -> None:
    async def run(_: str, __: object) -> ToolOutput[str]:
        with pytest.raises(Blocked):
            await end_run(fake_gateway)
        return ToolOutput(value="never mind", result="never mind")

    points = Points(fake_gateway)
    with pytest.raises(Blocked, match="stop"):
        await guard_tool_run(async_points(points.agent), ToolCall(tool_name="t", args={}), run)
    assert "AfterToolResult" not in points.names


async def end_run_of_worker(gateway: FakeGateway, context: CallContext) -> None:
    """A tool of the run `r` starts a worker, which works for another run that ends."""

    async def work() -> None:
        with call_context(**context), pytest.raises(Blocked):
            await end_run(gateway)

    with call_context(tenant="a", session_id="s", run_id="r"), raise_nested_run_end():
        await asyncio.create_task(work())


@pytest.mark.parametrize(
    "context", [CallContext(tenant="b"), CallContext(session_id="other"), CallContext(run_id="other")]
)
async def test_a_tool_doesnt_hear_of_other_runs_of_a_worker_that_it_started(
    fake_gateway: FakeGateway, context: CallContext
) -> None:
    await end_run_of_worker(fake_gateway, context)


@pytest.mark.parametrize("context", [CallContext(), CallContext(run_id="child", parent_run_id="r")])
async def test_a_tool_hears_of_its_own_run_and_of_the_runs_that_name_it_as_their_parent(
    fake_gateway: FakeGateway, context: CallContext
) -> None:
    with pytest.raises(Blocked, match="stop"):
        await end_run_of_worker(fake_gateway, context)


async def test_a_tool_hears_of_runs_that_are_nested_deeper(fake_gateway: FakeGateway) -> None:
    async def run_child() -> None:
        with call_context(run_id="child", parent_run_id="r"), pytest.raises(Blocked), raise_nested_run_end():
            await run_grandchild()

    async def run_grandchild() -> None:
        with call_context(run_id="grandchild", parent_run_id="child"), pytest.raises(Blocked):
            await end_run(fake_gateway)

    with pytest.raises(Blocked, match="stop"), call_context(run_id="r"), raise_nested_run_end():
        await run_child()


async def test_a_tool_that_ended_keeps_no_error_of_a_worker_that_outlives_it(fake_gateway: FakeGateway) -> None:
    has_ended = asyncio.Event()

    async def work() -> bool:
        await has_ended.wait()
        try:
            await end_run(fake_gateway)
        except Blocked as error:
            kept = weakref.ref(error)
        gc.collect()
        return kept() is not None

    with raise_nested_run_end():
        worker = asyncio.create_task(work())
    has_ended.set()
    assert not await worker


def test_code_that_isnt_async_needs_no_event_loop(fake_gateway: FakeGateway) -> None:
    Points(fake_gateway, before_llm_request=patch(text="[X]"))
    points = blocking_points(blocking.Agent(fake_gateway.url, token="token"))
    request = ModelRequest(text="hi", messages=[])
    assert run_blocking(guard_model_request(points, request, ModelCall())) == ModelRequestPatch(text="[X]")
    with pytest.raises(TypeError, match=r"use hookgate\.agent\.sync"):
        blocking_points(Agent(fake_gateway.url, token="token"))
