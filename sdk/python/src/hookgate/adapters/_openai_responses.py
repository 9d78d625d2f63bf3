"""Calls of `responses.create`, between the gateway's points."""

from __future__ import annotations

from typing import Final, cast
from uuid import uuid4

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseIncompleteEvent,
    ResponseOutputItem,
    ResponseStreamEvent,
)

from hookgate.adapters import _openai_items
from hookgate.adapters._answer_parts import ModelResponse, ModelResponsePatch, find_parts
from hookgate.adapters._guard import (
    ModelCall,
    ModelRequest,
    Points,
    guard_model_request,
    guard_model_response,
    patch_messages,
)
from hookgate.adapters._openai_items import (
    copy_known,
    edit_output,
    encode_item,
    has_tool_calls,
    input_items,
    media_of,
    patch_output,
    question_in,
    text_of,
)
from hookgate.adapters._openai_request import (
    RESPONSES_EXTRA,
    Arguments,
    Create,
    check_arguments,
    extra_of,
    model_call,
    needs_json,
    patch_tools_and_extra,
)
from hookgate.adapters._openai_stream import is_honest, patched_events, stream_end, streamed_output

_ENDS: Final = (ResponseCompletedEvent, ResponseIncompleteEvent)


async def ask_responses(points: Points, create: Create, arguments: Arguments) -> Response | list[ResponseStreamEvent]:
    """Asks a model, and returns its answer as plugins left it."""
    arguments = check_arguments(arguments)
    call = model_call(arguments)
    arguments = await _guard_request(points, arguments, call)
    answer = await create(arguments)
    is_structured = needs_json((arguments.get("text") or {}).get("format"))
    if isinstance(answer, list):
        events = cast("list[ResponseStreamEvent]", answer)
        end = stream_end(events, _ENDS)
        output = streamed_output(end, events)
        patch = await _guard_answer(points, end.response, output, call, is_structured)
        if patch is None and is_honest(events, output):
            return events
        return patched_events(end, patch_output(output, patch or ModelResponsePatch(), _new_id()))
    if not isinstance(answer, Response):
        raise TypeError(f"an answer of the type {type(answer).__name__} can't be judged")
    patch = await _guard_answer(points, answer, answer.output, call, is_structured)
    if patch is None:
        return answer
    return copy_known(answer, output=patch_output(answer.output, patch, _new_id()))


def _new_id() -> str:
    return f"msg_{uuid4().hex}"


async def _guard_request(points: Points, arguments: Arguments, call: ModelCall) -> Arguments:
    """Asks the gateway before a model is asked."""
    given = arguments.get("input")
    items = [] if given is None else input_items(given)
    question = question_in(items)
    view = ModelRequest(
        text=text_of(question),
        system_prompt=arguments.get("instructions"),
        messages=[encode_item(item) for item in items],
        tools=None if arguments.get("tools") is None else [encode_item(tool) for tool in arguments["tools"]],
        media=media_of(question),
        extra=extra_of(arguments, RESPONSES_EXTRA),
    )
    patch = await guard_model_request(points, view, call)
    changed = dict(arguments)
    patched = patch_messages(items, patch, _openai_items)
    if patched is not items:
        changed["input"] = list(patched)
    if patch.system_prompt is not None:
        changed["instructions"] = patch.system_prompt
    patch_tools_and_extra(changed, patch, RESPONSES_EXTRA)
    return changed


async def _guard_answer(
    points: Points, response: Response, output: list[ResponseOutputItem], call: ModelCall, is_structured: bool
) -> ModelResponsePatch | None:
    """Asks the gateway before an answer is shown."""
    usage = response.usage
    texts, thoughts = find_parts(edit_output, output)
    view = ModelResponse(
        texts=texts,
        thoughts=thoughts,
        input_tokens=usage and usage.input_tokens,
        output_tokens=usage and usage.output_tokens,
        stop_reason=response.status,
        has_tool_calls=has_tool_calls(output),
        is_structured=is_structured,
    )
    return await guard_model_response(points, view, call)
