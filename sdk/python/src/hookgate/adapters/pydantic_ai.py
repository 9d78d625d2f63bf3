"""Puts agents of Pydantic AI behind the gateway.

Needs pydantic-ai 2.62, whose capabilities can wrap models, and so Python 3.11.

    from pydantic_ai import Agent
    from hookgate.adapters.pydantic_ai import Guard

    agent = Agent("openai:gpt-5", capabilities=[Guard(gateway)], tools=[read_file])
    result = await agent.run("What is in notes.txt?")

Where it doesn't reach:

- Tools that a provider runs itself (native tools). Plugins see their names before the model is asked, and may leave
  them out.
- Tools that run outside of the run (external ones) and results that a handler gives for deferred calls.
- Output functions: their arguments are judged as the answer, not as the call of a tool.
- Files that a model makes, embeddings, and realtime sessions but for their tools.
- What hooks of other capabilities make of a judged answer or result, and models that other capabilities ask with agents
  of their own.
- `args_validator` functions of tools, questions for approval, and the events of tool calls get the arguments before the
  gateway is asked.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestContext,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.output import OutputContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RequestUsage

if not hasattr(AbstractCapability, "get_wrapper_model"):
    # It would never call that of the guard, so that models would not be guarded.
    raise ImportError("hookgate.adapters.pydantic_ai needs pydantic-ai 2.62 or newer, and so Python 3.11")

# After the check, because they need names that older versions lack.
from hookgate.adapters._guard import Gateway, ModelCall, PatchError, Points, async_points, find_gateway_error
from hookgate.adapters._pydantic_ai_answer import guard_answer
from hookgate.adapters._pydantic_ai_messages import guard_prompt
from hookgate.adapters._pydantic_ai_run import RunState
from hookgate.adapters._pydantic_ai_tools import GuardedToolset

if TYPE_CHECKING:
    from pydantic_ai.models.batch import BatchRequest, EncodedBatchRequest

__all__ = ["Guard", "PatchError", "find_gateway_error", "guard_model", "guard_toolset"]


class Guard(AbstractCapability[AgentDepsT]):
    """Puts all models and tools of an agent behind the gateway, also those that are given to a single run.

    The model:

    - Plugins see the text of the last user prompt as `text`, with its images and files, leading system prompts and the
      instructions as `system_prompt`, the other messages as `messages`, and `tools`. They may change all of them, but
      no image and no file: those can only go, as tools can. Their changes aren't kept in the message history.
    - Each text and each thought of an answer is judged for itself: the first call of `before_response` has the first
      text and the first thought, the second call has the second ones, and so on. A change goes back to its own place.
      Only the first call has the token usage. A block of any part stops the whole answer.
    - The arguments of each output tool are a text. Adjacent text parts are one text if the provider cut them apart to
      cite.
    - An answer that only calls other tools isn't judged here: its tools are.
    - A stream is held until it is judged, so its events come after the model has finished.
    - A block before the model is asked raises `Blocked`. A block before the response puts its message in place of the
      whole answer, or raises, if the answer must be structured, its text goes to a function (`TextOutput`), or the
      scope is `run`.

    Tools:

    - A plugin may change the arguments, which are then validated, and the tool's name. It may give the result instead
      of the tool, or change it. Arguments that the tool's schema doesn't allow, a name that no tool of this run has,
      and that of a tool that still needs approval, raise a `PatchError`: the model can't correct what it didn't write.
      Only what a tool's own `args_validator` has against the arguments goes to the model.
    - After a block the model gets the message as the tool's failure (`ToolFailed`).

    A block with the scope `run`, a missing decision (`NoDecision`) and a change that Pydantic AI can't take
    (`PatchError`) end the run, also if a hook of another capability recovers from what the tool raised.

    It is the innermost of the agent's capabilities. Requests in batches and the compaction of messages by a provider
    are refused: they don't pass it.

    Each run gets a shallow copy of it, also of a subclass, so a subclass must not keep in it what belongs to one run.
    """

    def __init__(self, gateway: Gateway) -> None:
        """:raises TypeError: The gateway is no agent of `hookgate.agent`."""
        self._points = async_points(gateway)
        self._run_state: RunState | None = None

    def get_ordering(self) -> CapabilityOrdering:
        """Called by Pydantic AI."""
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractCapability[AgentDepsT]:
        """Called by Pydantic AI."""
        guard = copy(self)
        guard._run_state = RunState()
        return guard

    def get_wrapper_model(self, model: Model) -> Model:
        """Called by Pydantic AI."""
        return _GuardedModel(self._points, model, self._run_state)

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """Called by Pydantic AI."""
        return GuardedToolset(toolset, self._points, self._run_state)

    async def before_output_process(
        self, ctx: RunContext[AgentDepsT], *, output_context: OutputContext, output: Any
    ) -> Any:
        """Called by Pydantic AI."""
        # Only here it is known that a text goes to a function, which would take the message for the answer.
        is_parsed = output_context.has_function and output_context.tool_call is None
        if is_parsed and self._run_state is not None and (blocked := self._run_state.blocked_answer) is not None:
            self._run_state.end(blocked)
            raise blocked
        return output

    async def after_run(self, ctx: RunContext[AgentDepsT], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Called by Pydantic AI."""
        if self._run_state is not None:
            self._run_state.check()
        return result


