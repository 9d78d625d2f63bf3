"""The context of calls."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import cast

import pytest
from support.agents import Kind, make_agent
from support.fake_gateway import FakeGateway

from hookgate._proto import gateway_pb2
from hookgate.agent import CallContext, call_context, current_context


async def test_nested_contexts_merge_and_the_outer_one_is_back_afterwards() -> None:
    outer: CallContext = {"tenant": "acme", "session_id": "s", "run_id": "r", "labels": {"a": "1", "b": "1"}}
    with call_context(**outer):
        with call_context(run_id="child", parent_run_id="r", session_id=None, labels={"b": "2"}):
            await asyncio.sleep(0)
            expected = outer | {"run_id": "child", "parent_run_id": "r", "labels": {"a": "1", "b": "2"}}
            assert current_context() == expected
        assert current_context() == outer
    assert current_context() == {}
    with pytest.raises(KeyError), call_context(run_id="r"):
        raise KeyError
    assert current_context() == {}


def test_a_context_is_copied_so_later_changes_dont_count() -> None:
    labels = {"a": "1"}
    with call_context(run_id="r", labels=labels):
        labels["a"] = "2"
        current_context()["run_id"] = "changed"
        assert current_context() == {"run_id": "r", "labels": {"a": "1"}}


def test_a_context_that_cant_be_right_is_refused() -> None:
    cases: list[tuple[str, dict[str, object]]] = [
        (r"context\.tenant is empty", {"tenant": None}),
        (r"context\.tenant is empty", {"tenant": ""}),
        (r"context\.tenant must be a str", {"tenant": 7}),
        (r"context\.sessionId is not a member; known here: tenant, correlation_id", {"sessionId": "s"}),
        (r"context\.correlation_id must have 1 to 128", {"correlation_id": "x" * 129}),
        (r"context\.labels has the name 1", {"labels": {1: "x"}}),
    ]
    for message, context in cases:
        with pytest.raises((TypeError, ValueError), match=message), call_context(**cast("CallContext", context)):
            raise AssertionError(context)


def test_a_thread_has_no_context_of_its_starter() -> None:
    seen: list[CallContext] = []
    with call_context(tenant="acme"):
        thread = threading.Thread(target=lambda: seen.append(current_context()))
        thread.start()
        thread.join()
    assert seen == [{}]


async def test_concurrent_runs_dont_mix_and_each_has_its_tenants_token(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    async def token(context: CallContext) -> str:
        await asyncio.sleep(random.random() / 500)
        return f"token-of-{context['tenant']}"

    source = token if agent_kind == "async" else lambda context: f"token-of-{context['tenant']}"
    async with make_agent(agent_kind, fake_gateway.url, token=source) as agent:

        async def run(number: int) -> None:
            with call_context(tenant=f"t{number % 7}", run_id=f"r{number}", correlation_id=f"c{number}"):
                for _ in range(3):
                    await asyncio.sleep(random.random() / 500)
                    decision = await agent.before_response(content=f"r{number}")
                    assert decision.payload.content == f"r{number}"

        await asyncio.gather(*(run(number) for number in range(40)))
    assert len(fake_gateway.calls) == 120
    for call in fake_gateway.calls:
        request = call.request(gateway_pb2.BeforeResponseRequest)
        number = int(request.payload.content[1:])
        assert request.context == gateway_pb2.RequestContext(run_id=f"r{number}")
        assert call.headers["authorization"] == f"Bearer token-of-t{number % 7}"
        assert call.headers["x-request-id"] == f"c{number}"


async def test_the_calls_context_has_precedence_over_that_of_the_run_and_it_over_the_agents(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    of_agent: CallContext = {"agent_id": "agent", "run_id": "agent", "session_id": "agent"}
    async with make_agent(agent_kind, fake_gateway.url, context=of_agent) as agent:
        with call_context(run_id="run", session_id="run"):
            await agent.run_hook("recall", {}, context={"session_id": "call", "run_id": None})
    sent = fake_gateway.calls[0].request(gateway_pb2.RunHookRequest).context
    assert sent == gateway_pb2.RequestContext(agent_id="agent", run_id="run", session_id="call")


async def test_a_task_keeps_the_context_in_which_it_started(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        with call_context(run_id="r"):
            call = asyncio.create_task(agent.list_tools())
            response = asyncio.create_task(agent.before_response(content="c"))
        await asyncio.gather(call, response)
    requests = [call.message for call in fake_gateway.calls if call.method == "BeforeResponse"]
    assert requests[0].context.run_id == "r"  # type: ignore[attr-defined]
