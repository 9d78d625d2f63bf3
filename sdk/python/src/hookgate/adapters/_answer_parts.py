"""The parts of a model's answer: texts and thoughts that a reader sees apart.

Plugins judge each for itself, so that no pattern crosses from one into the next. Each change goes back to its own
place. It knows no agent library and no gateway.

An adapter has one function that edits an answer. It gives each text and each thought to a `PartWalk`, in order, and
puts what comes back in its place. The same function finds the parts and changes them, so it can't mix them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hookgate.agent import Blocked

T = TypeVar("T")
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """What a model answered."""

    texts: Sequence[str]
    """Its texts, in order. None is empty."""
    thoughts: Sequence[str] = ()
    """Its reasoning, as far as it is text. None is empty."""
    input_tokens: object = None
    """Left out, as `output_tokens` is, unless both are counts."""
    output_tokens: object = None
    stop_reason: object = None
    """Left out unless it is a text."""
    has_tool_calls: bool
    """Whether the model also calls tools."""
    is_structured: bool = False
    """Whether the text must have a form, such as JSON of a schema. Then no message can replace it."""

    @property
    def is_judged(self) -> bool:
        """Whether plugins are asked about it. An answer that only calls tools isn't shown to anybody, and passes."""
        return bool(self.texts or self.thoughts) or not self.has_tool_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponsePatch:
    """What plugins changed in a `ModelResponse`, for `patch_parts`."""

    texts: Sequence[str | None] = ()
    """The new texts, in the order of the old ones; `None` stays. If there was none, the first one is added."""
    thoughts: Sequence[str | None] = ()
    """The same for the thoughts."""
    blocked: Blocked | None = None
    """Set if the message of a block stands in place of the answer. Then nothing of it remains, and no tool is
    called."""


class PartWalk:
    """A walk through all texts of an answer, or through all its thoughts. Calling it takes the next one."""

    def __init__(self, changes: Sequence[str | None] = ()) -> None:
        """:param changes: What the parts become. `None` stays, as do those after the last change."""
        self._changes = changes
        self._places: dict[tuple[str, int], int] = {}
        self._repeats: Counter[str] = Counter()

    @property
    def found(self) -> list[str]:
        """The parts so far."""
        return [part for part, _ in self._places]

    @property
    def added(self) -> str:
        """What plugins added to an answer without any part."""
        return "" if self._places or not self._changes else self._changes[0] or ""

    def begin_member(self) -> None:
        """Begins a member of the answer that may repeat the earlier ones. A copy is the same part."""
        self._repeats.clear()

    def __call__(self, part: str) -> str:
        """What takes the place of the next part. If that is empty, the part goes. An empty text is no part."""
        if part == "":
            return part
        place = self._places.setdefault((part, self._repeats[part]), len(self._places))
        self._repeats[part] += 1
        change = self._changes[place] if place < len(self._changes) else None
        return part if change is None else change


def find_parts(edit: Callable[[AnswerT, PartWalk, PartWalk], object], answer: AnswerT) -> tuple[list[str], list[str]]:
    """The texts and the thoughts of an answer.

    :param edit: Gives an answer with its texts and its thoughts changed by the two walks.
    """
    texts, thoughts = PartWalk(), PartWalk()
    edit(answer, texts, thoughts)
    return texts.found, thoughts.found


def patch_parts(
    edit: Callable[[AnswerT, PartWalk, PartWalk], T], answer: AnswerT, patch: ModelResponsePatch
) -> tuple[T, str, str]:
    """The answer as plugins left it, and the text and the thought that they added.

    :param edit: The same that found the parts.
    """
    texts, thoughts = PartWalk(patch.texts), PartWalk(patch.thoughts)
    changed = edit(answer, texts, thoughts)
    return changed, texts.added, thoughts.added


def join_cut_texts(
    parts: Iterable[T],
    is_text: Callable[[T], bool],
    is_cited: Callable[[T], bool],
    is_reference: Callable[[T], bool] = lambda _: False,
) -> Iterator[list[T]]:
    """The parts, each in a list of its own, but adjacent texts in one list if the provider cut them apart to cite.

    :param is_cited: Whether a text has a citation.
    :param is_reference: Whether a part is nothing but a citation. It is in the list of the text before it.
    """
    run: list[T] = []
    for part in parts:
        is_cut = bool(run) and (is_reference(run[-1]) or is_cited(run[-1]) or is_cited(part))
        goes_on = bool(run) and is_text(run[0]) and (is_reference(part) or (is_text(part) and is_cut))
        if run and not goes_on:
            yield run
            run = []
        run.append(part)
    if run:
        yield run


def add_part(parts: Sequence[T], part: T, is_old: Callable[[T], bool], is_later: Callable[[T], bool]) -> list[T]:
    """Adds a part in place of the first old one, which has no text, or before the first later one, or to the end."""
    for index, other in enumerate(parts):
        if is_old(other):
            return [*parts[:index], part, *parts[index + 1 :]]
    place = next((index for index, other in enumerate(parts) if is_later(other)), len(parts))
    return [*parts[:place], part, *parts[place:]]
