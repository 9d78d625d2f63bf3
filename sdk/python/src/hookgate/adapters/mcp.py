"""Puts tools of the Model Context Protocol behind the gateway, at the client or at the server. For the package `mcp` 2.

    from mcp import Client
    from hookgate.adapters.mcp import guard_client

    async with Client("https://example.com/mcp") as client:
        guard_client(gateway, client)
        result = await client.call_tool("read", {"path": "/etc/hosts"})

Where it doesn't reach: resources, prompts, sampling, elicitation (so neither what a server asks in the middle of a call
nor the answers that it gets), progress and other notifications, and methods of extensions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, cast

from mcp import Client, ClientSession
from mcp.server import MCPServer, Server, ServerRequestContext
from mcp.server.context import HandlerResult
from mcp.server.lowlevel.server import HandlerEntry
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    URL_ELICITATION_REQUIRED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ErrorData,
    Request,
    TextContent,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from hookgate.adapters._guard import (
    BlockedTool,
    FailedTool,
    Gateway,
    OwnResult,
    PatchError,
    Points,
    ToolCall,
    ToolOutcome,
    ToolOutput,
    async_points,
    find_gateway_error,
    guard_tool_run,
)
from hookgate.adapters._values import to_text
from hookgate.agent import Blocked, JsonValue

__all__ = ["BLOCKED_CODE", "NO_DECISION_CODE", "PatchError", "find_gateway_error", "guard_client", "guard_server"]

_CALL_TOOL: Final = "tools/call"

BLOCKED_CODE: Final = 40300
"""The JSON-RPC code of a block that ends the run. It is outside of the range that JSON-RPC reserves."""

NO_DECISION_CODE: Final = 50300
"""The JSON-RPC code of a missing decision. It is outside of the range that JSON-RPC reserves."""

_logger = logging.getLogger(__name__)

_ClientT = TypeVar("_ClientT", Client, ClientSession)
_ServerT = TypeVar("_ServerT", bound="MCPServer[Any] | Server[Any]")
_Send: TypeAlias = Callable[[CallToolRequestParams], Awaitable[HandlerResult]]


def guard_client(gateway: Gateway, client: _ClientT) -> _ClientT:
    """Puts the tools that a client calls behind the gateway.

    `before_tool_call` comes before each call is sent, `after_tool_result` on success and on failure. It changes the
    session itself, so that everything that holds it is guarded, such as the `Client` or a `ClientSessionGroup`.

    - A plugin may change the arguments and the tool's name. It may give the result instead of the server, or change it;
      such a result need not fit the tool's schema.
    - After a block the result is the message, with `is_error`.
    - A block with the scope `run` raises the `Blocked`, a missing decision the `NoDecision`.
    - A call that the server needs more input for is judged again when it is repeated with it.
    - Calls that run as tasks, and results in the form of an extension, are refused: their content comes another way.

    :param client: A session, or a `Client` that has been entered, which makes its session then.
    :returns: The same client.
    :raises RuntimeError: The `Client` has no session yet.
    """
    session = client.session if isinstance(client, Client) else client
    _SessionGuard(async_points(gateway), session).install()
    return client


class _PluginResult(CallToolResult):
    """A result that isn't validated for the tool of the call: a plugin made it, or had another tool called."""


class _SessionGuard:
    """All calls of tools pass `send_request`, and those of `call_tool` then `validate_tool_result`."""

    def __init__(self, points: Points, session: ClientSession) -> None:
        self._points = points
        self._session = session
        self._send: Callable[..., Awaitable[BaseModel]] = session.send_request
        self._validate = session.validate_tool_result

    def install(self) -> None:
        # Not by assignment, which mypy takes for a mistake.
        setattr(self._session, "send_request", self._send_request)  # noqa: B010
        setattr(self._session, "validate_tool_result", self._validate_tool_result)  # noqa: B010

    async def _send_request(
        self,
        request: Request[Any, Any],
        result_type: type[BaseModel] | TypeAdapter[BaseModel],
        *args: object,
        **options: object,
    ) -> BaseModel:
        if request.method != _CALL_TOOL:
            return await self._send(request, result_type, *args, **options)
        params = _params_of(request)

        async def send(changed: CallToolRequestParams) -> BaseModel:
            result = await self._send(CallToolRequest(params=changed), result_type, *args, **options)
            if changed.name == params.name or not isinstance(result, CallToolResult):
                return result
            if not result.is_error:
                await self._validate(changed.name, result)
            return _PluginResult.model_construct(**dict(result))

        # A result is a model here, because `send` gives one.
        return cast("BaseModel", await _guard_call(self._points, params, send))

    async def _validate_tool_result(self, name: str, result: CallToolResult) -> None:
        if not isinstance(result, _PluginResult):
            await self._validate(name, result)


def _params_of(request: Request[Any, Any]) -> CallToolRequestParams:
    params: object = request.params
    if isinstance(params, CallToolRequestParams):
        return params
    data: object = request.model_dump(by_alias=True, mode="json", exclude_none=True).get("params")
    return CallToolRequestParams.model_validate(data, by_name=False)


