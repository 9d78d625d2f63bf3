"""Connections of agents: their reuse, their end, TLS, event loops, threads and processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from support.agents import Kind, make_agent
from support.certificates import Ca
from support.fake_gateway import FakeGateway, Hang, ReceivedCall, Reply

from hookgate._proto import gateway_pb2, types_pb2
from hookgate.agent import Agent, NoDecision, call_context, sync


async def test_calls_share_a_connection(agent_kind: Kind, fake_gateway: FakeGateway) -> None:
    async with make_agent(agent_kind, fake_gateway.url) as agent:
        for _ in range(20):
            await agent.before_response(content="c")
        await asyncio.gather(*(agent.before_response(content="c") for _ in range(20)))
    assert len({call.peer for call in fake_gateway.calls}) == 1


async def test_a_call_in_flight_finishes_after_close_and_no_other_begins(
    agent_kind: Kind, fake_gateway: FakeGateway
) -> None:
    answer = threading.Event()

    def wait(_: ReceivedCall) -> Reply:
        assert answer.wait(10)
        payload = types_pb2.BeforeResponsePayload(content="changed")
        return gateway_pb2.BeforeResponseResponse(decision=types_pb2.DECISION_CONTINUE, payload=payload)

    fake_gateway.script = wait
    agent = make_agent(agent_kind, fake_gateway.url, on_no_decision="go_on")
    call = asyncio.ensure_future(agent.before_response(content="own"))
    assert await asyncio.to_thread(fake_gateway.arrived.acquire, timeout=10)
    closing = asyncio.ensure_future(agent.close())
    # The blocking agent doesn't wait for calls of other threads, the async one does.
    await asyncio.wait({closing}, timeout=10 if agent_kind == "blocking" else 0.01)
    assert closing.done() == (agent_kind == "blocking")
    with pytest.raises(RuntimeError, match="the agent is closed"):
        await agent.before_response(content="c")
    answer.set()
    assert (await call).payload.content == "changed"
    await closing
    await agent.close()
    with pytest.raises(RuntimeError, match="the agent is closed"):
        await agent.before_response(content="c")


async def test_a_gateway_that_has_come_back_is_reached_again(agent_kind: Kind) -> None:
    first = FakeGateway()
    async with make_agent(agent_kind, first.url) as agent:
        await agent.before_response(content="c")
        await asyncio.to_thread(first.stop)
        with pytest.raises(NoDecision) as raised:
            await agent.before_response(content="c")
        assert raised.value.kind == "unreachable"
        second = FakeGateway(f"127.0.0.1:{first.port}")
        end = time.monotonic() + 20
        while not second.calls and time.monotonic() < end:
            await agent.before_response(content="c", on_no_decision="go_on")
        assert second.calls
    await asyncio.to_thread(second.stop)


async def test_a_gateway_may_listen_on_a_unix_socket(agent_kind: Kind, tmp_path: Path) -> None:
    gateway = FakeGateway(f"unix:{tmp_path}/gateway.sock")
    async with make_agent(agent_kind, f"unix://{tmp_path}/gateway.sock") as agent:
        assert (await agent.before_response(content="c")).payload.content == "c"
    await asyncio.to_thread(gateway.stop)


async def test_tls_trusts_the_ca_that_is_named_and_shows_the_client_certificate(
    agent_kind: Kind, tmp_path: Path
) -> None:
    ca, other_ca = Ca(tmp_path), Ca(tmp_path, "other")
    server, client = ca.issue("server"), ca.issue("client")
    credentials = grpc.ssl_server_credentials(
        [(server.key, server.certificate)], root_certificates=ca.certificate, require_client_auth=True
    )
    gateway = FakeGateway(credentials=credentials)
    url = f"https://127.0.0.1:{gateway.port}"
    pair: dict[str, object] = {"certificate": client.certificate.decode(), "key": client.key}
    async with make_agent(agent_kind, url, ca=ca.certificate, **pair) as agent:
        assert (await agent.before_response(content="c")).payload.content == "c"
    refused: list[dict[str, object]] = [{"ca": ca.certificate}, {"ca": other_ca.certificate, **pair}, pair]
    for options in refused:
        async with make_agent(agent_kind, url, **options) as agent:
            with pytest.raises(NoDecision) as raised:
                await agent.before_response(content="c")
            assert raised.value.kind in ("unreachable", "timeout")
    assert len(gateway.calls) == 1
    await asyncio.to_thread(gateway.stop)


def test_an_agent_outlives_its_event_loop(fake_gateway: FakeGateway) -> None:
    agent = Agent(fake_gateway.url, token="t")

    async def call() -> str:
        return (await agent.before_response(content="c")).payload.content

    for _ in range(3):
        assert asyncio.run(call()) == "c"
    asyncio.run(agent.close())
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(call())


def test_event_loops_of_several_threads_may_share_an_agent(fake_gateway: FakeGateway) -> None:
    agent = Agent(fake_gateway.url, token="t")

    async def call(name: str) -> list[str]:
        decisions = await asyncio.gather(*(agent.before_response(content=name) for _ in range(10)))
        return [decision.payload.content for decision in decisions]

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda name: asyncio.run(call(name)), ["a", "b", "c", "d"]))
    assert results == [[name] * 10 for name in "abcd"]


def test_threads_may_share_a_blocking_agent_each_with_its_context(fake_gateway: FakeGateway) -> None:
    def call(number: int) -> None:
        with call_context(run_id=f"r{number}", tenant=f"t{number}"):
            for _ in range(5):
                assert agent.before_response(content=str(number)).payload.content == str(number)

    with (
        sync.Agent(fake_gateway.url, token=lambda context: f"token-of-{context['tenant']}") as agent,
        ThreadPoolExecutor(8) as threads,
    ):
        list(threads.map(call, range(20)))
    assert len({received.peer for received in fake_gateway.calls}) == 1
    for received in fake_gateway.calls:
        content = received.message.payload.content  # type: ignore[attr-defined]
        assert received.message.context.run_id == f"r{content}"  # type: ignore[attr-defined]
        assert received.headers["authorization"] == f"Bearer token-of-t{content}"


async def test_a_blocking_agent_can_be_called_within_an_event_loop(fake_gateway: FakeGateway) -> None:
    with sync.Agent(fake_gateway.url, token="t") as agent:
        assert agent.before_response(content="c").payload.content == "c"


def test_a_blocking_agent_works_in_a_process_that_is_forked(fake_gateway: FakeGateway) -> None:
    script = """
