"""The command line: `python -m hookgate run`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from support.gateway_client import GatewayClient, call_of, failure

from hookgate._cli.main import main
from hookgate._logging import JsonFormatter
from hookgate._proto import plugin_pb2, types_pb2

PLUGIN = """
import os
from hookgate import Plugin, cancel
from suffix import suffix

plugin = Plugin("p", version="1.0.0")

@plugin.before_tool_call
async def refuse(call, ctx):
    return cancel("NO", "{message}" + suffix, notices=[])

@plugin.before_response
async def tell(call, ctx):
    return cancel("PID", str(os.getpid()))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a plugin that imports a module."""
    write(tmp_path / "plug.py", PLUGIN.replace("{message}", "one"))
    write(tmp_path / "suffix.py", 'suffix = "!"')
    return tmp_path


def write(path: Path, text: str) -> None:
    path.write_text(text)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hookgate", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


class Process:
    """A running command line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self, message: str) -> dict[str, Any]:
        """The next line of its log with this message."""
        assert self.process.stderr is not None
        async for text in self.process.stderr:
            line: dict[str, Any] = json.loads(text)
            if line["message"].startswith(message):
                return line
        raise AssertionError(f"it ended without saying {message!r}")

    async def end(self) -> int:
        """Ends it as an operator does, and returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr is not None
        await asyncio.wait_for(self.process.stderr.read(), 30)
        return await self.process.wait()


@asynccontextmanager
async def running(folder: Path, *arguments: str) -> AsyncIterator[Process]:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "hookgate", "run", *arguments)
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=pipe, limit=2**20)
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def message(address: str) -> str:
    client = GatewayClient.connect(address)
    try:
        await client.initialize()
        return await client.message()
    finally:
        await client.channel.close()


async def test_a_plugin_is_served_and_ends_with_the_exit_code_0_on_sigterm(project: Path) -> None:
    address = f"unix://{project}/s"
    async with running(project, "plug:plugin", "--listen", address) as process:
        line = await process.line("plugin listens")
        assert (line["level"], line["plugin"], line["version"], line["address"]) == ("info", "p", "1.0.0", address)
        assert await message(address) == "one!"
        assert await process.end() == 0
    assert not (project / "s").exists()


async def test_a_plugin_of_a_file_in_another_folder_is_served(project: Path, tmp_path_factory: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    address = f"unix://{elsewhere}/s"
    async with running(elsewhere, f"{project}/plug.py:plugin", "--listen", address) as process:
        await process.line("plugin listens")
        assert await message(address) == "one!"


async def test_a_plugin_starts_again_when_a_file_changes_and_survives_a_mistake(project: Path) -> None:
    address = f"unix://{project}/s"
    async with running(project, "plug:plugin", "--listen", address, "--reload") as process:
        await process.line("plugin listens")
        assert await message(address) == "one!"
        write(project / "suffix.py", 'suffix = "?"')
        await process.line("plugin listens")
        assert await message(address) == "one?"
        write(project / "plug.py", "def broken(:")
        assert "SyntaxError" in (await process.line("can't serve"))["error"]
        write(project / "plug.py", PLUGIN.replace("{message}", "two"))
        await process.line("plugin listens")
        assert await message(address) == "two?"
        assert await process.end() == 0


async def test_a_thread_that_does_not_end_holds_up_no_stop(project: Path) -> None:
    write(
        project / "plug.py",
        """
import threading
from hookgate import Plugin

plugin = Plugin("p", version="1.0.0")

@plugin.before_tool_call
def hang(call, ctx):
    print("hangs", flush=True)
    threading.Event().wait()
