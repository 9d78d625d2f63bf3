"""Blocks, and calls without a decision."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Awaitable, Callable
from typing import cast

import grpc
import grpc.aio
import pytest
from support.agents import Kind, make_agent
from support.fake_gateway import Failure, FakeGateway, Hang, ReceivedCall, Reply

from hookgate._address import Address
from hookgate._channel import TlsFiles, dial
from hookgate._proto import gateway_pb2, types_pb2
from hookgate.agent import (
    Agent,
    BeforeToolCall,
    Blocked,
    CallError,
    Continue,
    NoDecision,
    PluginNotice,
    Step,
    Violation,
    _connection,
)

STEPS = [
    gateway_pb2.Step(plugin="first", binding="a", outcome=gateway_pb2.STEP_OUTCOME_MODIFIED, duration_us=3),
    gateway_pb2.Step(
        plugin="guard",
        binding="floor",
        outcome=gateway_pb2.STEP_OUTCOME_FAILED,
        reason=gateway_pb2.STEP_REASON_BREAKER_OPEN,
    ),
]
READ_STEPS = (
    Step(plugin="first", binding="a", outcome="modified", duration_us=3),
    Step(plugin="guard", binding="floor", outcome="failed", reason="breaker_open", duration_us=0),
)
PATCHED = types_pb2.BeforeToolCallPayload(tool_name="patched", args=b"{}")


def own_call(agent: Agent, **options: object) -> Awaitable[Continue[BeforeToolCall]]:
    call = cast("Callable[..., Awaitable[Continue[BeforeToolCall]]]", agent.before_tool_call)
    return call(tool_name="own", args={"n": 1}, **options)


async def no_decision(call: Awaitable[object]) -> NoDecision:
    with pytest.raises(NoDecision) as raised:
        await call
    assert not isinstance(raised.value, Blocked)
    return raised.value


def response(decision: types_pb2.Decision.ValueType, **members: object) -> gateway_pb2.BeforeToolCallResponse:
    members = {"payload": PATCHED, "plan_digest": "plan", "revision": 7, "request_id": "id", **members}
    return gateway_pb2.BeforeToolCallResponse(decision=decision, **members)  # type: ignore[arg-type]


async def test_a_block_is_raised_with_all_that_it_says_and_the_call_is_made_once(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    block = gateway_pb2.Block(
        plugin="auth",
        binding="floor",
        code="TOOL_NOT_ALLOWED",
        message="no",
        retry_after_ms=1500,
        scope=types_pb2.CANCEL_SCOPE_RUN,
    )
    notice = gateway_pb2.PluginNotice(kind=types_pb2.NOTICE_KIND_BLOCK, message="no")
    fake_gateway.reply(response(types_pb2.DECISION_BLOCK, block=block, notices=[notice], steps=STEPS))
    # `go_on` applies to the lack of a decision, never to a block.
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        with pytest.raises(Blocked) as raised:
            await own_call(agent)
    error = raised.value
    assert not isinstance(error, CallError)
    assert (error.point, error.code, error.message, str(error)) == ("before_tool_call", "TOOL_NOT_ALLOWED", "no", "no")
    assert (error.scope, error.retry_after_ms, error.plugin, error.binding) == ("run", 1500, "auth", "floor")
    assert error.payload == BeforeToolCall(tool_name="patched", args={})
    assert error.notices == (PluginNotice(kind="block", message="no"),)
    assert error.steps == READ_STEPS
    assert (error.plan_digest, error.revision, error.request_id) == ("plan", 7, "id")
    assert len(fake_gateway.calls) == 1
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.code, copied.payload) == (Blocked, error.code, error.payload)


async def test_a_block_says_only_what_the_gateway_reveals(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    fake_gateway.reply(response(types_pb2.DECISION_BLOCK, block=gateway_pb2.Block(code="X", message="no")))
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        with pytest.raises(Blocked) as raised:
            await own_call(agent)
    error = raised.value
    assert (error.scope, error.plugin, error.binding, error.retry_after_ms) == ("step", None, None, None)


async def test_an_error_has_its_code_its_step_and_the_steps_until_then(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    report = gateway_pb2.ChainReport(steps=STEPS, omitted_steps=2).SerializeToString()
    metadata = {"plugin": "guard", "binding": "floor", "step_reason": "breaker_open", "point": "before_tool_call"}
    detail = "Plugin 'guard' failed"
    fake_gateway.reply(
        Failure(grpc.StatusCode.UNAVAILABLE, detail, "PLUGIN_UNAVAILABLE", metadata=metadata, report=report)
    )
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        error = await no_decision(own_call(agent))
    assert str(error) == f"no decision at before_tool_call: PLUGIN_UNAVAILABLE: {detail}"
    assert (error.point, error.kind, error.code, error.detail) == (
        "before_tool_call",
        "error",
        "PLUGIN_UNAVAILABLE",
        detail,
    )
    assert (error.plugin, error.binding, error.reason) == ("guard", "floor", "breaker_open")
    assert (error.steps, error.omitted_steps, error.request_id) == (READ_STEPS, 2, "error-id")
    assert error.is_transient
    assert isinstance(error.__cause__, grpc.RpcError)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), copied.point, copied.steps) == (
        NoDecision,
        str(error),
        error.point,
        READ_STEPS,
    )


async def test_an_error_with_a_report_that_cant_be_read_is_as_good_without_it(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    fake_gateway.reply(Failure(grpc.StatusCode.INTERNAL, "broken", "PLUGIN_ERROR", report=b"\xff\xff"))
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        error = await no_decision(own_call(agent))
    assert (error.code, error.steps) == ("PLUGIN_ERROR", ())


async def test_an_invalid_request_is_told_by_its_members_and_isnt_transient(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    violations = [("/payload/args", "too deep"), ("", "bad")]
    status = grpc.StatusCode.INVALID_ARGUMENT
    fake_gateway.reply(Failure(status, "2 invalid members", "PAYLOAD_INVALID", violations=violations))
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        error = await no_decision(own_call(agent))
    assert error.violations == (Violation("/payload/args", "too deep"), Violation("", "bad"))
    assert (error.code, error.retry_after_ms, error.steps) == ("PAYLOAD_INVALID", None, ())
    assert not error.is_transient


async def test_an_overload_is_transient_and_says_when_to_try_again(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    fake_gateway.reply(Failure(grpc.StatusCode.UNAVAILABLE, "busy", "OVERLOADED", retry_after_ms=3000))
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        error = await no_decision(own_call(agent))
    assert (error.code, error.is_transient, error.retry_after_ms) == ("OVERLOADED", True, 3000)


async def test_who_ignores_outages_isnt_brought_to_ignore_rules(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    outages = {
        "OVERLOADED",
        "DRAINING",
        "STORE_UNAVAILABLE",
        "RECORD_UNAVAILABLE",
        "PLUGIN_UNAVAILABLE",
        "PLUGIN_TIMEOUT",
        "BUDGET_EXHAUSTED",
        "TENANT_LIMITED",
    }
    others = {
        "PLUGIN_ERROR",
        "PLUGIN_BAD_REPLY",
        "INTERNAL",
        "PAYLOAD_TOO_LARGE",
        "PAYLOAD_INVALID",
        "STEPS_REQUIRED",
        "TOKEN_EXPIRED",
        "PLAN_CHANGED",
        "LOOP",
        "",
        "NEW",
    }
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        for code in sorted(outages | others):
            fake_gateway.reply(Failure(grpc.StatusCode.UNAVAILABLE, "x", code))
            if code in outages:
                decision = await own_call(agent)
                assert decision.no_decision is not None
                assert decision.no_decision.code == code
            else:
                assert (await no_decision(own_call(agent))).code == code


async def test_errors_of_a_hook_and_of_a_list_are_call_errors(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    status = grpc.StatusCode.DEADLINE_EXCEEDED
    fake_gateway.reply(Failure(status, "too late", "PLUGIN_TIMEOUT", metadata={"plugin": "notes"}))
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        with pytest.raises(CallError, match=r"^no answer at the hook recall: PLUGIN_TIMEOUT: too late$") as raised:
            await agent.run_hook("recall", {})
        assert not isinstance(raised.value, NoDecision)
        assert raised.value.plugin == "notes"
        with pytest.raises(CallError, match=r"^no list of tools: PLUGIN_TIMEOUT: too late$"):
            await agent.list_tools()


def contradictions() -> dict[str, gateway_pb2.BeforeToolCallResponse]:
    """Answers by what their error says."""
    block = gateway_pb2.Block(code="X", message="no")
    no_payload = response(types_pb2.DECISION_CONTINUE)
    no_payload.ClearField("payload")
    return {
        "no decision that this version": response(types_pb2.DECISION_UNSPECIFIED),
        "no decision that this version of": response(cast("types_pb2.Decision.ValueType", 77)),
        "it has no payload": no_payload,
        r"payload\.args is missing": response(
            types_pb2.DECISION_CONTINUE, payload=types_pb2.BeforeToolCallPayload(tool_name="t")
        ),
        "args is not JSON": response(
            types_pb2.DECISION_CONTINUE, payload=types_pb2.BeforeToolCallPayload(tool_name="t", args=b"{")
        ),
        "args is not JSON: .*utf-8|invalid start byte": response(
            types_pb2.DECISION_CONTINUE, payload=types_pb2.BeforeToolCallPayload(tool_name="t", args=b'"\xff"')
        ),
        r"payload\.extra is of the type list": response(
            types_pb2.DECISION_CONTINUE, payload=types_pb2.BeforeToolCallPayload(tool_name="t", args=b"1", extra=b"[]")
        ),
        "decision and its block contradict": response(types_pb2.DECISION_CONTINUE, block=block),
        "decision and its block contradict each": response(types_pb2.DECISION_BLOCK),
        "decision and its block contradict each other": response(types_pb2.DECISION_ANSWER, block=block, result=b"1"),
        "decision and its result contradict": response(types_pb2.DECISION_ANSWER),
        "decision and its result contradict each": response(types_pb2.DECISION_CONTINUE, result=b"1"),
        "decision and its result contradict each other": response(types_pb2.DECISION_BLOCK, block=block, result=b"1"),
        "result is not JSON": response(types_pb2.DECISION_ANSWER, result=b"nope"),
        "details is not JSON": response(
            types_pb2.DECISION_CONTINUE, notices=[gateway_pb2.PluginNotice(message="m", details=b"{")]
        ),
        "changes is no object": response(types_pb2.DECISION_CONTINUE, steps=[gateway_pb2.Step(changes=b"[]")]),
    }


async def test_an_answer_that_contradicts_itself_is_malformed_and_never_goes_on(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        for message, answer in contradictions().items():
            fake_gateway.reply(answer)
            with pytest.raises(NoDecision, match=message) as raised:
                await own_call(agent, takes_results=True)
            assert (raised.value.kind, raised.value.request_id) == ("malformed", "id"), message
            assert not raised.value.is_transient


async def test_malformed_members_of_other_points_never_go_on(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    go_on = types_pb2.DECISION_CONTINUE
    result = types_pb2.AfterToolResultPayload(tool_name="t", result=b"1")
    request = types_pb2.BeforeLlmRequestPayload
    answers: list[tuple[str, dict[str, object], Reply, str]] = []
    for payload, message in (
        (request(images=[types_pb2.Media(mime_type="a/b")]), r"payload\.images\[0\] has neither data nor url"),
        (request(messages=b"{}"), r"payload\.messages is of the type dict"),
        (request(tools=b"[NaN]"), "tools is not JSON"),
    ):
        reply = gateway_pb2.BeforeLlmRequestResponse(decision=go_on, payload=payload)
        answers.append(("before_llm_request", {"text": ""}, reply, message))
    after = gateway_pb2.AfterToolResultResponse(decision=go_on, payload=result).SerializeToString()
    arguments: dict[str, object] = {"tool_name": "t", "result": 1, "success": True}
    answers.append(("after_tool_result", arguments, after, r"payload\.success is missing"))
    # A result exists before a tool call only.
    answered = gateway_pb2.BeforeResponseResponse(
        decision=types_pb2.DECISION_ANSWER, payload=types_pb2.BeforeResponsePayload()
    ).SerializeToString()
    answers.append(("before_response", {"content": ""}, answered, "decision and its result contradict"))
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        for method, members, answer, message in answers:
            fake_gateway.reply(answer)
            with pytest.raises(NoDecision, match=message) as raised:
                await getattr(agent, method)(**members)
            assert raised.value.kind == "malformed"
        hooks: list[Reply] = [
            b"\xff\xff",
            gateway_pb2.RunHookResponse(contributions=[gateway_pb2.PluginContribution()]),
        ]
        for body in hooks:
            fake_gateway.reply(body)
            with pytest.raises(CallError) as hook:
                await agent.run_hook("recall", {})
            assert hook.value.kind == "malformed"
        lists: list[Reply] = [b"\xff\xff", gateway_pb2.ListToolsResponse(tools=[gateway_pb2.ListedTool()])]
        for body in lists:
            fake_gateway.reply(body)
            with pytest.raises(CallError) as tools:
                await agent.list_tools()
            assert tools.value.kind == "malformed"


async def test_what_isnt_a_gateways_answer_is_malformed(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    replies: dict[str, Reply] = {
        "garbage": b"\xff\xff\xff",
        "nothing": b"",
        "a text that isn't UTF-8": response(types_pb2.DECISION_CONTINUE)
        .SerializeToString()
        .replace(b"plan", b"\xff" * 4),
        "a page for people": Failure(grpc.StatusCode.UNAUTHENTICATED, "log in"),
        "another service's error": Failure(grpc.StatusCode.INTERNAL, "x", "PLUGIN_TIMEOUT", domain="example.com"),
        "an unknown service": Failure(grpc.StatusCode.UNIMPLEMENTED, "unknown service"),
        "too large": Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large"),
    }
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        for what, reply in replies.items():
            fake_gateway.reply(reply)
            error = await no_decision(own_call(agent))
            assert (error.kind, error.code) == ("malformed", None), what


async def test_an_answer_that_is_too_large_never_goes_on(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    fake_gateway.reply(response(types_pb2.DECISION_CONTINUE, plan_digest="x" * (18 << 20)))
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        assert (await no_decision(own_call(agent))).kind == "malformed"


async def test_a_proxy_that_doesnt_reach_the_gateway_is_unreachable(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    fake_gateway.reply(Failure(grpc.StatusCode.UNAVAILABLE, "bad gateway"))
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        error = await no_decision(own_call(agent))
    assert (error.kind, error.code, error.is_transient) == ("unreachable", None, True)
    assert error.detail == "bad gateway"


async def test_a_gateway_that_ends_the_call_is_unreachable(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    fake_gateway.reply(Failure(grpc.StatusCode.CANCELLED, "cancelled"))
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        assert (await no_decision(own_call(agent))).kind == "unreachable"


async def test_a_lost_connection_is_unreachable_and_the_call_isnt_repeated(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    fake_gateway.reply(Hang())
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        call = asyncio.ensure_future(own_call(agent))
        assert await asyncio.to_thread(fake_gateway.arrived.acquire, timeout=10)
        await asyncio.to_thread(fake_gateway.stop)
        assert (await no_decision(call)).kind == "unreachable"
    assert len(fake_gateway.calls) == 1


async def test_a_gateway_that_doesnt_answer_in_time_is_a_timeout_and_the_call_is_cancelled(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        await own_call(agent)  # to be connected
        fake_gateway.reply(Hang())
        error = await no_decision(own_call(agent, timeout=0.5))
    assert (error.kind, error.is_transient) == ("timeout", True)
    assert str(error) == "no decision at before_tool_call: no answer from the gateway within 0.5 s"
    assert await asyncio.to_thread(fake_gateway.calls[1].ended.wait, 10)


async def test_a_task_that_is_cancelled_cancels_its_call_and_never_goes_on(fake_gateway: FakeGateway) -> None:
    fake_gateway.reply(Hang())
    async with make_agent("async", fake_gateway.url, on_no_decision="go_on") as agent:
        call = asyncio.ensure_future(own_call(agent))
        assert await asyncio.to_thread(fake_gateway.arrived.acquire, timeout=10)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(fake_gateway.calls[0].ended.wait, 10)
    assert len(fake_gateway.calls) == 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 doesn't know who is cancelled")
async def test_a_call_that_nobody_but_grpc_cancels_has_no_decision(
    fake_gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels = []

    def dial_and_keep(address: Address, files: TlsFiles) -> grpc.aio.Channel:
        channels.append(dial(address, files))
        return channels[-1]

    monkeypatch.setattr(_connection, "dial", dial_and_keep)
    fake_gateway.reply(Hang())
    async with make_agent("async", fake_gateway.url) as agent:
        call = asyncio.ensure_future(own_call(agent))
        assert await asyncio.to_thread(fake_gateway.arrived.acquire, timeout=10)
        await channels[0].close()
        error = await no_decision(call)
    assert (error.kind, error.is_transient) == ("unreachable", True)
    assert isinstance(error.__cause__, asyncio.CancelledError)


async def test_a_timeout_of_asyncio_cancels_the_call(fake_gateway: FakeGateway) -> None:
    fake_gateway.reply(Hang())
    async with make_agent("async", fake_gateway.url, on_no_decision="go_on") as agent:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(own_call(agent), 0.3)


async def test_an_agent_that_may_go_on_does_so_with_its_own_payload_where_it_may(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    fake_gateway.reply(Failure(grpc.StatusCode.DEADLINE_EXCEEDED, "late", "PLUGIN_TIMEOUT"))
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision={"before_tool_call": "go_on"}) as agent:
        decision = await own_call(agent)
        own = BeforeToolCall(tool_name="own", args={"n": 1})
        assert decision == Continue(payload=own, modified=False, no_decision=decision.no_decision)
        assert decision.no_decision is not None
        assert (decision.no_decision.code, decision.no_decision.point) == ("PLUGIN_TIMEOUT", "before_tool_call")
        await no_decision(own_call(agent, on_no_decision="fail"))
        await no_decision(agent.before_response(content="c"))
        assert (await agent.before_response(content="c", on_no_decision="go_on")).no_decision is not None


async def test_names_that_a_later_gateway_may_use_dont_make_an_answer_malformed(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    step = gateway_pb2.Step(plugin="p", binding="b", outcome=77, reason=78, duration_us=1)  # type: ignore[arg-type]
    notice = gateway_pb2.PluginNotice(kind=79, message="m")  # type: ignore[arg-type]
    fake_gateway.reply(
        response(types_pb2.DECISION_CONTINUE, steps=[step], notices=[notice]).SerializeToString() + b"\xf8\x07\x01"
    )
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        decision = await own_call(agent)
    assert decision.steps == (Step(plugin="p", binding="b", outcome="unknown", reason="unknown", duration_us=1),)
    assert decision.notices == (PluginNotice(kind="unknown", message="m"),)


def test_names_of_enums_are_those_of_the_protos_in_their_order() -> None:
    from hookgate.agent import _answers

    for names, enum, prefix in (
        (_answers._OUTCOMES, gateway_pb2.StepOutcome, "STEP_OUTCOME_"),
        (_answers._REASONS, gateway_pb2.StepReason, "STEP_REASON_"),
        (_answers._NOTICE_KINDS, types_pb2.NoticeKind, "NOTICE_KIND_"),
    ):
        of_proto = [name.removeprefix(prefix).lower() for name, number in enum.items() if number != 0]
        assert [*names] == [*of_proto, "unknown"]


async def test_an_unreachable_gateway_is_no_decision_unless_the_agent_may_go_on(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    fake_gateway.stop()
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        error = await no_decision(own_call(agent))
        assert (error.kind, error.is_transient, error.code) == ("unreachable", True, None)
        assert "refused" in str(error).lower()
        decision = await own_call(agent, on_no_decision="go_on")
        assert decision.payload == BeforeToolCall(tool_name="own", args={"n": 1})
        assert decision.no_decision is not None
        assert decision.no_decision.kind == "unreachable"
        with pytest.raises(CallError) as raised:
            await agent.run_hook("recall", {})
        assert raised.value.kind == "unreachable"


async def test_a_scripted_gateway_sees_each_call(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    def refuse_shell(call: ReceivedCall) -> Reply:
        payload = call.request(gateway_pb2.BeforeToolCallRequest).payload
        if payload.tool_name == "shell":
            return response(types_pb2.DECISION_BLOCK, block=gateway_pb2.Block(code="X", message="no"))
        return response(types_pb2.DECISION_CONTINUE, payload=payload)

    fake_gateway.script = refuse_shell
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        calls = [agent.before_tool_call(tool_name=name, args={}) for name in ("read", "shell", "read")]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [Continue, Blocked, Continue]
