"""A Hookgate plugin with grpcio alone: refuses the tools that its configuration lists."""
import json, signal, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parent / "gen"))  # written by generate.sh
from hookgate.plugin.v1 import plugin_pb2 as api, plugin_pb2_grpc as rpc
from hookgate.types.v1 import types_pb2 as types

CONFIG_SCHEMA = {"type": "object", "additionalProperties": False,
                 "properties": {"refused_tools": {"type": "array", "items": {"type": "string"}}}}
NO_CONFIG = {"type": "object", "additionalProperties": False}


class Plugin(rpc.PluginServiceServicer):
    def __init__(self):
        self.instances = {}  # config digest -> tools to refuse, the last four

    def Describe(self, request, context):
        offer = api.PointOffer(point=types.EXTENSION_POINT_BEFORE_TOOL_CALL,
                               access=api.ACCESS_READ, side_effects=api.SIDE_EFFECTS_NONE)
        return api.DescribeResponse(name="python-raw", version="1.0.0", protocol_versions=[1], points=[offer],
                                    config_schema=json.dumps(CONFIG_SCHEMA).encode(),
                                    tenant_config_schema=json.dumps(NO_CONFIG).encode())

    def Initialize(self, request, context):
        refused = json.loads(request.config or b"{}").get("refused_tools", [])
        if not isinstance(refused, list):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "config field `refused_tools`: expected a list")
        self.instances[request.config_digest] = frozenset(refused)
        for digest in list(self.instances)[:-4]:
            self.instances.pop(digest, None)
        return api.InitializeResponse()

    def BeforeToolCall(self, request, context):
        refused = self.instances.get(request.call.config_digest)
        if refused is None:  # this process is younger than the gateway's connection: it will initialise us
            context.set_trailing_metadata((("hookgate-reason", "NOT_INITIALIZED"),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no instance for this config digest")
        if (tool := request.payload.tool_name) in refused:
            cancel = api.Cancel(code="TOOL_NOT_ALLOWED", message=f"Tool '{tool}' is refused.")
            return api.BeforeToolCallResponse(cancel=cancel)
        return api.BeforeToolCallResponse(**{"continue": api.Continue()})  # a keyword of Python

    def Shutdown(self, request, context):
        return api.ShutdownResponse()  # nothing to flush; a plugin never exits here


if __name__ == "__main__":
    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)  # before the threads start, so that none of them takes it
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.max_receive_message_length", 17 << 20)])
    rpc.add_PluginServiceServicer_to_server(Plugin(), server)
    port = server.add_insecure_port(sys.argv[1])  # unix:///path or host:port
    server.start()
    print(f"listening at {sys.argv[1]}, port {port}", flush=True)
    signal.sigwait(stop)
    server.stop(grace=25).wait()
