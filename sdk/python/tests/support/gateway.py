"""A real gateway, for tests that need one. `HOOKGATE_BIN` names its binary."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from pydantic import JsonValue

_REPOSITORY = Path(__file__).parents[4]
HOOKGATE = os.environ.get("HOOKGATE_BIN", str(_REPOSITORY / "target/debug/hookgate"))
_SECRET = "a secret of at least thirty-two bytes, for tests only"
_SOON = 20.0
Json: TypeAlias = dict[str, JsonValue]


class Gateway:
    """A gateway whose files are in a folder."""

    def __init__(self, folder: Path, sections: Mapping[str, JsonValue]) -> None:
        """`sections` are those of its configuration besides `server`, `store`, `auth`, `tenants` and `drain`."""
        self.log: list[Json] = []
        """Its lines so far."""
        self.data_url = ""
        """Where agents call it."""
        self.host_endpoint = f"unix://{folder}/host.sock"
        """Where its host services are."""
        self._config = folder / "hookgate.json"
        self._has_line = asyncio.Event()
        self._has_ended = False
        issuer = {
            "issuer": "test",
            "audience": "hookgate",
            "admin_audience": "hookgate-admin",
            "scopes": ["hookgate:invoke", "hookgate:plugin"],
            "keys": [{"alg": "HS256", "secret": _SECRET}],
        }
        config = {
            "server": {
                "data_addr": "127.0.0.1:0",
                "ops_addr": "127.0.0.1:0",
                "admin_addr": "127.0.0.1:0",
                "host_socket": f"{folder}/host.sock",
            },
            "store": {"url": f"sqlite:{folder}/hookgate.db"},
            "auth": {"issuers": [issuer]},
            "tenants": {"list": [{"id": "acme"}, {"id": "globex"}]},
            "drain": {"grace": "0s"},
            "log": {"level": "debug"},
            **sections,
        }
        self._config.write_text(json.dumps(config))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs it until the end of the block."""
        process = await asyncio.create_subprocess_exec(
            HOOKGATE,
            "serve",
            "--config",
            str(self._config),
            cwd=self._config.parent,  # it writes its last good configuration there
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        reading = asyncio.ensure_future(self._read(process.stdout))
        try:
            listening = await self.line(lambda line: line.get("message") == "listening")
            self.data_url = f"http://{listening['data_addr']}"
            await self.line(lambda line: line.get("message") == "started")
            yield
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()
            await reading

    async def line(self, is_wanted: Callable[[Json], bool]) -> Json:
        """Waits for a line of its log."""

        seen = 0
        deadline = time.monotonic() + _SOON
        while True:
            for line in self.log[seen:]:
                if is_wanted(line):
                    return line
            seen = len(self.log)
            self._has_line.clear()
            assert not self._has_ended, f"the gateway has ended: {self.log}"
            try:
                await asyncio.wait_for(self._has_line.wait(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise AssertionError(f"no such line: {self.log}") from None

    async def event(self, name: str) -> Json:
        """Waits for an event of its log."""
        return await self.line(lambda line: line.get("event") == name)

    async def mint(self, *arguments: str) -> str:
        """A token, as `hookgate token mint` makes it."""
        command = [HOOKGATE, "token", "mint", "--config", str(self._config), "--output", "json", *arguments]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        token = json.loads(output)["token"]
        assert isinstance(token, str)
        return token

    async def call(self, token: str, tool_name: str = "fs.read") -> tuple[int, Json]:
        """Calls `before_tool_call` as an agent does. Returns the status and the body."""
        body = json.dumps({"payload": {"tool_name": tool_name, "args": {}}}).encode()
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        request = urllib.request.Request(f"{self.data_url}/v1/before-tool-call", body, headers)
        return await asyncio.to_thread(_send, request)

    async def _read(self, output: asyncio.StreamReader) -> None:
        async for line in output:
            try:
                parsed = json.loads(line)
            except ValueError:
                parsed = {"message": line.decode(errors="replace")}
            self.log.append(parsed)
            self._has_line.set()
        self._has_ended = True
        self._has_line.set()


def _send(request: urllib.request.Request) -> tuple[int, Json]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_SOON) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
