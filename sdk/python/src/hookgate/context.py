"""The context of a call: the caller, the time left, the configuration, and the gateway's services."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, Protocol

from typing_extensions import TypeVar

from hookgate._calling import Calls
from hookgate._proto import plugin_pb2, types_pb2
from hookgate.host import Attributes, EventSeverity, Log, Storage
from hookgate.host._client import CallAccess, HostClient
from hookgate.host._event import emit
from hookgate.host._links import HostLinks

ConfigT = TypeVar("ConfigT", default=None)
TenantConfigT = TypeVar("TenantConfigT", default=None)
StateT = TypeVar("StateT", default=None)

_FORWARDED_METADATA: Final = ("traceparent", "tracestate", "hookgate-depth")
"""Metadata that a plugin forwards when it calls a gateway or an agent itself."""

_DECISIONS: Final[dict[int, Literal["continue", "block", "answer"]]] = {
    types_pb2.DECISION_CONTINUE: "continue",
    types_pb2.DECISION_BLOCK: "block",
    types_pb2.DECISION_ANSWER: "answer",
}


class CallInfo(Protocol):
    """A call as gRPC sees it."""

    @property
    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The headers of the call, in the order in which they came."""

    @property
    def deadline(self) -> float:
        """When the gateway gives up the call, as `time.monotonic()`; infinity if never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Everything that is known about the caller.

    `tenant`, `operator` and labels named `claim.*` come from the verified token, `exchange_id`, `replay` and `part`
    from the gateway; the rest is what the agent says.
    """

    tenant: str
    """The tenant's id, an opaque string."""
    operator: str
    """Who acts for the tenant."""
    correlation_id: str | None = None
    """The caller's own `x-request-id`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the request, and the configured claims of the token as `claim.NAME`."""
    session_id: str | None = None
    """Conversation."""
    run_id: str | None = None
    """Run of the agent."""
    parent_run_id: str | None = None
    """The run that started this one."""
    depth: int | None = None
    """How deep this run is nested among runs."""
    agent_id: str | None = None
    """Agent."""
    agent_path: str | None = None
    """Agent with its ancestors, in the agent's own notation."""
    project_id: str | None = None
    """Project."""
    user_id: str | None = None
    """End user."""
    provider: str | None = None
    """Provider of the model in use."""
    model: str | None = None
    """Model in use."""
    exchange_id: str | None = None
    """The request to a model that this call is a part of, if the gateway is between the agent and the model."""
    replay: bool = False
    """Whether the gateway has asked about this part of a conversation before, and no longer knows the answer.

    The plugin judges it, and counts nothing.
    """
    part: bool = False
    """Whether the call is about one message of a request to a model or one text of its answer, and not about the whole.

    Another call stands for the request or the answer as a whole. The plugin judges the part, and counts no request and
    no answer. Only at `before_llm_request` and `before_response`.
    """


@dataclass(frozen=True, slots=True)
class ChainResult:
    """How the chain ended. Only observers get it, who are called after the answer."""

    decision: Literal["continue", "block", "answer"] | None
    """`None` when no decision could be made."""
    plugin: str | None
    """The plugin that blocked or failed."""
    code: str | None
    """Block code, or error code."""


