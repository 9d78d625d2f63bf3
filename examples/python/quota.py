"""Limits the tool calls of each tenant per UTC day.

The count is in the gateway's storage, so all replicas share it and it survives restarts. While the storage can't be
reached the step fails, and its binding decides.
"""

from hookgate import BeforeToolCall, Context, Plugin, ToolCallReply, cancel, proceed
from pydantic import BaseModel, Field


class TenantConfig(BaseModel, extra="forbid"):
    calls_per_day: int = Field(default=1000, ge=0)


plugin = Plugin("quota", version="1.0.0", tenant_config=TenantConfig, capabilities=["storage:write"])


@plugin.before_tool_call(access="read", side_effects="some")
async def count(call: BeforeToolCall, ctx: Context[None, TenantConfig]) -> ToolCallReply:
    limit = ctx.tenant_config.calls_per_day
    calls = await ctx.storage.add("tool-calls", 1, limit=limit, window="day")
    if calls.added:
        return proceed()
    message = f"Your {limit} tool calls of today are used."
    return cancel("QUOTA_EXCEEDED", message, retry_after_ms=calls.resets_in_ms)
