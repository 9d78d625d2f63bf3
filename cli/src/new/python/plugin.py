"""Refuses the tools that a tenant's configuration lists."""

from hookgate import BeforeToolCall, Context, Plugin, ToolCallReply, cancel, proceed
from pydantic import BaseModel, Field


class TenantConfig(BaseModel, extra="forbid"):
    refused_tools: list[str] = Field(default=[], description="The tools that the tenant's agents may not use.")


plugin = Plugin("@NAME@", version="0.1.0", tenant_config=TenantConfig)


@plugin.before_tool_call(access="read", side_effects="none")
async def refuse(call: BeforeToolCall, ctx: Context[None, TenantConfig]) -> ToolCallReply:
    if call.tool_name not in ctx.tenant_config.refused_tools:
        return proceed()
    return cancel("TOOL_NOT_ALLOWED", f"Agents may not use {call.tool_name}.")