def guard_server(gateway: Gateway, server: _ServerT) -> _ServerT:
    """Puts the tools of a server behind the gateway.

    `before_tool_call` comes before each tool runs, `after_tool_result` on success and on failure. It changes the server
    itself, and also guards tools that are registered later. Interceptors of extensions are part of the tool.

    - A plugin may change the arguments, which the server then validates, and the tool's name. It may give the result
      instead of the tool, or change it.
    - After a block the client gets the message as the result, with `is_error`.
    - A block with the scope `run` is a JSON-RPC error with the code 40300 and the message. It can't end the client's
      run.
    - A missing decision is a JSON-RPC error with the code 50300, which doesn't say why. The log does
      (`hookgate.adapters.mcp`).
    - Both also stand for what ends a run within a tool, such as that of an agent, whatever the tool makes of it.
    - Calls that run as tasks, and results in the form of an extension, are refused: their content comes another way.

    Middleware of the server runs around this: it isn't judged if it answers a call itself, nor what it makes of a
    judged result. A tool that the server's own code runs with `MCPServer.call_tool` isn't judged either.

    :returns: The same server.
    """
    points = async_points(gateway)
    low_level: Server[Any] = server._lowlevel_server if isinstance(server, MCPServer) else server
    entry_of = low_level.get_request_handler

    def guarded_entry_of(method: str) -> HandlerEntry[Any] | None:
        entry = entry_of(method)
        return _guard_entry(points, entry) if entry is not None and method == _CALL_TOOL else entry

    setattr(low_level, "get_request_handler", guarded_entry_of)  # noqa: B010 - as above
    return server


def _guard_entry(points: Points, entry: HandlerEntry[Any]) -> HandlerEntry[Any]:
    async def handler(context: ServerRequestContext[Any, Any], params: BaseModel) -> HandlerResult:
        if not isinstance(params, CallToolRequestParams):
            raise TypeError("the handler of tools/call must take CallToolRequestParams")

        async def send(changed: CallToolRequestParams) -> HandlerResult:
            return await entry.handler(context, changed)

        call_id = None if context.request_id is None else str(context.request_id)
        try:
            return await _guard_call(points, params, send, call_id)
        except Exception as error:
            _raise_for_client(error, params.name)

    return replace(entry, handler=handler)


def _raise_for_client(error: Exception, tool_name: str) -> NoReturn:
    """Why there was no decision is for the operator of the server, not for the client."""
    found = find_gateway_error(error)
    if found is None:
        raise error
    if isinstance(found, Blocked):
        raise MCPError(BLOCKED_CODE, found.message, {"code": found.code, "scope": found.scope}) from error
    _logger.error("No decision about a call of the tool %s", tool_name, exc_info=found)
    raise MCPError(NO_DECISION_CODE, "no decision about this call", {"code": found.code}) from error


class _InputRequired(Exception):  # noqa: N818 - it is no error
    """The tool has not ended: the server needs more input first."""

    def __init__(self, result: HandlerResult) -> None:
        super().__init__()
        self.result = result


def _is_control_flow(error: Exception) -> bool:
    # The second one sends the user to a URL first.
    return isinstance(error, _InputRequired) or (isinstance(error, MCPError) and error.code == URL_ELICITATION_REQUIRED)


async def _guard_call(
    points: Points, params: CallToolRequestParams, send: _Send, call_id: str | None = None
) -> HandlerResult:
    """A call of a tool between the gateway's two points. A result with `isError` is the tool's failure."""
    name = params.name
    if params.task is not None:
        raise _refused(name, "can't run as a task, because its result would not be judged")
    arguments: Mapping[str, object] = params.arguments or {}

    async def run(tool_name: str, args: object) -> ToolOutput[HandlerResult]:
        changed = params
        if tool_name != name or args is not arguments:
            if not isinstance(args, Mapping):
                raise PatchError("a plugin changed the arguments to a value that is no object")
            changed = params.model_copy(update={"name": tool_name, "arguments": dict(args)})
        result = await send(changed)
        if isinstance(result, ErrorData):
            raise MCPError.from_error_data(result)
        wire = _wire(result)
        if wire.get("resultType") == "input_required":
            raise _InputRequired(result)
        if wire.get("resultType", "complete") != "complete" or not isinstance(wire.get("content"), list):
            raise _refused(tool_name, "gave no complete result, so that what comes later would not be judged")
        return ToolOutput(value=result, result=wire, success=wire.get("isError") is not True)

    try:
        call = ToolCall(tool_name=name, args=arguments, call_id=call_id)
        return _result_of(await guard_tool_run(points, call, run, _is_control_flow))
    except _InputRequired as interim:
        return interim.result


def _wire(result: HandlerResult) -> dict[str, Any]:
    """A result as it is sent."""
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return result or {}


def _result_of(
    outcome: ToolOutcome[HandlerResult],
) -> HandlerResult:
    """The result for the client: a whole one, or one around a plugin's value."""
    if isinstance(outcome, OwnResult):
        return outcome.value
    if isinstance(outcome, FailedTool):
        raise outcome.error
    if isinstance(outcome, BlockedTool):
        return _text_result(outcome.blocked.message, is_error=True)
    result = outcome.result
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        try:
            return _PluginResult.model_validate(result, by_name=False)
        except ValidationError as error:
            raise PatchError(f"a plugin left a result that is none of MCP: {error.title}") from error
    structured = result if outcome.success and isinstance(result, dict) else None
    return _text_result(to_text(result), is_error=not outcome.success, structured=structured)


def _text_result(text: str, *, is_error: bool, structured: dict[str, JsonValue] | None = None) -> _PluginResult:
    content: list[ContentBlock] = [TextContent(type="text", text=text)]
    if structured is None:
        return _PluginResult(content=content, is_error=is_error)
    return _PluginResult(content=content, is_error=is_error, structured_content=structured)


def _refused(tool_name: str, why: str) -> MCPError:
    return MCPError(INVALID_REQUEST, f"the tool {tool_name} {why}")
