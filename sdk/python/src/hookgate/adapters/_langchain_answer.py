"""Answers of LangChain's models: what plugins see of them, and how their changes get back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from langchain_core.messages import AIMessage

from hookgate.adapters._answer_parts import (
    ModelResponsePatch,
    PartWalk,
    add_part,
    find_parts,
    join_cut_texts,
    patch_parts,
)
from hookgate.adapters._langchain_messages import Content, remainder
from hookgate.adapters._reasoning import edit_reasoning

Block: TypeAlias = str | dict[str, Any]
"""A block of an answer's content."""

JudgedAnswer: TypeAlias = tuple[str | list[Block], dict[str, object]]
"""What of an answer is judged: the content, and members of `additional_kwargs`."""

_REASONING_BLOCK: Final = re.compile("reasoning|thinking")
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
        content = add_part(cast("list[Block]", content), {"type": "text", "text": text}, _is_text, lambda _: True)
    if thought and beside.get("reasoning_content") == "":
        beside["reasoning_content"] = thought
    patched.content = cast("Content", content)
    patched.additional_kwargs = additional | beside
    patched.tool_calls = answer.tool_calls
    patched.invalid_tool_calls = answer.invalid_tool_calls
    return patched


def _judged(answer: AIMessage) -> JudgedAnswer:
    content = cast("str | list[Block]", answer.content)
    return content, {name: answer.additional_kwargs.get(name) for name in ("refusal", *_REASONING)}


def _edit(answer: JudgedAnswer, text: PartWalk, thought: PartWalk) -> JudgedAnswer:
    content, members = answer
    edited = text(content) if isinstance(content, str) else _edit_blocks(content, text, thought)
    beside = dict(members)
    if isinstance(members["refusal"], str):
        beside["refusal"] = text(members["refusal"]) or None
    for name in _REASONING:
        thought.begin_member()
        beside[name] = edit_reasoning(members[name], thought)
    return edited, {name: value for name, value in beside.items() if value is not None}


def _edit_blocks(blocks: list[Block], text: PartWalk, thought: PartWalk) -> list[Block]:
    edited: list[Block] = []
    for run in join_cut_texts(blocks, _is_text, _is_cited):
        old = "".join(map(_shown_text, run))
        new = text(old)
        if new == old:
            edited += [kept for block in run if (kept := _edit_reasoning_block(block, thought)) is not None]
        elif new:
            kind = "text" if _is_text(run[0]) else "refusal"
            edited.append({"type": kind, kind: new})
    # Providers take no message without any content.
    return edited or ([{"type": "text", "text": ""}] if blocks else [])


def _edit_reasoning_block(block: Block, thought: PartWalk) -> Block | None:
    if isinstance(block, str) or not _REASONING_BLOCK.search(str(block.get("type"))):
        return block
    return cast("Block | None", edit_reasoning(block, thought))


def _is_text(block: Block) -> bool:
    return isinstance(block, str) or block.get("type") == "text"


def _is_cited(block: Block) -> bool:
    """Whether the provider cut the text here to cite. OpenAI doesn't: its citations point into a text, and have no
    `cited_text`."""
    if isinstance(block, str):
        return False
    annotations = block.get("annotations") or ()
    return bool(block.get("citations")) or any(
        isinstance(citation, Mapping) and "cited_text" in citation for citation in annotations
    )


def _shown_text(block: Block) -> str:
    """The text of a block that is shown."""
    if isinstance(block, str):
        return block
    text = {"text": block.get("text"), "refusal": block.get("refusal")}.get(str(block.get("type")))
    return text if isinstance(text, str) else ""
