"""Calls of `chat.completions.create`, between the gateway's points, and what all answers in their form have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
from openai.types.chat.chat_completion import Choice
from openai.types.chat.chat_completion_chunk import Choice as ChunkChoice
from openai.types.chat.chat_completion_chunk import ChoiceDelta

from hookgate.adapters._guard import ModelResponse, ModelResponsePatch, Points, guard_model_response
from hookgate.adapters._openai_chat_request import guard_chat_request
from hookgate.adapters._openai_request import Arguments, Create, check_arguments, model_call, needs_json
from hookgate.adapters._openai_stream import copy_known
from hookgate.adapters._reasoning import texts_in

_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "reasoning_items")
"""Where providers other than OpenAI, and LiteLLM, put reasoning. Most repeat it in several of them."""


def choice_answer(choice: Any, usage: object, is_structured: bool) -> ModelResponse:
    """What plugins see of a choice, of `openai` or of LiteLLM."""
    message = choice.message
    reasoning = _joined(_reasoning_parts(message).values())
    calls_tools = bool(message.tool_calls or message.function_call)
    return _answer(_choice_text(message), reasoning, choice.finish_reason, usage, calls_tools, is_structured)


def _choice_text(message: object) -> str:
    """The text of an answer: what it says, a refusal, and the transcript of audio."""
    return _text_in(message, "content") + _text_in(message, "refusal") + _transcript(message)


def _answer(
    text: str, reasoning: str, stop_reason: str | None, usage: object, has_tool_calls: bool, is_structured: bool
) -> ModelResponse:
    return ModelResponse(
        content=text,
        reasoning=reasoning,
        input_tokens=getattr(usage, "prompt_tokens", None),
        output_tokens=getattr(usage, "completion_tokens", None),
        stop_reason=stop_reason,
        has_tool_calls=has_tool_calls,
        is_structured=is_structured,
    )


def _member(message: object, name: str) -> object:
    """A member of a message. LiteLLM has some of them among what it calls a provider's own."""
    fields = getattr(message, "provider_specific_fields", None)
    value = getattr(message, name, None)
    return fields.get(name) if value is None and isinstance(fields, Mapping) else value


def _text_in(message: object, name: str) -> str:
    """A member that must be a text, because what isn't read here would pass unjudged."""
    value = _member(message, name)
    if value is None or isinstance(value, str):
        return value or ""
    raise TypeError(f"an answer whose {name} is of the type {type(value).__name__} can't be judged")


def _transcript(message: object) -> str:
    # Older versions of the library have no audio in pieces of streams, and leave it among what they don't know.
    audio = getattr(message, "audio", None)
    transcript = audio.get("transcript") if isinstance(audio, Mapping) else getattr(audio, "transcript", None)
    return transcript if isinstance(transcript, str) else ""


def _reasoning_parts(message: object) -> dict[str, str]:
    """The reasoning, as far as it is text, by where it is."""
    return {name: texts_in(_member(message, name)) for name in _REASONING}


def _joined(parts: Iterable[str]) -> str:
    """Parts of which some repeat others."""
    joined = ""
    for part in parts:
        if part not in joined:
            joined += part
    return joined


def _patch_choice(choice: Choice, answer: ModelResponse, patch: ModelResponsePatch) -> Choice:
    """The answer as plugins left it, without what the provider said about the old text."""
    message = choice.message
    changed = ChatCompletionMessage(role=message.role, content=patch.content or "")
    if patch.blocked is not None:
        return Choice(finish_reason="stop", index=choice.index, message=changed)
    if patch.content is None:
        changed = copy_known(message)
    changed.tool_calls = message.tool_calls
    changed.function_call = message.function_call
    kept = _kept_reasoning(answer.reasoning, patch)
    if kept is not None:
        # It has no place in OpenAI's own type.
        changed = ChatCompletionMessage.model_validate({**changed.model_dump(exclude_unset=True), **kept})
    return Choice(finish_reason=choice.finish_reason, index=choice.index, message=changed)


def _kept_reasoning(reasoning: str, patch: ModelResponsePatch) -> dict[str, str] | None:
    text = reasoning if patch.reasoning is None else patch.reasoning
    return {"reasoning_content": text} if text else None


