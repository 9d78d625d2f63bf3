"""Writes a line to the gateway's log for each decision, and emits an event for each that didn't let the agent go on.

Bind it with `mode: observe`: it is called after the answer, so it costs the agent no time. It never writes payloads.
"""

from hookgate import (
    AfterToolResult,
    BeforeLlmRequest,
    BeforeResponse,
    BeforeToolCall,
    Context,
    LlmRequestReply,
    Plugin,
    PointName,
    ResponseReply,
    ToolCallReply,
    ToolResultReply,
    proceed,
)

plugin = Plugin("audit", version="1.0.0", capabilities=["log", "emit"])


@plugin.before_llm_request(access="read", side_effects="some")
async def audit_request(call: BeforeLlmRequest, ctx: Context) -> LlmRequestReply:
    await record("before_llm_request", ctx)
    return proceed()


@plugin.before_tool_call(access="read", side_effects="some")
async def audit_tool_call(call: BeforeToolCall, ctx: Context) -> ToolCallReply:
    await record("before_tool_call", ctx)
    return proceed()


@plugin.after_tool_result(access="read", side_effects="some")
async def audit_tool_result(call: AfterToolResult, ctx: Context) -> ToolResultReply:
    await record("after_tool_result", ctx)
    return proceed()


@plugin.before_response(access="read", side_effects="some")
async def audit_response(call: BeforeResponse, ctx: Context) -> ResponseReply:
    await record("before_response", ctx)
    return proceed()


async def record(point: PointName, ctx: Context) -> None:
    result = ctx.chain_result
    # The gateway adds the tenant and the request id.
    attributes = {
        "point": point,
        "decision": (result and result.decision) or "none",
        "plugin": result and result.plugin,
        "code": result and result.code,
        "operator": ctx.operator,
        "session": ctx.caller.session_id,
    }
    ctx.log.info("an agent's call was decided", attributes)
    if attributes["decision"] == "block":
        await ctx.emit("decision.blocked", attributes=attributes, severity="warn")
    # No decision could be made.
    if attributes["decision"] == "none":
        await ctx.emit("decision.failed", attributes=attributes, severity="error")