class Context(Generic[ConfigT, TenantConfigT, StateT]):
    """The context of a call: the caller, the time left, the configuration, and the gateway's services.

    `Context[Config]` is that of a plugin with a plugin-level configuration, `Context[Config, TenantConfig, State]` also
    has the types of the tenant-level configuration and of what `initialize` returned.
    """

    __slots__ = ("_call", "_calls", "_client", "_info", "_links", "_log", "config", "state", "tenant_config")

    config: ConfigT
    """Plugin-level configuration. May hold secrets: never log it."""
    tenant_config: TenantConfigT
    """Tenant-level configuration of this call."""
    state: StateT
    """What `initialize` returned for the configuration. All calls with the configuration share it."""

    def __init__(
        self,
        call: plugin_pb2.Call,
        info: CallInfo,
        links: HostLinks,
        *,
        config: ConfigT,
        tenant_config: TenantConfigT,
        state: StateT,
    ) -> None:
        """Only the SDK makes it."""
        self.config = config
        self.tenant_config = tenant_config
        self.state = state
        self._call = call
        self._info = info
        self._links = links
        self._calls = Calls()
        self._client: HostClient | None = None
        self._log: Log | None = None

    @property
    def caller(self) -> Caller:
        """Everything that is known about the caller."""
        caller = self._call.context
        present = {descriptor.name: value for descriptor, value in caller.ListFields()}
        present.update(tenant=caller.tenant, operator=caller.operator, labels=dict(caller.labels))
        present.pop("request_id", None)
        return Caller(**present)

    @property
    def tenant(self) -> str:
        """The tenant's id, an opaque string."""
        return self._call.context.tenant

    @property
    def operator(self) -> str:
        """Who acts for the tenant."""
        return self._call.context.operator

    @property
    def request_id(self) -> str:
        """The gateway's id of this invocation (UUIDv7), the same for all plugins of the chain."""
        return self._call.context.request_id

    @property
    def chain_result(self) -> ChainResult | None:
        """How the chain ended, for an observer."""
        if not self._call.HasField("chain_result"):
            return None
        result = self._call.chain_result
        plugin = result.plugin if result.HasField("plugin") else None
        return ChainResult(_DECISIONS.get(result.decision), plugin, result.code if result.HasField("code") else None)

    @property
    def cancelled(self) -> bool:
        """Whether the gateway gave up the call: its time is over, or the agent hung up.

        For handlers that run in threads. A coroutine is interrupted by `asyncio.CancelledError`.
        """
        return self._calls.cancelled

    @property
    def time_left_ms(self) -> float | None:
        """Milliseconds until the gateway gives up the call; 0 once they have passed, `None` if there is no limit."""
        deadline = self._info.deadline
        return None if deadline == math.inf else max(0.0, (deadline - time.monotonic()) * 1000)

    @property
    def storage(self) -> Storage:
        """The plugin's data for the call's tenant. It can be used until 5 s after the call's deadline."""
        return Storage(self._host_client)

    @property
    def log(self) -> Log:
        """Writes to the gateway's log, with the call's tenant and request id.

        It can be used until 5 s after the call's deadline.
        """
        if self._log is None:
            self._log = Log(self._host_client)
        return self._log

    async def emit(
        self,
        name: str,
        message: str = "",
        attributes: Attributes | None = None,
        *,
        severity: EventSeverity = "info",
    ) -> None:
        """Emits an event for the gateway's operators, with the call's tenant and request id.

        :param name: What happened, such as `catalog.updated`: 1 to 128 lower-case letters, digits, `_` and `-`, in
            parts joined by dots.
        :param message: A sentence for people, at most 1 KiB. No secrets, no payloads.
        :raises HostError: `rate_limited` if the plugin emits more than 100 events per second.
        :raises TypeError: If an argument has a wrong type.
        """
        await emit(self._host_client, name, message, attributes, severity=severity)

    @property
    def traceparent(self) -> str | None:
        """W3C trace context of the call, as received."""
        return self._metadata("traceparent")

    @property
    def tracestate(self) -> str | None:
        """W3C trace state of the call, as received."""
        return self._metadata("tracestate")

    @property
    def depth(self) -> int:
        """The number of gateways that the call has passed, including this one. Forward it as `hookgate-depth`."""
        depth = self._metadata("hookgate-depth") or "0"
        return int(depth) if depth.isdecimal() else 0

    @property
    def _host_client(self) -> HostClient:
        if self._client is None:
            received = {key: self._metadata(key) for key in _FORWARDED_METADATA}
            forwarded = {key: value for key, value in received.items() if value is not None}
            self._client = HostClient(self._links, CallAccess(self._call.host_token, self._info.deadline, forwarded))
        return self._client

    def _metadata(self, key: str) -> str | None:
        value = next((value for name, value in self._info.metadata if name == key), None)
        return value.decode("ascii", "replace") if isinstance(value, bytes) else value
