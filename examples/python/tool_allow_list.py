"""Lets agents use only the tools that their tenant's configuration lists. A tenant without a list may use none."""

from typing import Annotated

from hookgate import BeforeToolCall, Context, Plugin, ToolCallReply, cancel, proceed
from pydantic import BaseModel, Field


class TenantConfig(BaseModel, extra="forbid"):
    allowed_tools: list[Annotated[str, Field(min_length=1)]] = Field(
        default=[], description="Names of tools; one that ends with `*` is the beginning of names."
    )


plugin = Plugin("tool-allow-list", version="1.0.0", tenant_config=TenantConfig)


# The gateway may ask it at the same time as its neighbours.
@plugin.before_tool_call(access="read", side_effects="none")
async def check(call: BeforeToolCall, ctx: Context[None, TenantConfig]) -> ToolCallReply:
    if any(is_meant(call.tool_name, allowed) for allowed in ctx.tenant_config.allowed_tools):
        return proceed()
    return cancel("TOOL_NOT_ALLOWED", f"Agents may not use {call.tool_name}.")


def is_meant(tool_name: str, allowed: str) -> bool:
    return tool_name.startswith(allowed[:-1]) if allowed.endswith("*") else tool_name == allowed
