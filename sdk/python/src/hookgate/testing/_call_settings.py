"""What a call says besides its payload, and its time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from hookgate._proto import plugin_pb2, types_pb2
from hookgate.context import ChainResult

_DECISIONS = {
    "continue": types_pb2.DECISION_CONTINUE,
    "block": types_pb2.DECISION_BLOCK,
    "answer": types_pb2.DECISION_ANSWER,
}


def _default_context() -> dict[str, object]:
    return {
        "tenant": "test-tenant",
        "operator": "test-operator",
        "request_id": "01930000-0000-7000-8000-000000000000",
    }


@dataclass(frozen=True, slots=True)
class CallInfo:
    """A call as gRPC sees it."""

    metadata: tuple[tuple[str, str | bytes], ...]
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """How calls are made."""

    config_digest: str
    tenant_config: bytes = b""
    tenant_config_digest: str = ""
    context: Mapping[str, object] = field(default_factory=_default_context)
    """Members of `CallContext`."""
    metadata: Mapping[str, str] = field(default_factory=lambda: {"hookgate-depth": "1"})
    chain_result: ChainResult | None = None
    time_left: float | None = None
    """In seconds; `None` without a limit."""

    @property
    def tenant(self) -> str:
        return str(self.context["tenant"])

    def info(self) -> CallInfo:
        """Of a call that begins now."""
        deadline = math.inf if self.time_left is None else time.monotonic() + self.time_left
        return CallInfo(tuple(self.metadata.items()), deadline)

    def to_wire(self, host_token: str, *, run_tool: bool) -> plugin_pb2.Call:
        result = self.chain_result
        return plugin_pb2.Call(
            context=plugin_pb2.CallContext(**self.context),  # type: ignore[arg-type]
            config_digest=self.config_digest,
            tenant_config=self.tenant_config,
            tenant_config_digest=self.tenant_config_digest,
            chain_result=None if result is None else _chain_result_to_wire(result),
            host_token=host_token,
            run_tool=run_tool,
        )


def _chain_result_to_wire(result: ChainResult) -> plugin_pb2.ChainResult:
    message = plugin_pb2.ChainResult(plugin=result.plugin, code=result.code)
    if result.decision is not None:
        message.decision = _DECISIONS[result.decision]
    return message
