"""Answers of Pydantic AI's models: what plugins see of them, and how their changes get back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters

from hookgate._json import JsonError, loads
from hookgate.adapters import _guard
from hookgate.adapters._guard import ModelCall, ModelResponsePatch, PatchError, Points, guard_model_response
from hookgate.adapters._pydantic_ai_messages import without_references
from hookgate.agent import Blocked


async def guard_answer(
    points: Points, response: ModelResponse, parameters: ModelRequestParameters, call: ModelCall
) -> tuple[ModelResponse, Blocked | None]:
    """Asks the gateway before an answer is shown. A call of an output tool is part of the answer: its arguments are.

    :returns: The answer, the same if plugins changed nothing, and the block whose message stands in its place.
    :raises Blocked: A plugin stopped the run, or an answer that must have a form.
    :raises NoDecision: No decision could be made.
    :raises PatchError: A plugin changed something that Pydantic AI can't take.
    """
    output_names = {tool.name for tool in parameters.output_tools}
    texts = [part.content for part in response.parts if isinstance(part, TextPart)]
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    outputs = [part for part in calls if part.tool_name in output_names]
    answer = _guard.ModelResponse(
        content="\n".join(filter(None, ["".join(texts), *(part.args_as_json_str() for part in outputs)])),
        reasoning="".join(part.content for part in response.parts if isinstance(part, ThinkingPart)),
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        stop_reason=response.finish_reason,
        has_tool_calls=bool(calls),
        is_structured=bool(outputs) or _is_structured(parameters),
    )
    patch = await guard_model_response(points, answer, call)
    if patch is None:
        return response, None
    if patch.blocked is not None:
        ended = replace(response, parts=_text(patch.content or ""), finish_reason="stop", state="complete")
        return without_references(ended), patch.blocked
    patched = replace(response, parts=_patch(response.parts, outputs, any(texts), patch))
    return without_references(patched), None


def _is_structured(parameters: ModelRequestParameters) -> bool:
    """Whether a text would be parsed. With `auto`, the model that is asked may choose that."""
    mode = parameters.output_mode
    may_be_json = mode in ("native", "prompted") or (mode == "auto" and parameters.output_object is not None)
    return may_be_json or not parameters.allow_text_output


def _patch(
    parts: Sequence[ModelResponsePart], outputs: Sequence[ToolCallPart], has_text: bool, patch: ModelResponsePatch
) -> list[ModelResponsePart]:
    patched = list(parts)
    if patch.reasoning is not None:
        # Reasoning without text, such as encrypted one, stays.
        thinking: list[ModelResponsePart] = [ThinkingPart(content=patch.reasoning)] if patch.reasoning else []
        patched = _replace_parts(
            patched, lambda part: isinstance(part, ThinkingPart) and part.content != "", thinking, lambda _: True
        )
    if patch.content is None:
        return patched
    if not outputs:
        return _replace_parts(
            patched,
            lambda part: isinstance(part, TextPart),
            _text(patch.content),
            lambda part: isinstance(part, ToolCallPart),
        )
    if len(outputs) > 1 or has_text:
        raise PatchError("a plugin changed an answer that has text beside its structured output, or several of these")
    return [_with_args(part, patch.content) if part is outputs[0] else part for part in patched]


def _with_args(output: ToolCallPart, content: str) -> ToolCallPart:
    try:
        args = loads(content)
    except JsonError:
        args = None
    if not isinstance(args, dict):
        raise PatchError("a plugin changed a structured output to a text that is no JSON object")
    return without_references(replace(output, args=content))


def _text(content: str) -> list[ModelResponsePart]:
    return [TextPart(content=content)] if content else []


def _replace_parts(
    parts: Sequence[ModelResponsePart],
    is_old: Callable[[ModelResponsePart], bool],
    replacement: Sequence[ModelResponsePart],
    is_later: Callable[[ModelResponsePart], bool],
) -> list[ModelResponsePart]:
    """Puts new parts in place of the old ones. Without old ones, they go before the first later part, or to the end."""
    indexes = [index for index, part in enumerate(parts) if is_old(part)]
    indexes = indexes or [index for index, part in enumerate(parts) if is_later(part)] or [len(parts)]
    before = parts[: indexes[0]]
    return [*before, *replacement, *(part for part in parts[indexes[0] :] if not is_old(part))]
