"""Models and tools of the OpenAI Agents SDK behind the gateway, with the real library and a scripted model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from agents import (
    Agent,
    ModelBehaviorError,
    Runner,
    RunResultStreaming,
    ToolOutputText,
    WebSearchTool,
)
from google.protobuf.message import Message
from pydantic import BaseModel
from support.fake_gateway import FakeGateway, Reply
from support.openai_agent import ScriptedModel, SetUp, call, message, read_tool, reasoning
from support.points import (
    CARD,
    CARD_REDACTED,
    EMAIL,
    EMAIL_REDACTED,
    RUN_ENDS,
    PointReply,
    Points,
    Values,
    answer,
    block,
    patch,
    redact,
    replace_text,
)

from hookgate.adapters.openai_agents import (
    PatchError,
    find_gateway_error,
    guard_model,
    guard_tools,
)
from hookgate.agent import Blocked, NoDecision, call_context
from hookgate.agent import sync as blocking


def question() -> list[Any]:
    parts = [
        {"type": "input_text", "text": "Who am I?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AQID", "detail": "auto"},
        {"type": "input_file", "file_url": "https://x/y.pdf", "filename": "y.pdf"},
    ]
    return [{"role": "user", "content": "My name is Ada."}, {"role": "user", "content": parts}]


async def test_an_allowed_run_passes_all_points_and_nothing_changes(fake_gateway: FakeGateway) -> None:
    read, paths = read_tool()
    set_up = SetUp(fake_gateway, [[call()], [reasoning("hm"), message("It is ")]], [read])
    with call_context(session_id="s-1"):
        result = await set_up.run(question())
    assert (result.final_output, paths) == ("It is ", ["/etc/hosts"])
    points = set_up.points
    assert points.names == [
        "BeforeLlmRequest",
        "BeforeToolCall",
        "AfterToolResult",
        "BeforeLlmRequest",
        "BeforeResponse",
    ]
    assert set(points.sessions()) == {"s-1"}
    request = points.payloads("BeforeLlmRequest")[0]
    assert (request["text"], request["system_prompt"]) == ("Who am I?", "Be kind.")
    assert request["messages"] == question()
    assert cast("Any", request["tools"])[0]["name"] == "read"
    image, file = points.media("BeforeLlmRequest")[:2]
    assert (image.data, image.mime_type) == (b"\x01\x02\x03", "image/png")
    assert (file.url, file.filename) == ("https://x/y.pdf", "y.pdf")
    args = {"path": "/etc/hosts"}
    assert points.payloads("BeforeToolCall") == [{"tool_name": "read", "args": args, "call_id": "call-1"}]
    after = points.payloads("AfterToolResult")[0]
    assert (after["result"], after["success"], after["args"]) == ("the content of /etc/hosts", True, args)
    assert points.payloads("BeforeResponse") == [{"content": "It is ", "reasoning": "hm", "model": "fake-1"}]
    assert set_up.model.requests[0]["input"] == question()
    assert "secret bytes" in repr(result.raw_responses)


async def test_a_blocking_agent_is_asked_in_threads(fake_gateway: FakeGateway) -> None:
    points = Points(fake_gateway, before_response=patch(content="[X]"))
    agent = blocking.Agent(fake_gateway.url, token="token")
    model = guard_model(agent, ScriptedModel([message("secret")]))
    with call_context(session_id="s-1"):
        result = await Runner.run(Agent(name="assistant", model=model), "hi")
    assert (result.final_output, points.sessions()) == ("[X]", ["s-1", "s-1"])


async def test_a_rewritten_request_is_what_the_model_gets(fake_gateway: FakeGateway) -> None:
    replies = {"before_llm_request": replace_text("Ada", "[NAME]")}
    set_up = SetUp(fake_gateway, [[message("done")]], replies=replies, instructions="Ada pays.")
    await set_up.run([*question(), {"role": "user", "content": "Is it Ada?"}])
    [request] = set_up.model.requests
    assert request["instructions"] == "[NAME] pays."
    assert "Ada" not in repr(request["input"])
    assert request["input"][-1]["content"] == "Is it [NAME]?"


async def test_only_the_text_changes_if_a_plugin_changes_only_the_text(fake_gateway: FakeGateway) -> None:
    replies = {"before_llm_request": patch(text="Who is [NAME]?")}
    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [read_tool()[0]], replies)
    await set_up.run(question())
    for request in set_up.model.requests:
        first, asked = request["input"][:2]
        assert first == question()[0]
        assert asked["content"] == [{"type": "input_text", "text": "Who is [NAME]?"}, *question()[1]["content"][1:]]


def fewer_offers(response: Message, values: Values) -> Reply:
    """Without the images and the first tool, and with another description of the handoff, and another prompt."""
    payload = cast("Any", response).payload
    del payload.images[:]
    _, read, handoff = cast("Any", values["tools"])
    extra = {"prompt": {"id": "p", "variables": {"name": "[NAME]"}}}
    return patch(tools=[read, {**handoff, "description": "Rarely."}], extra=cast("Any", extra))(response, values)


async def test_a_plugin_takes_an_image_and_a_tool_away_and_changes_a_handoff_and_a_prompt(
    fake_gateway: FakeGateway,
) -> None:
    tools = [read_tool(name="write")[0], read_tool()[0]]
    prompt = {"id": "p", "variables": {"name": "Ada"}}
    options: dict[str, Any] = {"handoffs": [Agent(name="other")], "prompt": prompt}
    set_up = SetUp(fake_gateway, [[message("done")]], tools, {"before_llm_request": fewer_offers}, **options)
    await set_up.run(question())
    [request] = set_up.model.requests
    assert [tool.name for tool in request["tools"]] == ["read"]
    assert [handoff.tool_description for handoff in request["handoffs"]] == ["Rarely."]
    assert request["prompt"] == {"id": "p", "variables": {"name": "[NAME]"}}
    assert [part["type"] for part in request["input"][1]["content"]] == ["input_text", "input_file"]


async def test_a_renamed_tool_is_refused(fake_gateway: FakeGateway) -> None:
    replies = {"before_llm_request": replace_text("read", "write")}
    set_up = SetUp(fake_gateway, [[message("done")]], [read_tool()[0]], replies)
    with pytest.raises(PatchError):
        await set_up.run()
    assert set_up.model.requests == []


async def test_rewritten_arguments_are_what_the_tool_gets_after_its_own_validation(fake_gateway: FakeGateway) -> None:
    read, paths = read_tool()
    replies = {"before_tool_call": patch(args={"path": "/tmp/a"})}
    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [read], replies)
    await set_up.run()
    assert paths == ["/tmp/a"]
    assert set_up.points.payloads("AfterToolResult")[0]["args"] == {"path": "/tmp/a"}
    wrong = SetUp(fake_gateway, [[call()], [message("done")]], [read], {"before_tool_call": patch(args={"path": 1})})
    await wrong.run()
    assert paths == ["/tmp/a"]
    assert "Invalid JSON input" in str(wrong.tool_output) or "error" in str(wrong.tool_output)


async def test_a_renamed_call_runs_the_other_tool_or_ends_the_run(fake_gateway: FakeGateway) -> None:
    replies = {"before_tool_call": patch(tool_name="safe_read")}
    (read, paths), (safe_read, safe_paths) = read_tool(), read_tool(name="safe_read")
    await SetUp(fake_gateway, [[call()], [message("done")]], [read, safe_read], replies).run()
    assert (paths, safe_paths) == ([], ["/etc/hosts"])
    with pytest.raises(Exception, match="none of the tools"):
        await SetUp(fake_gateway, [[call()], [message("done")]], [read], replies).run()
    assert paths == []


async def test_a_rewritten_result_is_what_the_model_gets(fake_gateway: FakeGateway) -> None:
    replies = {"after_tool_result": replace_text("content", "[REDACTED]")}
    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [read_tool()[0]], replies)
    result = await set_up.run()
    assert set_up.tool_output == "the [REDACTED] of /etc/hosts"
    assert "the content" not in repr(result.new_items)
    parts, _ = read_tool(lambda _: [ToolOutputText(text="the content")])
    structured = SetUp(fake_gateway, [[call()], [message("done")]], [parts], replies)
    await structured.run()
    assert structured.tool_output == [{"type": "input_text", "text": "the [REDACTED]"}]


async def test_a_plugins_answer_replaces_the_tool(fake_gateway: FakeGateway) -> None:
    read, paths = read_tool()
    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [read], {"before_tool_call": answer({"id": 2**70})})
    await set_up.run()
    assert paths == []
    assert set_up.tool_output == json.dumps({"id": 2**70}).replace(" ", "")
    assert len(set_up.points.payloads("AfterToolResult")) == 1


async def test_a_tool_that_raises_is_told_and_ends_the_run_or_is_a_text(fake_gateway: FakeGateway) -> None:
    def fail(_: str) -> object:
        raise FileNotFoundError("no such file: /home/ada")

    raises, _ = read_tool(fail, failure_error_function=None)
    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [raises])
    with pytest.raises(Exception, match="no such file"):
        await set_up.run()
    told = set_up.points.payloads("AfterToolResult")[0]
    assert (told["result"], told.get("success", False)) == ("no such file: /home/ada", False)
    says, _ = read_tool(fail)
    replies = {"after_tool_result": replace_text("error", "[X]")}
    text = SetUp(fake_gateway, [[call()], [message("done")]], [says], replies)
    await text.run()
    assert str(text.tool_output).startswith("An [X] occurred")


async def test_a_blocked_call_of_a_tool_is_its_result_and_nothing_runs(fake_gateway: FakeGateway) -> None:
    read, paths = read_tool()
    replies = {"before_tool_call": block("not on your plan")}
    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [read], replies)
    assert (await set_up.run()).final_output == "done"
    assert (paths, set_up.tool_output) == ([], "not on your plan")
    assert set_up.points.payloads("AfterToolResult") == []


async def test_each_of_several_calls_is_judged_for_itself(fake_gateway: FakeGateway) -> None:
    def only_read(response: Message, values: Values) -> Reply:
        return response if values["tool_name"] == "read" else block("no writing")(response, values)

    (read, paths), (write, written) = read_tool(), read_tool(name="write")
    answers: list[list[Any]] = [[call(), call("write", "call-2")], [message("done")]]
    set_up = SetUp(fake_gateway, answers, [read, write], {"before_tool_call": only_read})
    await set_up.run()
    assert (paths, written) == (["/etc/hosts"], [])
    outputs = [item["output"] for item in set_up.model.requests[-1]["input"] if "output" in item]
    assert outputs == ["the content of /etc/hosts", "no writing"]


async def test_a_blocked_result_is_replaced_by_the_message(fake_gateway: FakeGateway) -> None:
    read, paths = read_tool()
    replies = {"after_tool_result": block("contains secrets")}
    set_up = SetUp(fake_gateway, [[call()], [message("done")]], [read], replies)
    result = await set_up.run()
    assert (paths, set_up.tool_output) == (["/etc/hosts"], "contains secrets")
    assert "the content of" not in repr(result.new_items)


async def test_the_message_of_a_blocked_response_is_all_that_remains_of_it(fake_gateway: FakeGateway) -> None:
    read, paths = read_tool()
    output: list[Any] = [reasoning("secret"), message("secret"), call()]
    set_up = SetUp(fake_gateway, [output], [read], {"before_response": block("I can't say that.")})
    result = await set_up.run()
    assert (result.final_output, paths) == ("I can't say that.", [])
    assert "secret" not in repr(result.raw_responses) + repr(result.new_items)


async def test_a_rewritten_response_has_no_copy_of_the_old_text_and_its_tools_still_run(
    fake_gateway: FakeGateway,
) -> None:
    read, paths = read_tool()
    output = [reasoning("a secret"), message("the secret"), call(), message("secret too", "msg-2")]
    replies = {"before_response": replace_text("secret", "[X]")}
    set_up = SetUp(fake_gateway, [output, [message("done")]], [read], replies)
    result = await set_up.run()
    assert paths == ["/etc/hosts"]
    assert "secret" not in repr(result.raw_responses) + repr(set_up.model.requests)
    kinds = [item.type for item in result.raw_responses[0].output]
    assert kinds == ["reasoning", "message", "function_call", "message"]
    texts = [item.content[0].text for item in result.raw_responses[0].output if item.type == "message"]
    assert texts == ["the [X]", "[X] too"]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
async def test_texts_that_a_reader_sees_apart_are_judged_apart_and_changed_in_place(
    fake_gateway: FakeGateway, is_streamed: bool
) -> None:
    first = [message(EMAIL[0]), call(), message(EMAIL[1], "msg-2")]
    last = [reasoning(CARD[0]), reasoning(CARD[1]), message(CARD[0]), message(CARD[1], "msg-2")]
    set_up = SetUp(fake_gateway, [first, last], [read_tool()[0]], {"before_response": redact})
    deltas: list[str] = []
    if is_streamed:
        result: Any = set_up.stream()
        seen: list[Any] = [getattr(event, "data", None) async for event in result.stream_events()]
        deltas = [data.delta for data in seen if getattr(data, "type", "") == "response.output_text.delta"]
    else:
        result = await set_up.run()
    assert deltas == ([*EMAIL_REDACTED, *CARD_REDACTED] if is_streamed else [])
    kept = reasoning(CARD[1])
    changed = reasoning(CARD_REDACTED[0]).model_copy(update={"encrypted_content": None})
    texts = [message(CARD_REDACTED[0]), message(CARD[1], "msg-2")]
    assert [answered.output for answered in result.raw_responses] == [
        [message(EMAIL_REDACTED[0]), call(), message(EMAIL[1], "msg-2")],
        [changed, kept, *texts],
    ]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("what", RUN_ENDS)
async def test_what_ends_the_run(fake_gateway: FakeGateway, what: str, is_streamed: bool) -> None:
    point, reply = RUN_ENDS[what]
    read, paths = read_tool()
    set_up = SetUp(fake_gateway, [[call()], [message("secret")]], [read], {point: reply})
    shown: list[object] = []

    async def run() -> None:
        if not is_streamed:
            await set_up.run()
            return
        async for event in set_up.stream().stream_events():
            shown.append(event)  # noqa: PERF401 - it is read after an error

    with pytest.raises(Exception) as caught:  # noqa: PT011 - the SDK's errors differ
        await run()
    found = find_gateway_error(caught.value)
    assert isinstance(found, NoDecision if what.startswith("no decision") else Blocked)
    assert found.point == point
    assert len(paths) == (1 if point in ("after_tool_result", "before_response") else 0)
    assert "secret" not in repr(shown)
    assert "delta" not in repr(shown)


async def read_events(result: RunResultStreaming, seen: list[str]) -> None:
    async for event in result.stream_events():
        seen.append(repr(event))  # noqa: PERF401 - it is read before the end


async def test_nothing_is_streamed_before_the_decision_and_then_in_one_piece(fake_gateway: FakeGateway) -> None:
    asked, released = threading.Event(), threading.Event()

    def held(response: Message, values: Values) -> Reply:
        asked.set()
        assert released.wait(30)
        return replace_text("secret", "[X]")(response, values)

    set_up = SetUp(fake_gateway, [[call()], [message("the secret")]], [read_tool()[0]], {"before_response": held})
    seen: list[str] = []
    with call_context(session_id="s-1"):
        result = set_up.stream()
    reading = asyncio.create_task(read_events(result, seen))
    assert await asyncio.to_thread(asked.wait, 30)
    before = "".join(seen)
    assert "the content of" in before
    released.set()
    await reading
    assert "delta='t'" not in before
    assert result.final_output == "the [X]"
    assert "secret" not in "".join(seen)
    assert "delta='s'" not in "".join(seen)
    assert len([event for event in seen if "delta='the [X]'" in event]) == 1
    assert set(set_up.points.sessions()) == {"s-1"}


async def test_an_allowed_stream_comes_as_the_model_gave_it(fake_gateway: FakeGateway) -> None:
    set_up = SetUp(fake_gateway, [[message("abc")]])
    seen: list[str] = []
    result = set_up.stream()
    await read_events(result, seen)
    assert len([event for event in seen if "response.output_text.delta" in event]) == 3
    assert result.final_output == "abc"


async def test_the_output_of_a_stream_that_ends_without_one_is_judged(fake_gateway: FakeGateway) -> None:
    model = ScriptedModel([message("secret")], has_output=False)
    set_up = SetUp(fake_gateway, [], replies={"before_response": block("no")}, model=model)
    seen: list[str] = []
    result = set_up.stream()
    await read_events(result, seen)
    assert result.final_output == "no"
    assert set_up.points.payloads("BeforeResponse")[0]["content"] == "secret"


async def test_nothing_is_shown_of_a_stream_that_breaks_off(fake_gateway: FakeGateway) -> None:
    set_up = SetUp(fake_gateway, [], model=ScriptedModel([message("secret")], end="incomplete"))
    seen: list[str] = []
    with pytest.raises(ModelBehaviorError, match=r"response\.incomplete"):
        await read_events(set_up.stream(), seen)
    assert "delta" not in "".join(seen)


async def test_a_stream_that_says_something_else_than_its_end_shows_the_end(fake_gateway: FakeGateway) -> None:
    class Liar(ScriptedModel):
        async def stream_response(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
            async for event in super().stream_response(*arguments, **options):
                yield event.model_copy(update={"delta": "secret"}) if "delta" in event.type else event

    set_up = SetUp(fake_gateway, [], model=Liar([message("done")]))
    seen: list[str] = []
    await read_events(set_up.stream(), seen)
    assert "secret" not in "".join(seen)
    assert "delta='done'" in "".join(seen)


class Person(BaseModel):
    name: str


async def test_an_answer_in_a_format_is_judged_as_json_can_be_rewritten_and_a_block_raises(
    fake_gateway: FakeGateway,
) -> None:
    def set_up(reply: PointReply) -> SetUp:
        output = [message('{"name":"Ada"}')]
        return SetUp(fake_gateway, [output], replies={"before_response": reply}, output_type=Person)

    rewritten = await set_up(replace_text("Ada", "[X]")).run()
    assert rewritten.final_output == Person(name="[X]")
    with pytest.raises(Blocked):
        await set_up(block("no")).run()


def test_only_function_tools_can_be_guarded(fake_gateway: FakeGateway) -> None:
    agent = Points(fake_gateway).agent
    with pytest.raises(TypeError, match="WebSearchTool"):
        guard_tools(agent, [WebSearchTool()])
    with pytest.raises(TypeError, match="gateway must be an Agent"):
        guard_tools(cast("Any", fake_gateway), [])
