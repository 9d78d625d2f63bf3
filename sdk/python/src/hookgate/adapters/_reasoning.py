"""The reasoning of models, which each provider gives in a form of its own: Anthropic, OpenAI, Bedrock, OpenRouter and
LangChain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

_MEMBERS: Final = (
    "thinking",
    "reasoning",
    "reasoning_content",
    "reasoningContent",
    "reasoningText",
    "reasoning_text",
    "text",
    "summary",
    "content",
)
"""The members of reasoning that hold text, directly or in parts."""

_KEPT: Final = ("type", "id", "index", "format")
"""The members that a changed object keeps beside its texts."""


def edit_reasoning(reasoning: object, thought: Callable[[str], str]) -> object:
    """A provider's reasoning with each of its thoughts changed.

    What isn't changed stays the same object. What becomes empty goes, and so does a signed object with a changed
    thought: the provider wouldn't take it. Another object loses what may hold a copy of its changed thought, such as
    the encrypted form. If nothing is left, the result is `None`.
    """
    if isinstance(reasoning, str):
        changed = thought(reasoning)
        return reasoning if changed == reasoning else changed or None
    if isinstance(reasoning, list):
        items = [(item, edit_reasoning(item, thought)) for item in reasoning]
        if all(new is item for item, new in items):
            return reasoning
        return [new for item, new in items if new is not None or item is None] or None
    if not isinstance(reasoning, dict):
        return reasoning
    members = {name: edit_reasoning(reasoning[name], thought) for name in _MEMBERS if name in reasoning}
    if all(new is reasoning[name] for name, new in members.items()):
        return reasoning
    is_signed = any(_member(holder, "signature") for holder in (reasoning, reasoning.get("extras")))
    if is_signed or not any(members.values()):
        return None
    # An empty member keeps its type.
    texts = {name: type(reasoning[name])() if new is None else new for name, new in members.items()}
    return {name: value for name, value in reasoning.items() if name in _KEPT} | texts


def append_reasoning(reasoning: object, delta: object) -> object:
    """A provider's reasoning with the next piece of a stream."""
    if reasoning is None or delta is None:
        return delta if reasoning is None else reasoning
    if isinstance(reasoning, str) and isinstance(delta, str):
        return reasoning + delta
    if isinstance(reasoning, list) and isinstance(delta, list):
        appended = list(reasoning)
        for number, item in enumerate(delta):
            place = _place_of(appended, item, is_first=number == 0)
            if place is None:
                appended.append(item)
            else:
                appended[place] = _append_item(appended[place], item)
        return appended
    return [reasoning, delta]


def _place_of(items: list[Any], delta: object, *, is_first: bool) -> int | None:
    """Which item a piece continues: that with its index, or without an index the last one, unless it is signed."""
    if not isinstance(delta, dict):
        return None
    places: Sequence[int] = range(len(items))
    if delta.get("index") is None:
        places = [len(items) - 1] if is_first and items and not _member(items[-1], "signature") else []
    return next((place for place in places if _is_same_item(items[place], delta)), None)


def _is_same_item(item: object, delta: dict[str, object]) -> bool:
    is_same = all(_member(item, name) == delta.get(name) for name in ("type", "index"))
    return is_same and delta.get("id") in (None, _member(item, "id"))


def _member(item: object, name: str) -> object:
    return item.get(name) if isinstance(item, dict) else None


def _append_item(item: dict[str, object], delta: dict[str, object]) -> dict[str, object]:
    changes = {name: value for name, value in delta.items() if value is not None}
    for name in changes.keys() & set(_MEMBERS):
        changes[name] = append_reasoning(item.get(name), changes[name])
    return {**item, **changes}
