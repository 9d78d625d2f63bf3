"""What an agent sends, and what it gets back."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators import textmap
from support.agents import Kind, PluginCall, make_agent
from support.fake_gateway import FakeGateway

from hookgate._proto import gateway_pb2, types_pb2
from hookgate.agent import (
    AfterToolResult,
    BeforeLlmRequest,
    BeforeResponse,
    BeforeToolCall,
    CallContext,
    Continue,
    HookAnswer,
    JsonObject,
    ListedTool,
    Media,
    NoDecision,
    PluginContribution,
    PluginNotice,
    Step,
    TokenUsage,
    ToolAnnotations,
    ToolList,
    ToolResult,
)

LARGE = 12345678901234567890123


async def test_a_continue_has_the_returned_payload_and_the_facts(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    fake_gateway.reply(
        gateway_pb2.BeforeToolCallResponse(
            decision=types_pb2.DECISION_CONTINUE,
            payload=types_pb2.BeforeToolCallPayload(tool_name="patched", args=b'{"cmd":"ls -l"}'),
            modified=True,
            steps=[
                gateway_pb2.Step(
                    plugin="p",
                    binding="b",
                    outcome=gateway_pb2.STEP_OUTCOME_MODIFIED,
                    duration_us=12,
                    changes=b'{"args":{"n":9007199254740993}}',
                )
            ],
            notices=[
                gateway_pb2.PluginNotice(
                    plugin="p", kind=types_pb2.NOTICE_KIND_WARN, code="C", message="careful", details=b'{"n":1}'
                )
            ],
            plan_digest="plan",
            revision=7,
            request_id="id",
        )
    )
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        decision = await agent.before_tool_call(tool_name="own", args={"cmd": "ls"}, trace=True)
    changes: JsonObject = {"args": {"n": 9007199254740993}}
    assert decision == Continue(
        payload=BeforeToolCall(tool_name="patched", args={"cmd": "ls -l"}),
        modified=True,
        steps=(Step(plugin="p", binding="b", outcome="modified", duration_us=12, changes=changes),),
        notices=(PluginNotice(plugin="p", kind="warn", code="C", message="careful", details={"n": 1}),),
        plan_digest="plan",
        revision=7,
        request_id="id",
    )
    assert fake_gateway.calls[0].request(gateway_pb2.BeforeToolCallRequest).trace
    assert pickle.loads(pickle.dumps(decision)) == decision


REQUEST = BeforeLlmRequest(
    text="hi",
    images=(
        Media(data=b"\x00\xff\n", mime_type="image/png", filename="a.png"),
        Media(url="https://x/y", mime_type="image/gif"),
    ),
    files=(Media(data=b"", mime_type="text/plain"),),
    system_prompt="be kind",
    messages=[{"role": "user", "id": LARGE}],
    tools=[],
    extra={},
)
CALL = BeforeToolCall(tool_name="t", args=None, call_id="c", extra={"a": []})
RESULT = AfterToolResult(tool_name="t", result="", success=False, args=0, call_id="c", duration_ms=12, extra={"x": 1.5})
RESPONSE = BeforeResponse(
    content="c",
    reasoning="r",
    provider="p",
    model="m",
    router="o",
    token_usage=TokenUsage(3, 2**40),
    stop_reason="s",
    extra={"x": 1},
)


async def test_every_point_is_called_with_every_member_and_gives_it_back(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        assert (await agent.before_llm_request(REQUEST)).payload == REQUEST
        assert (await agent.before_tool_call(CALL)).payload == CALL
        assert (await agent.after_tool_result(RESULT)).payload == RESULT
        assert (await agent.before_response(RESPONSE)).payload == RESPONSE
        # Members as keyword arguments are the same.
        for method, payload in (
            (agent.before_llm_request, REQUEST),
            (agent.before_tool_call, CALL),
            (agent.after_tool_result, RESULT),
            (agent.before_response, RESPONSE),
        ):
            members = {each.name: getattr(payload, each.name) for each in dataclasses.fields(payload)}
            decision = await cast("Callable[..., Awaitable[Continue[BeforeResponse]]]", method)(**members)
            assert decision.payload == payload
    methods = ["BeforeLlmRequest", "BeforeToolCall", "AfterToolResult", "BeforeResponse"]
    assert [received.method for received in fake_gateway.calls] == methods * 2
    assert [received.message for received in fake_gateway.calls[:4]] == [
        received.message for received in fake_gateway.calls[4:]
    ]
    assert fake_gateway.calls[0].request(
        gateway_pb2.BeforeLlmRequestRequest
    ).payload == types_pb2.BeforeLlmRequestPayload(
        text="hi",
        images=[
            types_pb2.Media(data=b"\x00\xff\n", mime_type="image/png", filename="a.png"),
            types_pb2.Media(url="https://x/y", mime_type="image/gif"),
        ],
        files=[types_pb2.Media(data=b"", mime_type="text/plain")],
        system_prompt="be kind",
        messages=b'[{"role":"user","id":12345678901234567890123}]',
        tools=b"[]",
        extra=b"{}",
    )


async def test_empty_texts_and_null_are_sent(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        await agent.before_response(content="")
        await agent.before_tool_call(tool_name="t", args=None)
    assert fake_gateway.calls[0].request(gateway_pb2.BeforeResponseRequest).HasField("payload")
    assert fake_gateway.calls[1].request(gateway_pb2.BeforeToolCallRequest).payload.args == b"null"


async def test_a_returned_payload_can_be_passed_on_with_the_bytes_of_its_json(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    args = b'{ "n": 1.0e2, "n2": 10000000000000000000000001 }'
    fake_gateway.reply(
        gateway_pb2.BeforeToolCallResponse(
            decision=types_pb2.DECISION_CONTINUE,
            payload=types_pb2.BeforeToolCallPayload(tool_name="t", args=args),
        )
    )
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        decision = await agent.before_tool_call(tool_name="t", args={})
        await agent.before_tool_call(decision.payload)
        await agent.before_tool_call(dataclasses.replace(decision.payload, call_id="c"))
    sent = [call.request(gateway_pb2.BeforeToolCallRequest).payload for call in fake_gateway.calls]
    assert sent[1].args == args
    assert sent[2] == types_pb2.BeforeToolCallPayload(
        tool_name="t", args=b'{"n":100.0,"n2":10000000000000000000000001}', call_id="c"
    )


async def test_what_is_judged_is_what_the_agent_made_of_a_returned_payload(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        payload = (await agent.before_tool_call(tool_name="t", args={"on": True}, extra={"a": [1]})).payload
        cast("JsonObject", payload.args)["on"] = 1
        assert payload.extra == {"a": [1]}
        await agent.before_tool_call(payload)
    sent = fake_gateway.calls[1].request(gateway_pb2.BeforeToolCallRequest).payload
    assert (sent.args, sent.extra) == (b'{"on":1}', b'{"a":[1]}')


async def test_integers_survive_and_half_surrogates_become_well_formed(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    args = {"id": LARGE, "min": -(2**63), "text": "a\ud83d", "\udca9": "😀"}
    context: CallContext = {"session_id": "s\ud83d", "labels": {"l\ud83d": "\udca9"}}
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        decision = await agent.before_tool_call(tool_name="\ud83d", args=args, call_id="c\udca9", context=context)
    expected: JsonObject = {"id": LARGE, "min": -(2**63), "text": "a\ufffd", "\ufffd": "😀"}
    assert decision.payload == BeforeToolCall(tool_name="\ufffd", args=expected, call_id="c\ufffd")
    sent = fake_gateway.calls[0].request(gateway_pb2.BeforeToolCallRequest).context
    assert sent == gateway_pb2.RequestContext(session_id="s\ufffd", labels={"l\ufffd": "\ufffd"})


async def test_a_large_payload_arrives_whole(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    data = bytes(range(251)) * 26_000
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        decision = await agent.before_llm_request(text="t", images=[Media(data=data, mime_type="x/y")])
    assert decision.payload.images[0].data == data


async def test_a_result_of_a_plugin_comes_only_to_an_agent_that_takes_results(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    fake_gateway.reply(
        gateway_pb2.BeforeToolCallResponse(
            decision=types_pb2.DECISION_ANSWER,
            payload=types_pb2.BeforeToolCallPayload(tool_name="t", args=b"{}"),
            result=b"null",
        )
    )
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        taken = await agent.before_tool_call(tool_name="t", args={}, takes_results=True)
        assert taken == ToolResult(result=None, payload=BeforeToolCall(tool_name="t", args={}), modified=False)
        with pytest.raises(NoDecision, match="a result that was not asked for") as raised:
            await agent.before_tool_call(tool_name="t", args={})
    assert raised.value.kind == "malformed"
    assert fake_gateway.calls[0].request(gateway_pb2.BeforeToolCallRequest).takes_results


async def test_a_hook_gives_contributions(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    fake_gateway.reply(
        gateway_pb2.RunHookResponse(
            contributions=[
                gateway_pb2.PluginContribution(plugin="notes", kind="memory", value=b'{"content":"tea"}'),
                gateway_pb2.PluginContribution(kind="note", value=b"12345678901234567890123"),
            ],
            plan_digest="plan",
            revision=7,
            request_id="id",
        )
    )
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        answer = await agent.run_hook("recall", {"message": "hi"}, expect_plan_digest="d", context={"run_id": "r"})
    assert answer == HookAnswer(
        contributions=(
            PluginContribution(plugin="notes", kind="memory", value={"content": "tea"}),
            PluginContribution(kind="note", value=LARGE),
        ),
        plan_digest="plan",
        revision=7,
        request_id="id",
    )
    assert fake_gateway.calls[0].message == gateway_pb2.RunHookRequest(
        context=gateway_pb2.RequestContext(run_id="r"), hook="recall", body=b'{"message":"hi"}', expect_plan_digest="d"
    )


async def test_tools_are_listed(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    schema = b'{"type":"object","properties":{}}'
    fake_gateway.reply(
        gateway_pb2.ListToolsResponse(
            tools=[
                gateway_pb2.ListedTool(
                    name="memory.retain",
                    description="Remembers.",
                    input_schema=schema,
                    annotations=types_pb2.ToolAnnotations(read_only_hint=False),
                    plugin="memory",
                    binding="b",
                ),
                gateway_pb2.ListedTool(name="x", description="X.", input_schema=schema),
            ],
            plan_digest="plan",
            revision=3,
        )
    )
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        listed = await agent.list_tools()
    assert listed == ToolList(
        tools=(
            ListedTool(
                name="memory.retain",
                description="Remembers.",
                input_schema={"type": "object", "properties": {}},
                annotations=ToolAnnotations(read_only_hint=False),
                plugin="memory",
                binding="b",
            ),
            ListedTool(name="x", description="X.", input_schema={"type": "object", "properties": {}}),
        ),
        plan_digest="plan",
        revision=3,
    )
    assert fake_gateway.calls[0].headers["authorization"] == "Bearer token"


async def test_context_options_and_headers_are_sent(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    of_agent: CallContext = {"agent_id": "a", "depth": 2, "tenant": "acme", "labels": {"x": "1", "y": "1"}}
    context: CallContext = {"session_id": "s", "correlation_id": "mine-1", "labels": {"y": "2"}, "run_id": None}
    async with make_agent(agent_kind, fake_gateway.url, context=of_agent, trace=True, timeout=4) as agent:
        await agent.before_response(content="c", context=context, expect_plan_digest="plan")
    call = fake_gateway.calls[0]
    assert call.message == gateway_pb2.BeforeResponseRequest(
        context=gateway_pb2.RequestContext(session_id="s", depth=2, agent_id="a", labels={"x": "1", "y": "2"}),
        payload=types_pb2.BeforeResponsePayload(content="c"),
        expect_plan_digest="plan",
        trace=True,
    )
    assert call.headers["authorization"] == "Bearer token"
    assert call.headers["x-request-id"] == "mine-1"
    assert "traceparent" not in call.headers
    assert "hookgate-depth" not in call.headers
    assert 2 < call.timeout <= 4.1


async def test_without_a_token_no_header_is_sent(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    async with make_agent(agent_kind, fake_gateway.url, token=None) as agent:
        await agent.before_response(content="c")
    assert "authorization" not in fake_gateway.calls[0].headers


async def test_a_plugins_call_keeps_its_callers_time_trace_and_depth(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    caller = PluginCall(time_left_ms=3000, traceparent=traceparent, tracestate="a=1", depth=2)
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        await agent.before_response(content="c", caller=caller)

    def token(_: CallContext) -> str:
        raise AssertionError("no token is needed when the time is over")

    async with make_agent(agent_kind, fake_gateway.url, token=token) as agent:
        with pytest.raises(NoDecision) as raised:
            await agent.before_response(content="c", caller=PluginCall(time_left_ms=0))
    assert "token" not in str(raised.value.__cause__)
    assert raised.value.kind == "timeout"
    (call,) = fake_gateway.calls
    assert call.headers["traceparent"] == traceparent
    assert call.headers["tracestate"] == "a=1"
    assert call.headers["hookgate-depth"] == "2"
    assert 1 < call.timeout <= 3.1


class _Propagator(textmap.TextMapPropagator):
    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers

    def inject(
        self,
        carrier: textmap.CarrierT,
        context: Context | None = None,
        setter: textmap.Setter[textmap.CarrierT] = textmap.default_setter,
    ) -> None:
        for name, value in self._headers.items():
            setter.set(carrier, name, value)

    def extract(
        self,
        carrier: textmap.CarrierT,
        context: Context | None = None,
        getter: textmap.Getter[textmap.CarrierT] = textmap.default_getter,
    ) -> Context:
        return context or Context()

    @property
    def fields(self) -> set[str]:
        return set(self._headers)


async def test_the_active_span_is_the_parent_before_that_of_the_caller_and_baggage_stays_here(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    traceparent = "00-11111111111111111111111111111111-2222222222222222-01"
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(_Propagator({"traceparent": traceparent, "baggage": "user=1"}))
    try:
        async with make_agent(agent_kind, fake_gateway.url) as agent:
            await agent.before_response(content="c", caller=PluginCall(traceparent="other", tracestate="a=1"))
    finally:
        propagate.set_global_textmap(before)
    headers = fake_gateway.calls[0].headers
    assert headers["traceparent"] == traceparent
    assert "tracestate" not in headers
    assert "baggage" not in headers


async def test_measured_milliseconds_are_rounded(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        await agent.after_tool_result(tool_name="t", result=1, success=True, duration_ms=12.6)
    assert fake_gateway.calls[0].request(gateway_pb2.AfterToolResultRequest).payload.duration_ms == 13