@dataclass
class StreamedChoice:
    """One choice of a stream, of `openai` or of LiteLLM."""

    index: int
    content: str = ""
    refusal: str = ""
    transcript: str = ""
    reasoning_parts: dict[str, str] = field(default_factory=dict)
    finish_reason: str | None = None
    calls: list[tuple[Any, Any]] = field(default_factory=list)
    """Its chunks with tool calls, each with the calls in it."""

    @property
    def text(self) -> str:
        """The whole text, in the order of `_choice_text`."""
        return self.content + self.refusal + self.transcript

    @property
    def reasoning(self) -> str:
        """The whole reasoning."""
        return _joined(self.reasoning_parts.values())

    def add(self, chunk: Any, piece: Any) -> None:
        """Takes the next piece, and the chunk that it is in."""
        self.finish_reason = piece.finish_reason or self.finish_reason
        delta = piece.delta
        if delta is None:  # Azure's content filter reports in such choices.
            return
        self.content += _text_in(delta, "content")
        self.refusal += _text_in(delta, "refusal")
        self.transcript += _transcript(delta)
        for name, text in _reasoning_parts(delta).items():
            self.reasoning_parts[name] = self.reasoning_parts.get(name, "") + text
        if delta.tool_calls or delta.function_call:
            self.calls.append((chunk, delta))

    def answer(self, usage: object, is_structured: bool) -> ModelResponse:
        """What plugins see of it."""
        return _answer(self.text, self.reasoning, self.finish_reason, usage, bool(self.calls), is_structured)


def streamed_choices(chunks: Sequence[Any]) -> list[StreamedChoice]:
    """The choices of a stream.

    :raises RuntimeError: It broke off. Nothing of it may be shown.
    """
    choices: dict[int, StreamedChoice] = {}
    for chunk in chunks:
        for piece in chunk.choices:
            choices.setdefault(piece.index, StreamedChoice(piece.index)).add(chunk, piece)
    # The libraries end such a stream like any other.
    if not choices or not all(choice.finish_reason for choice in choices.values()):
        raise RuntimeError("the model's answer broke off without a finish_reason, so it can't be judged")
    return list(choices.values())


def usage_in(chunks: Sequence[Any]) -> object:
    """How many tokens a stream says that it took."""
    return next((usage for chunk in reversed(chunks) if (usage := getattr(chunk, "usage", None)) is not None), None)


def _patched_pieces(choice: StreamedChoice, patch: ModelResponsePatch | None) -> list[ChunkChoice]:
    """A choice's pieces as plugins left it."""
    patch = patch or ModelResponsePatch()
    content = choice.text if patch.content is None else patch.content
    kept = None if patch.blocked else _kept_reasoning(choice.reasoning, patch)
    start = ChoiceDelta.model_validate({"role": "assistant", "content": content, **(kept or {})})
    calls = [ChoiceDelta(tool_calls=delta.tool_calls, function_call=delta.function_call) for _, delta in choice.calls]
    deltas = [start] if patch.blocked else [start, *calls]
    reason = cast("Any", "stop" if patch.blocked else choice.finish_reason)
    end = ChunkChoice(delta=ChoiceDelta(), finish_reason=reason, index=choice.index)
    return [*(ChunkChoice(delta=delta, index=choice.index) for delta in deltas), end]


def _patched_chunks(
    chunks: Sequence[ChatCompletionChunk],
    choices: Sequence[StreamedChoice],
    patches: Sequence[ModelResponsePatch | None],
) -> list[ChatCompletionChunk]:
    """A stream of the answer as plugins left it. The provider's own chunks have the text as it was."""
    judged = zip(choices, patches, strict=True)
    pieces = [piece for choice, patch in judged for piece in _patched_pieces(choice, patch)]
    changed = [_with_choices(chunks[0], [piece], None) for piece in pieces]
    usage = usage_in(chunks)
    return changed if usage is None else [*changed, _with_choices(chunks[0], [], usage)]


def _with_choices(chunk: ChatCompletionChunk, choices: list[ChunkChoice], usage: Any) -> ChatCompletionChunk:
    changed = copy_known(chunk)
    changed.choices = choices
    changed.usage = usage
    return changed


async def ask_chat(points: Points, create: Create, arguments: Arguments) -> ChatCompletion | list[ChatCompletionChunk]:
    """Asks a model, and returns its answer as plugins left it."""
    arguments = check_arguments(arguments)
    call = model_call(arguments)
    arguments = await guard_chat_request(points, arguments, call)
    answer = await create(arguments)
    is_structured = needs_json(arguments.get("response_format"))
    if isinstance(answer, list):
        chunks = cast("list[ChatCompletionChunk]", answer)
        streamed = streamed_choices(chunks)
        views = [choice.answer(usage_in(chunks), is_structured) for choice in streamed]
        patches = [await guard_model_response(points, view, call) for view in views]
        return _patched_chunks(chunks, streamed, patches) if any(patches) else chunks
    if not isinstance(answer, ChatCompletion):
        raise TypeError(f"an answer of the type {type(answer).__name__} can't be judged")
    views = [choice_answer(choice, answer.usage, is_structured) for choice in answer.choices]
    patches = [await guard_model_response(points, view, call) for view in views]
    if not any(patches):
        return answer
    judged = zip(answer.choices, views, patches, strict=True)
    changed = copy_known(answer)
    changed.choices = [
        choice if patch is None else _patch_choice(choice, view, patch) for choice, view, patch in judged
    ]
    return changed
