"""Calls of `chat.completions.create`, between the gateway's points, and what all answers in their form have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar, cast

from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
from openai.types.chat.chat_completion import Choice
from openai.types.chat.chat_completion_chunk import Choice as ChunkChoice
from openai.types.chat.chat_completion_chunk import ChoiceDelta

from hookgate.adapters._answer_parts import ModelResponse, ModelResponsePatch, PartWalk, find_parts, patch_parts
from hookgate.adapters._guard import ModelCall, Points, guard_model_response
from hookgate.adapters._openai_chat_request import guard_chat_request
from hookgate.adapters._openai_items import copy_known
from hookgate.adapters._openai_request import Arguments, Create, check_arguments, model_call, needs_json
from hookgate.adapters._reasoning import append_reasoning, edit_reasoning

Members: TypeAlias = dict[str, Any]
"""Members of a message by their names."""

T = TypeVar("T")

_TEXTS: Final = ("content", "refusal", "transcript")
"""The texts of a message: what it says, a refusal, and the transcript of its audio."""

_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "reasoning_items")
"""Where providers other than OpenAI, and LiteLLM, put reasoning. Most repeat it in several of them."""

_OTHERS: Final = ("tool_calls", "function_call", "audio", "annotations")
"""What else deltas of a stream hold."""


def choice_answer(choice: Any, usage: object, is_structured: bool) -> ModelResponse:
    """What plugins see of a choice, of `openai` or of LiteLLM."""
    message = choice.message
    calls_tools = bool(message.tool_calls or message.function_call)
    return _answer(_judged_members(message), choice.finish_reason, usage, calls_tools, is_structured)


def _judged_members(message: object) -> Members:
    """The texts of a message or a delta, and all that has reasoning."""
    texts = {"content": _text_in(message, "content"), "refusal": _text_in(message, "refusal")}
    reasoning = {name: _member(message, name) for name in _REASONING}
    return {**texts, "transcript": _transcript(message), **reasoning}


def _edit_members(members: Members, text: PartWalk, thought: PartWalk) -> Members:
    texts = {name: text(members[name]) for name in _TEXTS}
    reasoning = {}
    for name in _REASONING:
        thought.begin_member()
        reasoning[name] = edit_reasoning(members.get(name), thought)
    return {**texts, **reasoning}


def _answer(
    members: Members, stop_reason: str | None, usage: object, has_tool_calls: bool, is_structured: bool
) -> ModelResponse:
    texts, thoughts = find_parts(_edit_members, members)
    return ModelResponse(
        texts=texts,
        thoughts=thoughts,
        input_tokens=getattr(usage, "prompt_tokens", None),
        output_tokens=getattr(usage, "completion_tokens", None),
        stop_reason=stop_reason,
        has_tool_calls=has_tool_calls,
        is_structured=is_structured,
    )


def _member(message: object, name: str) -> object:
    """A member of a message. LiteLLM has some of them among what it calls a provider's own."""
    value = getattr(message, name, None)
    return _own_members(message).get(name) if value is None else value


def _own_members(message: object) -> Mapping[str, object]:
    fields = getattr(message, "provider_specific_fields", None)
    return fields if isinstance(fields, Mapping) else {}


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


def _changed_members(members: Members, patch: ModelResponsePatch) -> Members:
    """What becomes of the members that plugins changed, and of those that point into a changed text."""
    edited, text, thought = patch_parts(_edit_members, members, patch)
    if text:
        edited["content"] = text
    if thought:
        edited["reasoning_content"] = thought
    changed = {name: value for name, value in edited.items() if value != members.get(name)}
    if "transcript" in changed:
        # The sound can't change with it, so it becomes text.
        said = (edited["content"], changed.pop("transcript"))
        changed |= {"content": "\n".join(filter(None, said)), "audio": None}
    if changed.get("refusal") == "" and not edited["content"]:
        changed["content"] = ""
    if "content" in changed:
        changed["annotations"] = None
    return changed


