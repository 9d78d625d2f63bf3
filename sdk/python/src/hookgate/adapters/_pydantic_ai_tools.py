"""Tools of Pydantic AI behind the gateway."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import ToolReturn, UserContent
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from hookgate._json import JsonValue, dumps
from hookgate.adapters._guard import (
    BlockedTool,
    FailedTool,
    OwnResult,
    PatchError,
    Points,
    ToolCall,
    ToolOutput,
    guard_tool_run,
)
from hookgate.adapters._pydantic_ai_run import RunState
from hookgate.adapters._values import is_same_json, to_json, to_text


@dataclass
class GuardedToolset(WrapperToolset[AgentDepsT]):
    """Tools between `before_tool_call` and `after_tool_result`."""

    points: Points
    run_state: RunState | None

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        own: list[object] = []

        async def run(tool_name: str, args: object) -> ToolOutput[object]:
            if tool_name == name and args is tool_args:
                value = await self.wrapped.call_tool(name, tool_args, ctx, tool)
            else:
                value = await self._call_changed(tool_name, args, ctx, tool if tool_name == name else None)
            own.append(value)
            return ToolOutput(value=value, result=_view(value))

        try:
            call = ToolCall(tool_name=name, args=tool_args, call_id=ctx.tool_call_id)
            outcome = await guard_tool_run(self.points, call, run, _is_control_flow)
        except Exception as error:
            if self.run_state is not None and not _is_control_flow(error):
                self.run_state.end(error)
            raise
        if isinstance(outcome, OwnResult):
            return outcome.value
        if isinstance(outcome, FailedTool):
            raise outcome.error
        if isinstance(outcome, BlockedTool):
            raise ToolFailed(outcome.blocked.message) from outcome.blocked
        if outcome.success:
            return _replaced(outcome.result, own[0] if own else None)
        # Without the tool's own error, which may say what a plugin has removed.
        raise ToolFailed(to_text(outcome.result)) from None

    async def _call_changed(
        self, name: str, args: object, ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT] | None
    ) -> object:
        """Runs what a plugin made of a call. Its arguments pass the validation again that the library did before.

        :raises PatchError: The tool can't run here, or its schema doesn't allow the arguments. The model made neither
            the name nor the arguments, so it must not get this as its own mistake.
        """
        if tool is None:
            tool = (await self.wrapped.get_tools(ctx)).get(name)
            ctx = replace(ctx, tool_name=name)
        if tool is None or tool.tool_def.kind not in ("function", "unapproved"):
            raise PatchError(f"a plugin changed the call to one of {name}, which is none of the tools that run here")
        if tool.tool_def.kind == "unapproved" and not ctx.tool_call_approved:
            raise PatchError(f"a plugin changed the call to one of {name}, which needs approval")
        if not isinstance(args, Mapping):
            _refuse(name, "they are no object")
        try:
            valid: dict[str, Any] = tool.args_validator.validate_json(
                dumps(to_json(args)), context=ctx.validation_context
            )
        except ValidationError as error:
            _refuse(name, str(error.errors(include_input=False, include_url=False)))
        if tool.args_validator_func is not None:
            checked = tool.args_validator_func(ctx, **valid)
            if inspect.isawaitable(checked):
                await checked
        return await self.wrapped.call_tool(name, valid, ctx, tool)


def _refuse(name: str, why: str) -> NoReturn:
    raise PatchError(f"a plugin changed the arguments of {name}, and they don't fit: {why}") from None


def _is_control_flow(error: Exception) -> bool:
    return isinstance(error, (CallDeferred, ApprovalRequired))


def _view(value: object) -> object:
    """What the model gets to read of a result."""
    if not isinstance(value, ToolReturn):
        return value
    if value.content is None:
        return value.return_value
    return {"return_value": value.return_value, "content": value.content}


def _replaced(result: JsonValue, own: object) -> object:
    """A result as a plugin left it, in the form of the tool's own."""
    if not isinstance(own, ToolReturn):
        return result
    if own.content is None:
        return replace(own, return_value=result)
    if not isinstance(result, dict) or result.keys() != {"return_value", "content"}:
        return replace(own, return_value=result, content=None)
    content: str | list[UserContent] | Any = own.content
    if not is_same_json(to_json(own.content), result["content"]):
        content = _content(result["content"])
    return replace(own, return_value=result["return_value"], content=content)


def _content(content: JsonValue) -> str | list[UserContent] | None:
    """Texts as they are, and anything else as JSON text."""
    if content is None:
        return None
    return [to_text(item) for item in content] if isinstance(content, list) else to_text(content)
