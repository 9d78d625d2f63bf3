"""Streams of OpenAI's Responses API, and answers, as plugins left them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseIncompleteEvent,
    ResponseOutputItem,
    ResponseOutputItemDoneEvent,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
)
from pydantic import BaseModel

from hookgate.adapters._openai_items import answer_text, reasoning_text

ModelT = TypeVar("ModelT", bound=BaseModel)

End: TypeAlias = ResponseCompletedEvent | ResponseIncompleteEvent
"""The end of a stream, with the whole answer."""

EndT = TypeVar("EndT", bound=End)

_ENDS: Final = ("response.completed", "response.incomplete", "response.failed", "error", "response.error")
_TEXT_DELTAS: Final = ("response.output_text.delta", "response.refusal.delta")
_REASONING_DELTAS: Final = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")


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
    """Whether the stream has the text that was judged, or no text until its end."""

    def deltas(kinds: tuple[str, ...]) -> str:
        return "".join(str(getattr(event, "delta", "")) for event in events if event.type in kinds)

    texts = (deltas(_TEXT_DELTAS), answer_text(output)), (deltas(_REASONING_DELTAS), reasoning_text(output))
    return all(streamed in ("", judged) for streamed, judged in texts)


def patched_events(end: End, output: list[ResponseOutputItem]) -> list[ResponseStreamEvent]:
    """A stream of the answer as plugins left it. The provider's own events have the text as it was."""
    response = with_output(end.response, output)
    events: list[ResponseStreamEvent] = []
    text = answer_text(output)
    if text != "":
        index = next(index for index, item in enumerate(output) if item.type == "message")
        events.append(
            ResponseTextDeltaEvent(
                content_index=0,
                delta=text,
                item_id=output[index].id or "",
                logprobs=[],
                output_index=index,
                sequence_number=0,
                type="response.output_text.delta",
            )
        )
    number = len(events)
    if isinstance(end, ResponseIncompleteEvent):
        return [*events, ResponseIncompleteEvent(response=response, sequence_number=number, type=end.type)]
    return [*events, ResponseCompletedEvent(response=response, sequence_number=number, type=end.type)]


def with_output(response: Response, output: list[ResponseOutputItem]) -> Response:
    """The response with this output, without what only this provider adds."""
    changed = copy_known(response)
    changed.output = output
    return changed


def copy_known(model: ModelT) -> ModelT:
    """A copy with the members that the library knows. A provider's own ones may hold a copy of the text."""
    known = [name for name in type(model).model_fields if name in model.model_fields_set]
    return type(model).model_construct(set(known), **{name: getattr(model, name) for name in known})
