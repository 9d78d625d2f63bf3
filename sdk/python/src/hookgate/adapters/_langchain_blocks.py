"""The blocks of an answer of LangChain's models: which hold a text or a thought, and the same blocks with others.

It knows the forms of the providers, but neither messages nor plugins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

from hookgate.adapters._answer_parts import PartWalk, join_cut_texts
from hookgate.adapters._reasoning import edit_reasoning

Block: TypeAlias = str | dict[str, Any]
"""A block of an answer's content."""

_REASONING_TYPE: Final = re.compile("reasoning|thinking")
_REASONING_MEMBERS: Final = frozenset({"thinking", "reasoning", "reasoning_content", "reasoningContent"})

_CITED_MEMBERS: Final = ("citations_content", "citationsContent")
"""Where Bedrock has a text with its citations."""

_TEXT_MEMBERS: Final = ("text", "refusal")
"""The texts of all other blocks."""


def edit_blocks(blocks: Iterable[Block], text: PartWalk, thought: PartWalk) -> list[Block]:
    """The blocks with their texts, refusals included, and their thoughts changed. What becomes empty goes."""
    edited: list[Block] = []
    for run in join_cut_texts(blocks, is_text, _is_cited, _is_reference):
        if is_text(run[0]):
            old = "".join(_text_in(block) for block in run if is_text(block))
            new = text(old)
            changed = [_with_text(run[0], new)] if new else []
            edited += run if new == old else [*changed, *filter(_is_reference, run)]
        else:
            edited += [kept for block in run if (kept := _edit_block(block, text, thought)) is not None]
    return edited


def is_text(block: Block) -> bool:
    """Whether a block is nothing but text. A refusal is something else."""
    block = _unwrapped(block)
    if isinstance(block, str) or _cited_member(block) is not None:
        return True
    if "type" in block:
        return str(block["type"]) == "text"
    return "text" in block and not (_has_reasoning(block) or "refusal" in block)


def _unwrapped(block: Block) -> Block:
    """The provider's own block, which LangChain wraps if it has no form for it."""
    value = _wrapped(block)
    return block if value is None else _unwrapped(value)


def _wrapped(block: Block) -> Block | None:
    """The block in a wrapper; `None` if this is none."""
    if isinstance(block, str) or block.get("type") != "non_standard":
        return None
    value = block.get("value")
    return value if isinstance(value, (str, dict)) else None


def _has_reasoning(block: dict[str, Any]) -> bool:
    is_typed = _REASONING_TYPE.search(str(block.get("type"))) is not None
    return is_typed or not _REASONING_MEMBERS.isdisjoint(block)


def _cited_member(block: dict[str, Any]) -> str | None:
    return next((name for name in _CITED_MEMBERS if isinstance(block.get(name), dict)), None)


def _text_in(block: Block) -> str:
    """The text of a block that is nothing else."""
    block = _unwrapped(block)
    if isinstance(block, str):
        return block
    member = _cited_member(block)
    pieces = block.get("text") if member is None else block[member].get("content")
    if isinstance(pieces, list):
        pieces = "".join(_text_in(piece) for piece in pieces if isinstance(piece, (str, dict)))
    return pieces if isinstance(pieces, str) else ""


def _with_text(block: Block, text: str) -> Block:
    """A block of the same form with this text. It loses what may hold a copy of the old one, such as citations."""
    if isinstance(block, str):
        return {"type": "text", "text": text}
    value = _wrapped(block)
    if value is not None:
        return _wrapper_of(_with_text(value, text))
    member = _cited_member(block)
    return _type_of(block) | ({"text": text} if member is None else {member: {"content": [{"text": text}]}})


def _type_of(block: dict[str, Any]) -> dict[str, Any]:
    return {"type": block["type"]} if "type" in block else {}


def _wrapper_of(block: Block) -> Block:
    return {"type": "non_standard", "value": block}


def _edit_block(block: Block, text: PartWalk, thought: PartWalk) -> Block | None:
    """A block that isn't only text, or `None` if nothing of it remains."""
    if isinstance(block, str):
        return block
    value = _wrapped(block)
    if value is not None:
        edited = _edit_block(value, text, thought)
        return block if edited is value else None if edited is None else _wrapper_of(edited)
    if _has_reasoning(block):
        return cast("Block | None", edit_reasoning(block, thought))
    old = {name: block[name] for name in _TEXT_MEMBERS if isinstance(block.get(name), str)}
    new = {name: text(part) for name, part in old.items()}
    if new == old:
        return block
    texts = {name: part for name, part in new.items() if part}
    return _type_of(block) | texts if texts else None


def _is_cited(block: Block) -> bool:
    """Whether the provider cut the text here to cite. OpenAI doesn't: its citations point into a text, and have no
    `cited_text`."""
    block = _unwrapped(block)
    if isinstance(block, str):
        return False
    annotations = block.get("annotations") or ()
    return (
        bool(block.get("citations"))
        or _cited_member(block) is not None
        or any(isinstance(citation, Mapping) and "cited_text" in citation for citation in annotations)
    )


def _is_reference(block: Block) -> bool:
    """Whether a block is a citation of Mistral's, which stands between the texts that it cuts."""
    block = _unwrapped(block)
    return not isinstance(block, str) and block.get("type") == "reference"
