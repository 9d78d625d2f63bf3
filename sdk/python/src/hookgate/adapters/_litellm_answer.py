"""Answers of LiteLLM's models, whole or streamed: what plugins see of them, and how their changes get back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from litellm.types.utils import Choices, Delta, Message, ModelResponse, ModelResponseStream, StreamingChoices

from hookgate.adapters import _guard
from hookgate.adapters._guard import ModelCall, ModelResponsePatch, Points, guard_model_response
from hookgate.adapters._openai_chat import StreamedChoice, choice_answer, streamed_choices, usage_in
from hookgate.adapters._openai_request import needs_json


async def guard_answer(points: Points, response: object, request: Mapping[str, Any], call: ModelCall) -> ModelResponse:
    """Asks the gateway about each choice of an answer before it is shown.

    :returns: The same answer if plugins changed nothing.
    :raises Blocked: A plugin stopped the run, or an answer that must be JSON.
    :raises NoDecision: No decision could be made.
    :raises TypeError: The answer has a form that can't be judged.
    """
    if not isinstance(response, ModelResponse):
        raise TypeError(f"an answer of the type {type(response).__name__} can't be judged")
    usage = getattr(response, "usage", None)
    choices = []
    for choice in response.choices:
        answer = choice_answer(choice, usage, needs_json(request.get("response_format")))
        patch = await guard_model_response(points, answer, call)
        choices.append(choice if patch is None else _patched_choice(choice, answer, patch))
    if all(choice is own for choice, own in zip(choices, response.choices, strict=True)):
        return response
    changed = response.model_copy()
    changed.choices = choices
    # What only this provider adds may hold a copy of the text.
    for name in (changed.model_extra or {}).keys() - {"usage"}:
        delattr(changed, name)
    return changed


def _patched_choice(choice: Choices, answer: _guard.ModelResponse, patch: ModelResponsePatch) -> Choices:
    """A new message, without what the provider said about the old one."""
    message = choice.message
    if patch.blocked is not None:
        return Choices(finish_reason="stop", index=choice.index, message=Message(content=patch.content))
    kept: dict[str, Any] = {"tool_calls": message.tool_calls, "function_call": message.function_call}
    reasoning = answer.reasoning if patch.reasoning is None else patch.reasoning
    if patch.reasoning is None:
        kept["thinking_blocks"] = getattr(message, "thinking_blocks", None)
    content = answer.content if patch.content is None else patch.content
    return Choices(
        finish_reason=choice.finish_reason,
        index=choice.index,
        message=Message(content=content, reasoning_content=reasoning or None, **kept),
    )


async def guard_chunks(
    points: Points, chunks: Sequence[object], request: Mapping[str, Any], call: ModelCall
) -> Sequence[ModelResponseStream]:
    """Asks the gateway about a whole stream, before any of it is shown.

    :returns: The same chunks if plugins changed nothing.
    :raises Blocked: A plugin stopped the run, or an answer that must be JSON.
    :raises NoDecision: No decision could be made.
    :raises RuntimeError: The stream broke off.
    :raises TypeError: A chunk has a form that can't be judged, or there are several choices.
    """
    own: list[ModelResponseStream] = []
    for chunk in chunks:
        if not isinstance(chunk, ModelResponseStream):
            raise TypeError(f"a chunk of the type {type(chunk).__name__} can't be judged")
        own.append(chunk)
    choice, *others = streamed_choices(own)
    if others or choice.index != 0:
        raise TypeError("a stream with several choices can't be judged: leave out `n`, or `stream`")
    answer = choice.answer(usage_in(own), needs_json(request.get("response_format")))
    patch = await guard_model_response(points, answer, call)
    return own if patch is None else _patched_chunks(own, choice, patch)


def _patched_chunks(
    chunks: Sequence[ModelResponseStream], choice: StreamedChoice, patch: ModelResponsePatch
) -> list[ModelResponseStream]:
    """All text in the first chunk. The others keep their calls of tools, the reason for the end, and the usage."""
    is_blocked = patch.blocked is not None
    content = choice.text if patch.content is None else patch.content
    reasoning = choice.reasoning if patch.reasoning is None else patch.reasoning
    thinking = _thinking_blocks(chunks) if patch.reasoning is None and not is_blocked else None
    kept: dict[str, Any] = {"reasoning_content": reasoning or None, "thinking_blocks": thinking or None}
    patched = [_with_delta(chunks[0], Delta(role="assistant", content=content or None, **kept), None)]
    for chunk, delta in () if is_blocked else choice.calls:
        calls = Delta(tool_calls=delta.tool_calls, function_call=delta.function_call)
        patched.append(_with_delta(chunk, calls, None))
    patched.append(_with_delta(chunks[-1], Delta(), "stop" if is_blocked else choice.finish_reason))
    for chunk in chunks:
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            last = _with_delta(chunk, Delta(), None)
            last.choices = [] if not chunk.choices else last.choices
            setattr(last, "usage", usage)  # noqa: B010 - a member that the model doesn't declare
            patched.append(last)
    return patched


def _thinking_blocks(chunks: Sequence[ModelResponseStream]) -> list[Any]:
    deltas = [piece.delta for chunk in chunks for piece in chunk.choices]
    return [block for delta in deltas for block in getattr(delta, "thinking_blocks", None) or ()]


def _with_delta(chunk: ModelResponseStream, delta: Delta, finish_reason: object) -> ModelResponseStream:
    choice = StreamingChoices(index=0, delta=delta, finish_reason=finish_reason)
    return ModelResponseStream(id=chunk.id, created=chunk.created, model=chunk.model, choices=[choice])
