"""Answers of Pydantic AI's models: what plugins see of them, and how their changes get back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters

from hookgate._json import JsonError, loads
from hookgate.adapters import _answer_parts
from hookgate.adapters._answer_parts import PartWalk, add_part, find_parts, join_cut_texts, patch_parts
from hookgate.adapters._guard import ModelCall, PatchError, Points, guard_model_response
from hookgate.adapters._pydantic_ai_messages import without_references
from hookgate.agent import Blocked


async def guard_answer(
    points: Points, response: ModelResponse, parameters: ModelRequestParameters, call: ModelCall
) -> tuple[ModelResponse, Blocked | None]:
    """Asks the gateway before an answer is shown. A call of an output tool is part of the answer: its arguments are.

    :returns: The answer, the same if plugins changed nothing, and the block whose message stands in its place.
    :raises Blocked: A plugin stopped the run, or an answer that must have a form.
    :raises NoDecision: No decision could be made.
    :raises PatchError: A plugin changed something that Pydantic AI can't take.
    """
    output_names = {tool.name for tool in parameters.output_tools}
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    edit = partial(_edit_parts, output_names)
    texts, thoughts = find_parts(edit, response.parts)
    answer = _answer_parts.ModelResponse(
        texts=texts,
        thoughts=thoughts,
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        stop_reason=response.finish_reason,
        has_tool_calls=bool(calls),
        is_structured=any(part.tool_name in output_names for part in calls) or _is_structured(parameters),
    )
    patch = await guard_model_response(points, answer, call)
    if patch is None:
        return response, None
    if patch.blocked is not None:
        message = [TextPart(content=patch.blocked.message)]
        ended = replace(response, parts=message, finish_reason="stop", state="complete")
        return without_references(ended), patch.blocked
    parts, text, thought = patch_parts(edit, response.parts, patch)
    if thought:
        parts = [ThinkingPart(content=thought), *parts]
    if text:
        parts = add_part(parts, TextPart(content=text), _is_text, lambda part: isinstance(part, ToolCallPart))
    return without_references(replace(response, parts=parts)), None


def _is_structured(parameters: ModelRequestParameters) -> bool:
    """Whether a text would be parsed. With `auto`, the model that is asked may choose that."""
    mode = parameters.output_mode
    may_be_json = mode in ("native", "prompted") or (mode == "auto" and parameters.output_object is not None)
    return may_be_json or not parameters.allow_text_output


def _edit_parts(
    output_names: Collection[str], parts: Sequence[ModelResponsePart], text: PartWalk, thought: PartWalk
) -> list[ModelResponsePart]:
    """The parts with the texts, the arguments of output tools, and the thoughts changed. An empty one goes."""
    edited: list[ModelResponsePart] = []
    for run in join_cut_texts(parts, _is_text, _is_cited):
        part = run[0]
        if isinstance(part, TextPart):
            old = "".join(piece.content for piece in run if isinstance(piece, TextPart))
            new = text(old)
            edited += run if new == old else [TextPart(content=new)] if new else []
        elif isinstance(part, ThinkingPart):
            new = thought(part.content)
            edited += run if new == part.content else [ThinkingPart(content=new)] if new else []
        elif isinstance(part, ToolCallPart) and part.tool_name in output_names:
            old = part.args_as_json_str()
            new = text(old)
            edited.append(part if new == old else _with_args(part, new))
        else:
            edited.append(part)
    return edited


def _with_args(output: ToolCallPart, content: str) -> ToolCallPart:
    try:
        args = loads(content)
    except JsonError:
        args = None
    if not isinstance(args, dict):
        raise PatchError("a plugin changed a structured output to a text that is no JSON object")
    return without_references(replace(output, args=content))


def _is_text(part: ModelResponsePart) -> bool:
    return isinstance(part, TextPart)


def _is_cited(part: ModelResponsePart) -> bool:
    """Whether the provider cut the text here to cite: then the citation is about the whole part."""
    if not isinstance(part, TextPart):
        return False
    anchors = [citation.anchor for citation in getattr(part, "citations", None) or ()]  # older versions have none
    whole = ("content", 0, len(part.content))
    return any(anchor is not None and (anchor.kind, anchor.start, anchor.end) == whole for anchor in anchors)
