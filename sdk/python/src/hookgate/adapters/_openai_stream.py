"""Streams of OpenAI's Responses API, and answers, as plugins left them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from openai.types.responses import (
    ResponseCompletedEvent,
    ResponseIncompleteEvent,
    ResponseOutputItem,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseRefusalDeltaEvent,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)

from hookgate.adapters._answer_parts import find_parts
from hookgate.adapters._openai_items import copy_known, edit_output

End: TypeAlias = ResponseCompletedEvent | ResponseIncompleteEvent
"""The end of a stream, with the whole answer."""

EndT = TypeVar("EndT", bound=End)

_ENDS: Final = ("response.completed", "response.incomplete", "response.failed", "error", "response.error")
_TEXT_DELTAS: Final = ("response.output_text.delta", "response.refusal.delta")
_REASONING_DELTAS: Final = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_PLACE: Final = ("output_index", "content_index", "summary_index")


def stream_end(events: Sequence[ResponseStreamEvent], kinds: tuple[type[EndT], ...]) -> EndT:
    """The end of a stream.

    :raises RuntimeError: It ends in another way. Nothing of it may be shown.
    """
    ends = [event for event in events if event.type in _ENDS]
    if len(ends) == 1 and isinstance(ends[0], kinds):
        return ends[0]
    found = " and ".join(event.type for event in ends) or "nothing"
    raise RuntimeError(f"the model's answer ended with {found}, so it can't be judged")


def streamed_output(end: End, events: Sequence[ResponseStreamEvent]) -> list[ResponseOutputItem]:
    """The output of a streamed answer. Some providers leave it out at the end, and libraries take it from the items."""
    items = [event.item for event in events if isinstance(event, ResponseOutputItemDoneEvent)]
    return end.response.output or items


def is_honest(events: Sequence[ResponseStreamEvent], output: Sequence[ResponseOutputItem]) -> bool:
    """Whether the stream has the parts that were judged, or no text until its end. A part has a place in the answer:
    deltas of two places are never one text.
    """

    def parts(kinds: tuple[str, ...]) -> list[str]:
        found: dict[tuple[object, ...], str] = {}
        for event in events:
            if event.type in kinds:
                place = (event.type, *(getattr(event, name, None) for name in _PLACE))
                found[place] = found.get(place, "") + str(getattr(event, "delta", ""))
        return [part for part in found.values() if part]

    texts, thoughts = find_parts(edit_output, output)
    return parts(_TEXT_DELTAS) in ([], texts) and parts(_REASONING_DELTAS) in ([], thoughts)


def patched_events(end: End, output: list[ResponseOutputItem]) -> list[ResponseStreamEvent]:
    """A stream of the answer as plugins left it. The provider's own events have the text as it was."""
    response = copy_known(end.response, output=output)
    events: list[ResponseStreamEvent] = list(_text_deltas(output))
    number = len(events)
    if isinstance(end, ResponseIncompleteEvent):
        return [*events, ResponseIncompleteEvent(response=response, sequence_number=number, type=end.type)]
    return [*events, ResponseCompletedEvent(response=response, sequence_number=number, type=end.type)]


def _text_deltas(output: Sequence[ResponseOutputItem]) -> Iterator[ResponseStreamEvent]:
    """Each text of an answer in one piece."""
    places = [
        (item.id or "", index, content_index, part)
        for index, item in enumerate(output)
        if isinstance(item, ResponseOutputMessage)
        for content_index, part in enumerate(item.content)
    ]
    for number, (item_id, index, content_index, part) in enumerate(places):
        if isinstance(part, ResponseOutputRefusal):
            yield ResponseRefusalDeltaEvent(
                content_index=content_index,
                delta=part.refusal,
                item_id=item_id,
                output_index=index,
                sequence_number=number,
                type="response.refusal.delta",
            )
        elif part.text:
            yield ResponseTextDeltaEvent(
                content_index=content_index,
                delta=part.text,
                item_id=item_id,
                logprobs=[],
                output_index=index,
                sequence_number=number,
                type="response.output_text.delta",
            )