""",
    )
    address = f"unix://{project}/s"
    async with running(project, "plug:plugin", "--listen", address, "--drain", "0.1") as process:
        await process.line("plugin listens")
        client = GatewayClient.connect(address)
        await client.initialize()
        call = client.tool_call()
        assert process.process.stdout is not None
        assert await process.process.stdout.readline() == b"hangs\n"
        assert await process.end() == 0
        assert (await failure(call))[0] in ("CANCELLED", "UNAVAILABLE")
        await client.channel.close()


async def pid_over_a_new_connection(address: str) -> int:
    client = GatewayClient.connect(address)
    try:
        await client.initialize()
        payload = types_pb2.BeforeResponsePayload(content="x")
        request = plugin_pb2.BeforeResponseRequest(call=call_of("d"), payload=payload)
        return int((await client.call("BeforeResponse", request)).cancel.message)
    finally:
        await client.channel.close()


async def test_workers_share_a_port_and_one_that_dies_is_replaced(project: Path) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    async with running(project, "plug:plugin", "--listen", address, "--workers", "2") as process:
        for _ in range(2):
            await process.line("plugin listens")
        pids: set[int] = set()
        while len(pids) < 2:
            pids.add(await pid_over_a_new_connection(address))
        os.kill(min(pids), signal.SIGKILL)
        assert (await process.line("a worker ended"))["exit_code"] == -signal.SIGKILL
        await process.line("plugin listens")
        assert await process.end() == 0
    with pytest.raises(grpc.aio.AioRpcError):
        await message(address)


async def test_workers_end_with_a_parent_that_is_killed(project: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    async with running(project, "plug:plugin", "--listen", address, "--workers", "2") as process:
        for _ in range(2):
            await process.line("plugin listens")
        process.process.kill()
        # The workers hold its standard error open until they end.
        for _ in range(2):
            await process.line("plugin stopped")
        await process.process.communicate()
    with pytest.raises(grpc.aio.AioRpcError):
        await message(address)


def test_two_files_of_one_name_are_refused(project: Path) -> None:
    (project / "other").mkdir()
    write(project / "other" / "plug.py", PLUGIN.replace("{message}", "two"))
    ended = run(project, "run", "plug.py:plugin", "other/plug.py:plugin", "--listen", "unix:///tmp/never.sock")
    assert ended.returncode == 1
    assert "another module is called `plug`" in ended.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_workers_that_can_not_start_end_the_program(project: Path) -> None:
    write(project / "plug.py", "raise RuntimeError('no model')")
    ended = run(project, "run", "plug:plugin", "--listen", "http://127.0.0.1:1", "--workers", "2")
    assert ended.returncode == 1
    assert "no model" in ended.stderr


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("plug:plugin", "plugin = 1", "`plug:plugin` is no plugin: write `plugin = Plugin(...)`, or a list of plugins"),
        ("plug:other", "plugin = 1", "`plug:other` is no plugin"),
        ("plug", "", "`plug` names no plugin: write `module:variable`, such as `my_plugin:plugin`"),
        ("none:plugin", "", "there is no module `none` in "),
        ("plug:plugin", "import nothing_like_that", "No module named 'nothing_like_that'"),
        ("plug:plugin", "plugin = []", "is no plugin"),
    ],
)
def test_a_module_without_a_plugin_says_what_to_write(project: Path, name: str, text: str, expected: str) -> None:
    write(project / "plug.py", text)
    ended = run(project, "run", name, "--listen", f"unix://{project}/s")
    assert (ended.returncode, ended.stdout) == (1, "")
    line = json.loads(ended.stderr)
    assert line["level"] == "error"
    assert expected in line["message"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "p:p"], "--listen"),
        (["run", "--listen", "unix:///s"], "PLUGIN"),
        (["serve"], "invalid choice: 'serve'"),
        ([], "COMMAND"),
        (["run", "p:p", "--listen", "tmp/s"], "--listen: the address"),
        (["run", "p:p", "--listen", "unix:///s", "--drain", "x"], "--drain"),
        (["run", "p:p", "--listen", "unix:///s", "--drain", "nan"], "--drain must be between 0 and 3600 seconds"),
        (["run", "p:p", "--listen", "unix:///s", "--tls-key", "k"], "--tls-cert and --tls-key need each other"),
        (["run", "p:p", "--listen", "unix:///s", "--register", "http://h:1"], "--register needs --register-token"),
        (["run", "p:p", "--listen", "unix:///s", "--register-token", "t"], "--register-endpoint need --register"),
        (["run", "p:p", "--listen", "unix:///s", "--lis", "x"], "--lis"),
        (["run", "p:p", "--listen", "unix:///s", "--workers", "2"], "a Unix socket belongs to one process"),
        (["run", "p:p", "--listen", "http://h:0", "--workers", "2"], "a port other than 0"),
        (["run", "p:p", "--listen", "http://h:1", "--workers", "0"], "--workers must be between 1 and 256"),
        (["run", "p:p", "--listen", "http://h:1", "--workers", "2", "--reload"], "don't go together"),
    ],
)
def test_a_mistake_on_the_command_line_names_the_option(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("hookgate: ")
    assert expected in first


def test_help_lists_the_options(tmp_path: Path) -> None:
    printed = run(tmp_path, "run", "--help")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "--listen ADDRESS" in printed.stdout
    assert "--register-token FILE" in printed.stdout


def test_a_line_of_the_log_has_any_attributes_and_an_error_shows_its_traceback() -> None:
    formatter = JsonFormatter()
    attributes = {"object": object, 1: 2, "text": "ä\n"}
    record = logging.LogRecord("hookgate", logging.WARNING, "", 0, "odd %s", ("text",), None)
    record.attributes = attributes
    line = json.loads(formatter.format(record))
    assert (line["level"], line["message"], line["text"]) == ("warn", "odd text", "ä\n")
    assert line["timestamp"].endswith("Z")
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        failed = logging.LogRecord("my.plugin", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    line = json.loads(formatter.format(failed))
    assert line["logger"] == "my.plugin"
    assert line["error"].endswith("RuntimeError: boom")
