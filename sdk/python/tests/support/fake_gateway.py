"""A scripted gateway on a real socket.

It takes and gives encoded messages, so a script can send what is no message. It runs in threads of its own, so blocking
and async agents can call it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from hookgate._proto import gateway_pb2, types_pb2

RequestT = TypeVar("RequestT", bound=Message)

_METHODS: Final[Mapping[str, tuple[type[Message], type[Message]]]] = {
    "ExtensionPointService/BeforeLlmRequest": (
        gateway_pb2.BeforeLlmRequestRequest,
        gateway_pb2.BeforeLlmRequestResponse,
    ),
    "ExtensionPointService/BeforeToolCall": (gateway_pb2.BeforeToolCallRequest, gateway_pb2.BeforeToolCallResponse),
    "ExtensionPointService/AfterToolResult": (gateway_pb2.AfterToolResultRequest, gateway_pb2.AfterToolResultResponse),
    "ExtensionPointService/BeforeResponse": (gateway_pb2.BeforeResponseRequest, gateway_pb2.BeforeResponseResponse),
    "HookService/RunHook": (gateway_pb2.RunHookRequest, gateway_pb2.RunHookResponse),
    "ToolService/ListTools": (gateway_pb2.ListToolsRequest, gateway_pb2.ListToolsResponse),
}

_MAX_BYTES: Final = 17 << 20


@dataclass
class ReceivedCall:
    """A call that arrived."""

    method: str
    """Such as `BeforeToolCall`."""
    headers: dict[str, str]
    message: Message
    peer: str
    """The caller's end of the connection."""
    timeout: float
    """Seconds that the caller waits."""
    ended: threading.Event
    """Set when the call has ended, also because the caller went away."""

    def request(self, kind: type[RequestT]) -> RequestT:
        """The message, of this type."""
        assert isinstance(self.message, kind)
        return self.message


@dataclass
class Failure:
    """An error status."""

    status: grpc.StatusCode
    detail: str
    code: str | None = None
    """The gateway's error code; without it, the status has no details."""
    domain: str = "hookgate"
    metadata: dict[str, str] = field(default_factory=dict)
    retry_after_ms: int | None = None
    violations: list[tuple[str, str]] = field(default_factory=list)
    report: bytes | None = None
    """An encoded `ChainReport`."""


class Hang:
    """No answer, until the caller goes away."""


Reply: TypeAlias = Message | bytes | Failure | Hang
Script: TypeAlias = Callable[[ReceivedCall], Reply]


def echo(call: ReceivedCall) -> Reply:
    """Continues with the payload as it is."""
    match call.message:
        case gateway_pb2.RunHookRequest():
            return gateway_pb2.RunHookResponse(plan_digest="plan", revision=7, request_id="id")
        case gateway_pb2.ListToolsRequest():
            return gateway_pb2.ListToolsResponse(plan_digest="plan", revision=7)
        case gateway_pb2.BeforeLlmRequestRequest() as request:
            return gateway_pb2.BeforeLlmRequestResponse(
                decision=types_pb2.DECISION_CONTINUE, payload=request.payload, plan_digest="plan", revision=7
            )
        case gateway_pb2.BeforeToolCallRequest() as request:
            return gateway_pb2.BeforeToolCallResponse(
                decision=types_pb2.DECISION_CONTINUE, payload=request.payload, plan_digest="plan", revision=7
            )
        case gateway_pb2.AfterToolResultRequest() as request:
            return gateway_pb2.AfterToolResultResponse(
                decision=types_pb2.DECISION_CONTINUE, payload=request.payload, plan_digest="plan", revision=7
            )
        case gateway_pb2.BeforeResponseRequest() as request:
            return gateway_pb2.BeforeResponseResponse(
                decision=types_pb2.DECISION_CONTINUE, payload=request.payload, plan_digest="plan", revision=7
            )
    raise AssertionError(call.method)


class FakeGateway:
    """A gateway that answers as it is told. Without a script, payloads come back as they are."""

    def __init__(
        self, address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None, workers: int = 64
    ) -> None:
        """`address` is one of gRPC."""
        self.calls: list[ReceivedCall] = []
        self.script: Script = echo
        self.arrived = threading.Semaphore(0)
        """Released for each call."""
        options = [("grpc.max_receive_message_length", _MAX_BYTES), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(workers), options=options)
        for name, (request, _) in _METHODS.items():
            service, method = name.split("/")
            handle = self._handler(method, request)
            handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(handle)
            service = f"hookgate.gateway.v1.{service}"
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        self.url = f"http://127.0.0.1:{self.port}"
        self._server.start()

    def reply(self, reply: Reply) -> None:
        """Answers every call alike from now on."""
        self.script = lambda _: reply

    def stop(self) -> None:
        """Ends the calls in flight, and waits until the port is free."""
        self._server.stop(None).wait()

    def _handler(self, method: str, kind: type[Message]) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
            headers = {key: str(value) for key, value in context.invocation_metadata()}
            ended = threading.Event()
            context.add_callback(ended.set)
            timeout = context.time_remaining()
            call = ReceivedCall(method, headers, kind.FromString(data), context.peer(), timeout, ended)
            self.calls.append(call)
            self.arrived.release()
            reply = self.script(call)
            if isinstance(reply, Hang):
                ended.wait()
                return b""
            if isinstance(reply, Failure):
                context.set_trailing_metadata(_trailers(reply))
                context.abort(reply.status, reply.detail)
            return reply if isinstance(reply, bytes) else reply.SerializeToString()

        return handle


def _trailers(failure: Failure) -> tuple[tuple[str, str | bytes], ...]:
    request_id = ("x-request-id", "error-id")
    if failure.code is None:
        return (request_id,)
    pairs = [_field(3, _field(1, key) + _field(2, value)) for key, value in failure.metadata.items()]
    info = _field(1, failure.code) + _field(2, failure.domain) + b"".join(pairs)
    details = [_detail("google.rpc.ErrorInfo", info)]
    if failure.retry_after_ms is not None:
        delay = Duration()
        delay.FromMilliseconds(failure.retry_after_ms)
        details.append(_detail("google.rpc.RetryInfo", _field(1, delay.SerializeToString())))
    if failure.violations:
        violations = [_field(1, _field(1, name) + _field(2, description)) for name, description in failure.violations]
        details.append(_detail("google.rpc.BadRequest", b"".join(violations)))
    if failure.report is not None:
        details.append(_detail("hookgate.gateway.v1.ChainReport", failure.report))
    status = _field(2, failure.detail) + b"".join(_field(3, detail) for detail in details)
    return (request_id, ("grpc-status-details-bin", status))


def _detail(kind: str, value: bytes) -> bytes:
    return _field(1, f"type.googleapis.com/{kind}") + _field(2, value)


def _field(number: int, value: str | bytes) -> bytes:
    """A field of a message that has a length."""
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