def patched_choice(
    choice: Any, patch: ModelResponsePatch, make_choice: Callable[..., T], make_message: Callable[..., Any]
) -> T:
    """A choice as plugins left it, of `openai` or of LiteLLM.

    Members that only this provider adds are left out: they may hold a copy of the text.
    """
    if patch.blocked is not None:
        message = make_message(role="assistant", content=patch.blocked.message)
        return make_choice(finish_reason="stop", index=choice.index, message=message)
    old = choice.message
    changed = _changed_members(_judged_members(old), patch)
    members = {name: getattr(old, name, None) for name in (*type(old).model_fields, *_REASONING)}
    own = {
        name: changed.pop(name, value)
        for name, value in _own_members(old).items()
        if name in ("refusal", *_REASONING) and members.get(name) is None
    }
    members |= {**changed, "provider_specific_fields": {name: value for name, value in own.items() if value}}
    message = make_message(**{name: value for name, value in members.items() if value or name == "content"})
    # Without the logprobs: some servers also have those of the reasoning there.
    return make_choice(finish_reason=choice.finish_reason, index=choice.index, message=message)


async def guard_choices(
    points: Points, answers: Iterable[ModelResponse], call: ModelCall
) -> list[ModelResponsePatch | None]:
    """Asks the gateway about each choice of an answer before it is shown. Only the first one that is asked about has
    the usage, which is that of all."""
    patches = []
    is_usage_told = False
    for answer in answers:
        own = replace(answer, input_tokens=None) if is_usage_told else answer
        patches.append(await guard_model_response(points, own, call))
        is_usage_told = is_usage_told or answer.is_judged
    return patches


@dataclass
class StreamedChoice:
    """One choice of a stream, of `openai` or of LiteLLM."""

    index: int
    members: Members = field(default_factory=lambda: dict.fromkeys(_TEXTS, ""))
    """The texts and the reasoning so far."""
    finish_reason: str | None = None
    others: list[tuple[Any, Any]] = field(default_factory=list)
    """Its chunks with tool calls, audio or annotations, each with the delta that has them."""

    def add(self, chunk: Any, piece: Any) -> None:
        """Takes the next piece, and the chunk that it is in."""
        self.finish_reason = piece.finish_reason or self.finish_reason
        delta = piece.delta
        if delta is None:  # Azure's content filter reports in such choices.
            return
        for name, value in _judged_members(delta).items():
            known = self.members.get(name)
            self.members[name] = known + value if name in _TEXTS else append_reasoning(known, value)
        if any(getattr(delta, name, None) for name in _OTHERS):
            self.others.append((chunk, delta))

    def answer(self, usage: object, is_structured: bool) -> ModelResponse:
        """What plugins see of it."""
        calls_tools = any(delta.tool_calls or delta.function_call for _, delta in self.others)
        return _answer(self.members, self.finish_reason, usage, calls_tools, is_structured)

    def patched(self, patch: ModelResponsePatch | None) -> tuple[Members, list[tuple[Any, Members]]]:
        """The choice as plugins left it: all text and reasoning, and the members of the deltas after it, each with its
        chunk."""
        if patch is not None and patch.blocked is not None:
            return {"content": patch.blocked.message}, []
        changed = _changed_members(self.members, patch or ModelResponsePatch())
        members = {**self.members, **changed}
        kept = [name for name in _OTHERS if name not in changed]
        others = [
            (chunk, {name: value for name in kept if (value := getattr(delta, name, None))})
            for chunk, delta in self.others
        ]
        start = {name: members[name] for name in ("content", "refusal", *_REASONING) if members.get(name)}
        return start, [(chunk, delta) for chunk, delta in others if delta]


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
    start, others = choice.patched(patch)
    deltas = [{"role": "assistant", "content": "", **start}, *(delta for _, delta in others)]
    pieces = [ChunkChoice(delta=ChoiceDelta.model_construct(**delta), index=choice.index) for delta in deltas]
    reason = cast("Any", "stop" if patch is not None and patch.blocked else choice.finish_reason)
    return [*pieces, ChunkChoice(delta=ChoiceDelta(), finish_reason=reason, index=choice.index)]


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
    return copy_known(chunk, choices=choices, usage=usage)


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
        patches = await guard_choices(points, views, call)
        return _patched_chunks(chunks, streamed, patches) if any(patches) else chunks
    if not isinstance(answer, ChatCompletion):
        raise TypeError(f"an answer of the type {type(answer).__name__} can't be judged")
    views = [choice_answer(choice, answer.usage, is_structured) for choice in answer.choices]
    patches = await guard_choices(points, views, call)
    if not any(patches):
        return answer
    choices = [
        choice
        if patch is None
        else patched_choice(choice, patch, Choice.model_construct, ChatCompletionMessage.model_construct)
        for choice, patch in zip(answer.choices, patches, strict=True)
    ]
    return copy_known(answer, choices=choices)
