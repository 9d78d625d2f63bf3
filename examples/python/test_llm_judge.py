import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hookgate.testing import CallError, TestPlugin

from llm_judge import plugin


@dataclass
class Model:
    """A model that answers as it is told; without `content` never."""

    url: str = ""
    status: int = 200
    content: str | None = None
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    """Of each request: the path, the headers, the body."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append((head[0].split()[1], headers, body))
        self.asked.set()
        if self.content is not None:
            reply = json.dumps({"choices": [{"message": {"role": "assistant", "content": self.content}}]})
            answer = f"HTTP/1.1 {self.status} OK\r\ncontent-length: {len(reply)}\r\nconnection: close\r\n\r\n{reply}"
            writer.write(answer.encode())
        else:
            await reader.read()
            self.hung_up.set()
        writer.close()


@asynccontextmanager
async def started_model(status: int = 200, content: str | None = None) -> AsyncIterator[Model]:
    model = Model(status=status, content=content)
    server = await asyncio.start_server(model.answer, "127.0.0.1", 0)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield model
    finally:
        server.close()


async def start_judge(url: str, timeout_ms: int = 5_000) -> TestPlugin:
    config = {"url": url, "model": "judge-1", "api_key": "sk-1", "policy": "No medical advice."}
    return await TestPlugin.start(plugin, {**config, "timeout_ms": timeout_ms})


async def check_has_no_verdict(judge: TestPlugin) -> None:
    with pytest.raises(CallError, match=r"^the model gave no verdict$") as raised:
        await judge.before_response("Hello.")
    assert raised.value.code.name == "UNAVAILABLE"


async def test_the_model_decides_and_gets_the_answer_as_data_beside_the_policy() -> None:
    async with started_model(content='{"allowed": false, "reason": "It says: two."}') as model:
        judge = await start_judge(model.url)
        cancelled = (await judge.before_response('Take "two".', reasoning="Two is right.")).cancelled
        await judge.shutdown()
    assert cancelled is not None
    assert (cancelled.code, cancelled.message) == ("RESPONSE_NOT_ALLOWED", "The answer breaks the policy.")
    [(path, headers, body)] = model.requests
    assert (path, headers["authorization"], body["model"]) == ("/v1/chat/completions", "Bearer sk-1", "judge-1")
    assert body["messages"][0]["content"].endswith(": No medical advice.")
    assert json.loads(body["messages"][1]["content"]) == {"answer": 'Take "two".', "reasoning": "Two is right."}


async def test_an_allowed_answer_passes() -> None:
    async with started_model(content='{"allowed": true}') as model:
        judge = await start_judge(model.url)
        assert (await judge.before_response("Hello.")).cancelled is None
        await judge.shutdown()


@pytest.mark.parametrize(
    ("status", "content"),
    [(500, '{"allowed": true}'), (302, '{"allowed": true}'), (200, "Yes."), (200, "{}"), (200, '{"allowed": "yes"}')],
)
async def test_without_a_verdict_no_answer_passes(status: int, content: str) -> None:
    async with started_model(status, content) as model:
        judge = await start_judge(model.url)
        await check_has_no_verdict(judge)
        await judge.shutdown()


async def test_without_the_model_no_answer_passes() -> None:
    await check_has_no_verdict(await start_judge("http://127.0.0.1:1/v1"))


async def test_the_models_time_ends_before_the_calls_and_with_the_configured_one() -> None:
    async with started_model() as model:
        await check_has_no_verdict((await start_judge(model.url, 60_000)).with_time_left(400))
        await check_has_no_verdict(await start_judge(model.url, 50))


async def test_the_request_ends_when_the_agent_hangs_up() -> None:
    async with started_model() as model:
        judging = asyncio.create_task((await start_judge(model.url)).before_response("Hello."))
        await model.asked.wait()
        judging.cancel()
        await asyncio.wait_for(model.hung_up.wait(), 5)
        with pytest.raises(asyncio.CancelledError):
            await judging
