"""Answers of LiteLLM's models, whole or streamed: what plugins see of them, and how their changes get back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from litellm.types.utils import Choices, Delta, Message, ModelResponse, ModelResponseStream, StreamingChoices

from hookgate.adapters._answer_parts import ModelResponsePatch
from hookgate.adapters._guard import ModelCall, Points, guard_model_response
from hookgate.adapters._openai_chat import (
    StreamedChoice,
    choice_answer,
    guard_choices,
    patched_choice,
    streamed_choices,
    usage_in,
)
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
    usage, is_structured = getattr(response, "usage", None), needs_json(request.get("response_format"))
    answers = [choice_answer(choice, usage, is_structured) for choice in response.choices]
    patches = await guard_choices(points, answers, call)
    if not any(patches):
        return response
    changed = response.model_copy()
    changed.choices = [
        choice if patch is None else patched_choice(choice, patch, Choices, Message)
        for choice, patch in zip(response.choices, patches, strict=True)
    ]
    # What only this provider adds may hold a copy of the text.
    for name in (changed.model_extra or {}).keys() - {"usage"}:
        delattr(changed, name)
    return changed


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
    """All text in the first chunk. The others keep their calls of tools, audio and annotations, the reason for the end,
    and the usage."""
    start, others = choice.patched(patch)
    patched = [_with_delta(chunks[0], Delta(role="assistant", **start), None)]
    patched += [_with_delta(chunk, Delta(**delta), None) for chunk, delta in others]
    patched.append(_with_delta(chunks[-1], Delta(), "stop" if patch.blocked else choice.finish_reason))
    for chunk in chunks:
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            last = _with_delta(chunk, Delta(), None)
            last.choices = [] if not chunk.choices else last.choices
            setattr(last, "usage", usage)  # noqa: B010 - a member that the model doesn't declare
            patched.append(last)
    return patched


def _with_delta(chunk: ModelResponseStream, delta: Delta, finish_reason: object) -> ModelResponseStream:
    choice = StreamingChoices(index=0, delta=delta, finish_reason=finish_reason)
    return ModelResponseStream(id=chunk.id, created=chunk.created, model=chunk.model, choices=[choice])