def guard_model(gateway: Gateway, model: Model | str) -> Model:
    """A model behind the gateway, for requests without an agent (`pydantic_ai.direct`). See `Guard`.

    In an agent without a `Guard`, the function of a `TextOutput` gets the message of a block before the response as if
    it were the answer.

    :raises TypeError: The gateway is no agent of `hookgate.agent`.
    """
    return _GuardedModel(async_points(gateway), model, None)


def guard_toolset(gateway: Gateway, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
    """Some tools of an agent behind the gateway. See `Guard`, which has all of them.

    A hook of another capability may recover from what ended the run here.

    :raises TypeError: The gateway is no agent of `hookgate.agent`.
    """
    return GuardedToolset(toolset, async_points(gateway), None)


class _GuardedModel(WrapperModel):
    def __init__(self, points: Points, wrapped: Model | str, run_state: RunState | None) -> None:
        super().__init__(wrapped)
        self._points = points
        self._run_state = run_state

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        call = self._call()
        messages, parameters = await guard_prompt(self._points, messages, model_request_parameters, call)
        response = await self.wrapped.request(messages, model_settings, parameters)
        return await self._judge(response, parameters, call)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        call = self._call()
        messages, parameters = await guard_prompt(self._points, messages, model_request_parameters, call)
        async with self.wrapped.request_stream(messages, model_settings, parameters, run_context) as stream:
            events = [event async for event in stream]
            response = stream.get()
        judged = await self._judge(response, parameters, call)
        yield CompletedStreamedResponse(
            judged,
            model_request_parameters=parameters,
            replay_events=events if judged is response else True,
        )

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        """Providers count for themselves, so they get the messages. The gateway is asked before, and again before the
        request itself.
        """
        messages, parameters = await guard_prompt(self._points, messages, model_request_parameters, self._call())
        return await self.wrapped.count_tokens(messages, model_settings, parameters)

    async def batch_encode(self, request: BatchRequest) -> EncodedBatchRequest:
        _refuse("requests in batches")

    async def compact_messages(
        self, request_context: ModelRequestContext, *, instructions: str | None = None
    ) -> ModelResponse:
        _refuse("the compaction of messages by a provider")

    def _call(self) -> ModelCall:
        """:raises Exception: What ended the run."""
        if self._run_state is not None:
            self._run_state.check()
        return ModelCall(provider=self.wrapped.system, model=self.wrapped.model_name)

    async def _judge(
        self, response: ModelResponse, parameters: ModelRequestParameters, call: ModelCall
    ) -> ModelResponse:
        judged, blocked = await guard_answer(self._points, response, parameters, call)
        if self._run_state is not None:
            self._run_state.blocked_answer = blocked
        return judged


def _refuse(what: str) -> NoReturn:
    raise UserError(f"the gateway can't judge {what}: leave it out, or the guard")
