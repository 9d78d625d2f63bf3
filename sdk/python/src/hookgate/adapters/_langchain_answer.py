"""Answers of LangChain's models: what plugins see of them, and how their changes get back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, cast

from langchain_core.messages import AIMessage

from hookgate.adapters._answer_parts import (
    ModelResponsePatch,
    PartWalk,
    add_part,
    find_parts,
    patch_parts,
)
from hookgate.adapters._langchain_blocks import Block, edit_blocks, is_text
from hookgate.adapters._langchain_messages import Content, remainder
from hookgate.adapters._reasoning import edit_reasoning

JudgedAnswer: TypeAlias = tuple[str | list[Block], dict[str, object]]
"""What of an answer is judged: the content, and members of `additional_kwargs`."""

_REASONING: Final = ("reasoning_content", "reasoning", "reasoning_details")


def answer_parts(answer: AIMessage) -> tuple[list[str], list[str]]:
    """The texts of an answer, refusals included, and its thoughts."""
    return find_parts(_edit, _judged(answer))


def patch_answer(answer: AIMessage, patch: ModelResponsePatch) -> AIMessage:
    """The answer as plugins left it, with the same id.

    Only what can't hold a copy of the text remains of what the provider said about it. Added reasoning has a place only
    where there is an empty `reasoning_content`.
    """
    additional, metadata = remainder(answer)
    patched = AIMessage(
        content="", id=answer.id, name=answer.name, usage_metadata=answer.usage_metadata, response_metadata=metadata
    )
    if patch.blocked is not None:
        patched.content = patch.blocked.message
        return patched
    (content, beside), text, thought = patch_parts(_edit, _judged(answer), patch)
    if text and isinstance(content, str):
        content = text
    elif text:
        content = add_part(cast("list[Block]", content), {"type": "text", "text": text}, is_text, lambda _: True)
    if thought and beside.get("reasoning_content") == "":
        beside["reasoning_content"] = thought
    patched.content = cast("Content", content)
    patched.additional_kwargs = additional | beside
    patched.tool_calls = answer.tool_calls
    patched.invalid_tool_calls = answer.invalid_tool_calls
    return patched


def _judged(answer: AIMessage) -> JudgedAnswer:
    content = cast("str | list[Block]", answer.content)
    return content, {name: answer.additional_kwargs.get(name) for name in ("refusal", "audio", *_REASONING)}


def _edit(answer: JudgedAnswer, text: PartWalk, thought: PartWalk) -> JudgedAnswer:
    content, members = answer
    edited = text(content) if isinstance(content, str) else edit_blocks(content, text, thought)
    beside = dict(members)
    if isinstance(members["refusal"], str):
        beside["refusal"] = text(members["refusal"]) or None
    transcript = _transcript(members["audio"])
    spoken = text(transcript)
    if spoken != transcript:
        edited = _with_line(edited, spoken)
    if spoken != transcript or not transcript:
        # The sound can't change with the transcript, and without one nobody knows what it says.
        beside["audio"] = None
    for name in _REASONING:
        thought.begin_member()
        beside[name] = edit_reasoning(members[name], thought)
    if content and not edited and not isinstance(content, str):
        # Providers take no message without any content.
        edited = [{"type": "text", "text": ""}]
    return edited, {name: value for name, value in beside.items() if value is not None}


def _transcript(audio: object) -> str:
    """What the audio of an answer says."""
    transcript = audio.get("transcript") if isinstance(audio, Mapping) else None
    return transcript if isinstance(transcript, str) else ""


def _with_line(content: str | list[Block], text: str) -> str | list[Block]:
    """A content with one more text at its end."""
    if isinstance(content, str):
        return "\n".join(filter(None, (content, text)))
    return [*content, {"type": "text", "text": text}] if text else content
