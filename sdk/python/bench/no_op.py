"""Calls of a plugin that does nothing, by the SDK and by bare grpcio in turns: `python bench/no_op.py [ROUNDS]`.

Run prepare.sh first. Prints the ratio of the SDK to bare grpcio; 0.8 and more is the target.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import grpc.aio

from hookgate import BeforeToolCall, Context, Plugin, ToolCallReply, proceed, serve
from hookgate._proto import plugin_pb2, plugin_pb2_grpc, types_pb2

Servicer: TypeAlias = grpc.aio.ServicerContext[Any, Any]

CALLERS = 32
WARM_UP = 0.2
"""Seconds."""
ROUND = 1.0
"""Seconds."""


class Bare:
    """What the guide for any language shows, with one configuration."""

    def __init__(self) -> None:
        self.configs: dict[str, object] = {}

    async def initialize(self, request: plugin_pb2.InitializeRequest, _: Servicer) -> plugin_pb2.InitializeResponse:
        self.configs[request.config_digest] = json.loads(request.config)
        return plugin_pb2.InitializeResponse()

    async def before_tool_call(
        self, request: plugin_pb2.BeforeToolCallRequest, _: Servicer
    ) -> plugin_pb2.BeforeToolCallResponse:
        if request.call.config_digest not in self.configs:
            raise RuntimeError("not initialised")
        return plugin_pb2.BeforeToolCallResponse(**{"continue": plugin_pb2.Continue()})  # type: ignore[arg-type]


async def serve_bare(address: str) -> None:
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 17 * 1024 * 1024)])
    bare = Bare()
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Initialize": grpc.unary_unary_rpc_method_handler(
            bare.initialize,
            plugin_pb2.InitializeRequest.FromString,
            plugin_pb2.InitializeResponse.SerializeToString,
        ),
        "BeforeToolCall": grpc.unary_unary_rpc_method_handler(
            bare.before_tool_call,
            plugin_pb2.BeforeToolCallRequest.FromString,
            plugin_pb2.BeforeToolCallResponse.SerializeToString,
        ),
    }
    handler = grpc.method_handlers_generic_handler("hookgate.plugin.v1.PluginService", methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(address)
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


async def serve_with_sdk(address: str) -> None:
    plugin = Plugin("no-op", version="1.0.0")

    @plugin.before_tool_call(access="read", side_effects="none")
    async def pass_on(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
        return proceed()

    server = await serve(plugin, address)
    print("ready", flush=True)
    await server.stopped()


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().split(") ")[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Figures:
    """Of each round."""

    rate: list[float] = field(default_factory=list)
    """Calls per second."""
    per_cpu_second: list[float] = field(default_factory=list)
    """Calls per second of the server's CPU time."""


class Side:
    """A server, and a client of it."""

    def __init__(self, process: asyncio.subprocess.Process, channel: grpc.aio.Channel) -> None:
        self.process = process
        self.channel = channel
        self.stub = plugin_pb2_grpc.PluginServiceStub(channel)
        self.figures = Figures()

    @classmethod
    async def start(cls, name: str, folder: str) -> Side:
        path = f"{folder}/{name}"
        address = f"unix:{path}" if name == "bare" else f"unix://{path}"
        pipe = asyncio.subprocess.PIPE
        arguments = (sys.executable, __file__, "serve", name, address)
        process = await asyncio.create_subprocess_exec(*arguments, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
        assert process.stdout is not None
        await process.stdout.readline()
        side = cls(process, grpc.aio.insecure_channel(f"unix:{path}"))
        request = plugin_pb2.InitializeRequest(config=b"{}", config_digest="d", gateway_instance_id="bench")
        await side.stub.Initialize(request)
        return side

    async def measure(self, seconds: float) -> tuple[float, float]:
        """Calls for a while: the calls per second, and per second of the server's CPU time."""
        context = plugin_pb2.CallContext(
            tenant="acme", operator="agent", request_id="01930000-0000-7000-8000-000000000000"
        )
        payload = types_pb2.BeforeToolCallPayload(tool_name="fs.read", args=json.dumps({"path": "x" * 1000}).encode())
        call = plugin_pb2.Call(context=context, config_digest="d")
        request = plugin_pb2.BeforeToolCallRequest(call=call, payload=payload)
        cpu = cpu_seconds(self.process.pid)
        began = time.monotonic()
        calls = 0

        async def call_on() -> None:
            nonlocal calls
            while time.monotonic() - began < seconds:
                await self.stub.BeforeToolCall(request)
                calls += 1

        await asyncio.gather(*(call_on() for _ in range(CALLERS)))
        return calls / (time.monotonic() - began), calls / (cpu_seconds(self.process.pid) - cpu)

    async def stop(self) -> None:
        await self.channel.close()
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hookgate-bench-") as folder:
        sides = {name: await Side.start(name, folder) for name in ("bare", "sdk")}
        for number in range(rounds):
            order = list(sides.values()) if number % 2 else list(sides.values())[::-1]
            for side in order:
                await side.measure(WARM_UP)
                rate, per_cpu_second = await side.measure(ROUND)
                side.figures.rate.append(rate)
                side.figures.per_cpu_second.append(per_cpu_second)
            rates = ", ".join(f"{name} {side.figures.rate[-1]:.0f}/s" for name, side in sides.items())
            print(f"round {number + 1}: {rates}")
        bare, sdk = sides["bare"].figures, sides["sdk"].figures
        print(f"calls per second: {ratio(sdk.rate, bare.rate):.2f}")
        print(f"calls per CPU second of the plugin: {ratio(sdk.per_cpu_second, bare.per_cpu_second):.2f}")
        for side in sides.values():
            await side.stop()


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(our / their for our, their in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run((serve_with_sdk if sys.argv[2] == "sdk" else serve_bare)(sys.argv[3]))
    else:
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