import os, sys
from hookgate.agent import sync
agent = sync.Agent(sys.argv[1], token="t", timeout=20)
agent.before_response(content="parent")
child = os.fork()
if child == 0:
    agent.before_response(content="child")
    os._exit(0)
_, status = os.waitpid(child, 0)
agent.before_response(content="parent")
agent.close()
print(os.waitstatus_to_exitcode(status))
"""
    assert run(script, fake_gateway.url) == "0\n"
    peers = [call.peer for call in fake_gateway.calls]
    assert len(peers) == 3
    assert peers[0] == peers[2] != peers[1]


def test_an_async_agent_is_refused_in_a_process_that_is_forked_after_its_use(fake_gateway: FakeGateway) -> None:
    script = """
import asyncio, os, sys
from hookgate.agent import Agent
agent = Agent(sys.argv[1], token="t", on_no_decision="go_on")
asyncio.run(agent.before_response(content="parent"))
child = os.fork()
if child == 0:
    try:
        asyncio.run(agent.before_response(content="child"))
    except RuntimeError as error:
        os._exit(7 if "forked" in str(error) else 8)
    os._exit(9)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""
    assert run(script, fake_gateway.url) == "7\n"
    assert len(fake_gateway.calls) == 1


@pytest.mark.parametrize("kind", ["async", "blocking"])
def test_an_agent_that_isnt_closed_keeps_no_process_alive(kind: Kind, fake_gateway: FakeGateway) -> None:
    scripts = {
        "async": """
import asyncio, sys
from hookgate.agent import Agent
agent = Agent(sys.argv[1], token="t", timeout=60)
asyncio.run(agent.before_response(content="c"))
print("done")
""",
        "blocking": """
import sys
from hookgate.agent.sync import Agent
agent = Agent(sys.argv[1], token="t", timeout=60)
agent.before_response(content="c")
print("done")
""",
    }
    assert run(scripts[kind], fake_gateway.url) == "done\n"


async def test_a_blocking_agent_in_another_thread_doesnt_wait_for_the_event_loop(fake_gateway: FakeGateway) -> None:
    def call() -> str:
        return blocking.before_response(content="c").payload.content

    async with Agent(fake_gateway.url, token="t") as agent:
        with sync.Agent(fake_gateway.url, token="t") as blocking:
            await agent.before_response(content="c")
            with ThreadPoolExecutor(1) as thread:
                # The loop is blocked meanwhile.
                assert thread.submit(call).result(20) == "c"
            await agent.before_response(content="c")


def test_an_interrupt_ends_a_blocking_call(fake_gateway: FakeGateway) -> None:
    fake_gateway.reply(Hang())
    # A shell starts what it runs in the background with SIGINT ignored.
    script = """
import signal, sys
from hookgate.agent.sync import Agent
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    Agent(sys.argv[1], token="t", timeout=60, on_no_decision="go_on").before_response(content="c")
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen([sys.executable, "-c", script, fake_gateway.url], stdout=subprocess.PIPE, text=True)
    assert fake_gateway.arrived.acquire(timeout=30)
    process.send_signal(2)
    assert process.communicate(timeout=30)[0] == "interrupted\n"


def run(script: str, url: str) -> str:
    """What a process prints. It must end by itself."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    ran = subprocess.run(
        [sys.executable, "-c", script, url], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
