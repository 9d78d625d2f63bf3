"""What an agent refuses to send."""

from __future__ import annotations

from typing import cast

import pytest
from support.agents import Kind, PluginCall, make_agent
from support.fake_gateway import FakeGateway

from hookgate.agent import Agent, BeforeResponse, Media, TokenUsage

CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)
UNSENDABLE: list[tuple[str, str, dict[str, object], str]] = [
    ("ValueError", "before_tool_call", {"args": {"list": [1, float("nan")]}}, r"args\.list\[1\] is nan"),
    ("ValueError", "before_tool_call", {"args": object()}, "args is of the type object"),
    ("ValueError", "before_tool_call", {"args": {1: 2}}, "args has the key 1"),
    ("ValueError", "before_tool_call", {"args": CIRCLE}, "contains itself"),
    ("TypeError", "before_tool_call", {"args": ...}, "needs the argument 'args'"),
    ("TypeError", "before_tool_call", {"tool_name": ...}, "needs the argument 'tool_name'"),
    ("TypeError", "before_tool_call", {"tool_name": None}, "tool_name must be a str, is of the type NoneType"),
    ("TypeError", "before_tool_call", {"name": "t"}, "has no argument 'name'; known here: tool_name, args"),
    ("TypeError", "before_tool_call", {"extra": []}, "extra must be a mapping, is of the type list"),
    ("TypeError", "before_tool_call", {"call_id": 1}, "call_id must be a str"),
    ("TypeError", "before_tool_call", {"takes_results": 1}, "takes_results must be a bool"),
    ("TypeError", "before_response", {"takes_results": True}, "has no argument 'takes_results'"),
    ("TypeError", "after_tool_result", {"success": ...}, "needs the argument 'success'"),
    ("TypeError", "after_tool_result", {"success": 1}, "success must be a bool"),
    ("ValueError", "after_tool_result", {"duration_ms": -1}, "duration_ms must be from 0"),
    ("TypeError", "after_tool_result", {"duration_ms": float("inf")}, "duration_ms must be an int"),
    ("TypeError", "before_llm_request", {"images": [{}]}, r"images\[0\] must be a Media"),
    ("TypeError", "before_llm_request", {"images": Media(data=b"", mime_type="a/b")}, "images must be a list"),
    (
        "TypeError",
        "before_llm_request",
        {"files": [Media(data=cast("bytes", "x"), mime_type="a/b")]},
        r"files\[0\]\.data must be bytes",
    ),
    ("TypeError", "before_llm_request", {"messages": {}}, "messages must be a list"),
    ("TypeError", "before_response", {"token_usage": (1, 2)}, "token_usage must be a TokenUsage"),
    ("ValueError", "before_response", {"token_usage": TokenUsage(-1, 2)}, r"token_usage\.input must be"),
    ("TypeError", "before_response", {"context": 1}, "context must be a mapping"),
    ("TypeError", "before_response", {"context": {"session_id": 1}}, r"context\.session_id must be a str"),
    ("TypeError", "before_response", {"context": {"sessionId": "s"}}, r"context\.sessionId is not a member"),
    ("ValueError", "before_response", {"context": {"tenant": None}}, r"context\.tenant is empty"),
    ("TypeError", "before_response", {"context": {"labels": {"a": 1}}}, r"context\.labels\.a must be a str"),
    ("TypeError", "before_response", {"context": {"depth": 1.5}}, r"context\.depth must be an int"),
    ("ValueError", "before_response", {"context": {"depth": -1}}, r"context\.depth must be from 0 to 4294967295"),
    ("ValueError", "before_response", {"context": {"correlation_id": "a b"}}, r"context\.correlation_id must"),
    ("ValueError", "before_response", {"timeout": 0}, "timeout must be more than 0"),
    ("ValueError", "before_response", {"timeout": float("inf")}, "timeout must be more than 0"),
    ("TypeError", "before_response", {"timeout": None}, "timeout must be a number of seconds"),
    ("ValueError", "before_response", {"on_no_decision": "goOn"}, "on_no_decision must be 'fail' or 'go_on'"),
    ("TypeError", "before_response", {"trace": None}, "trace must be a bool"),
    ("TypeError", "before_response", {"expect_plan_digest": 1}, "expect_plan_digest must be a str"),
    ("TypeError", "before_response", {"caller": object()}, "caller must be the context of a plugin's call"),
    ("TypeError", "before_response", {"caller": PluginCall(traceparent="a\nb")}, r"caller\.traceparent must be"),
    ("TypeError", "run_hook", {"body": []}, "body must be a mapping"),
    ("ValueError", "run_hook", {"hook": "../tools"}, "the hook's name must match"),
    ("TypeError", "list_tools", {"trace": True}, "has no argument 'trace'"),
]
"""Errors, calls, changes of their arguments, of which `...` leaves one out, and messages."""

REQUIRED: dict[str, dict[str, object]] = {
    "before_llm_request": {"text": ""},
    "before_tool_call": {"tool_name": "t", "args": {}},
    "after_tool_result": {"tool_name": "t", "result": 1, "success": True},
    "before_response": {"content": ""},
    "run_hook": {"hook": "recall", "body": {}},
    "list_tools": {},
}


async def test_what_cant_be_sent_is_named_and_isnt_sent(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    async with make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on") as agent:
        for error, method, changes, message in UNSENDABLE:
            arguments = {name: value for name, value in (REQUIRED[method] | changes).items() if value is not ...}
            with pytest.raises((TypeError, ValueError), match=message) as raised:
                await getattr(agent, method)(**arguments)
            assert raised.type is TypeError or error == "ValueError", (method, changes)
    assert fake_gateway.calls == []


async def test_a_payload_comes_alone_and_has_the_points_type(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        with pytest.raises(TypeError, match="takes a payload or 'content', not both"):
            await agent.before_response(BeforeResponse(content="c"), content="d")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="the payload must be a BeforeToolCall, is of the type BeforeResponse"):
            await agent.before_tool_call(BeforeResponse(content="c"))  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="needs the argument 'content'"):
            await agent.before_response()  # type: ignore[call-overload]
    assert fake_gateway.calls == []


def test_options_that_cant_be_right_are_refused() -> None:
    cases: list[tuple[str, dict[str, object]]] = [
        ("timeout must be more than 0", {"timeout": -1}),
        ("on_no_decision must be 'fail' or 'go_on'", {"on_no_decision": "ignore"}),
        ("which isn't a point", {"on_no_decision": {"beforeToolCall": "go_on"}}),
        (r"on_no_decision\['before_response'\] must be", {"on_no_decision": {"before_response": True}}),
        ("trace must be a bool", {"trace": "yes"}),
        (r"context\.tenant is empty", {"context": {"tenant": ""}}),
        ("for https:// addresses", {"ca": "x"}),
    ]
    for message, options in cases:
        with pytest.raises((TypeError, ValueError), match=message):
            Agent("http://127.0.0.1:1", **options)  # type: ignore[arg-type]
    for address in ("127.0.0.1:8080", "http://127.0.0.1:1/path", ""):
        with pytest.raises(ValueError, match="neither unix:///path"):
            Agent(address)
    with pytest.raises(ValueError, match="CA certificates can't be used"):
        Agent("https://127.0.0.1:1", ca="-----BEGIN CERTIFICATE-----")
