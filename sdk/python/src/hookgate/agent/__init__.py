"""Calls Hookgate from an agent over gRPC.

    from hookgate.agent import Agent, Blocked

    async with Agent("http://127.0.0.1:8080", token=os.environ["HOOKGATE_TOKEN"]) as gateway:
        try:
            decision = await gateway.before_tool_call(tool_name="shell.exec", args={"cmd": "ls"})
        except Blocked as block:
            tell_the_model(block.message)
        else:
            await run(decision.payload.tool_name, decision.payload.args)

`hookgate.agent.sync` has the same for code that isn't async.
"""

from hookgate._json import JsonError, JsonObject, JsonValue
from hookgate.agent._client import Agent
from hookgate.agent._context import CallContext, call_context, current_context
from hookgate.agent._errors import Blocked, CallError, CallErrorKind, NoDecision, Violation
from hookgate.agent._options import (
    Caller,
    CallOptions,
    HookCallOptions,
    OnNoDecision,
    PointCallOptions,
    SyncTokenSource,
    TokenSource,
)
from hookgate.agent._token import hs256_signer, token_file
from hookgate.agent._types import (
    AnswerFacts,
    Continue,
    HookAnswer,
    ListedTool,
    NoticeKind,
    Payload,
    PluginContribution,
    PluginNotice,
    Step,
    StepOutcome,
    StepReason,
    ToolList,
    ToolResult,
)
from hookgate.media import Media
from hookgate.payload import AfterToolResult, BeforeLlmRequest, BeforeResponse, BeforeToolCall, TokenUsage
from hookgate.point import PointName
from hookgate.tool import ToolAnnotations

__all__ = [
    "AfterToolResult",
    "Agent",
    "AnswerFacts",
    "BeforeLlmRequest",
    "BeforeResponse",
    "BeforeToolCall",
    "Blocked",
    "CallContext",
    "CallError",
    "CallErrorKind",
    "CallOptions",
    "Caller",
    "Continue",
    "HookAnswer",
    "HookCallOptions",
    "JsonError",
    "JsonObject",
    "JsonValue",
    "ListedTool",
    "Media",
    "NoDecision",
    "NoticeKind",
    "OnNoDecision",
    "Payload",
    "PluginContribution",
    "PluginNotice",
    "PointCallOptions",
    "PointName",
    "Step",
    "StepOutcome",
    "StepReason",
    "SyncTokenSource",
    "TokenSource",
    "TokenUsage",
    "ToolAnnotations",
    "ToolList",
    "ToolResult",
    "Violation",
    "call_context",
    "current_context",
    "hs256_signer",
    "token_file",
]
