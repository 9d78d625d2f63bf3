"""Items of OpenAI's Responses API: what plugins see of them, and how their changes get back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from openai.types.responses import (
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_reasoning_item import Summary
from pydantic import BaseModel

from hookgate._json import JsonValue
from hookgate.adapters._guard import ModelResponsePatch, PatchError
from hookgate.adapters._media import drop_media, medium_from
from hookgate.media import Media

Item: TypeAlias = object
"""An item of a request: a mapping, or an item of an earlier answer."""

Part: TypeAlias = Mapping[str, object]
"""A part of a message's content."""

_TEXT_PARTS: Final = ("input_text", "text")
_FILE_SOURCES: Final = ("file_url", "file_data")


def input_items(value: object) -> list[Item]:
    """The items of a request's input. A text is a message of the user.

    :raises TypeError: It is neither a text nor a list. An iterator could be read only once.
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if isinstance(value, (list, tuple)):
        return list(value)
    raise TypeError(f"messages and input must be a list, is of the type {type(value).__name__}")


def encode_item(item: Item) -> object:
    """An item as plugins see it."""
    return item.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(item, BaseModel) else item


def decode_message(json: JsonValue, _: Item | None) -> Item:
    """The item that a plugin left.

    :raises PatchError: It is no object.
    """
    if isinstance(json, dict):
        return json
    raise PatchError("a plugin left a message that is no object")


def question_in(items: Sequence[Item]) -> Mapping[str, object] | None:
    """The last message of the user."""
    users = (item for item in reversed(items) if isinstance(item, Mapping) and item.get("role") == "user")
    return next(users, None)


def text_of(message: Mapping[str, object] | None) -> str:
    """The text of a message, that of several parts one below the other."""
    content = None if message is None else message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in _parts(message) if part.get("type") in _TEXT_PARTS)


def is_text_part(part: object) -> bool:
    """Whether `text_of` gives all that the model may read in this part."""
    if not isinstance(part, Mapping) or not part.keys() <= {"type", "text", "cache_control"}:
        return False
    return part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str)


def with_text(items: Sequence[Item], text: str) -> list[Item]:
    """The items with this text in the last message of the user, whose other parts stay."""
    question = question_in(items)
    if question is None:
        return [*items, {"role": "user", "content": text}]
    if isinstance(question.get("content"), str):
        return _with_content(items, question, text)
    parts = _parts(question)
    texts = [index for index, part in enumerate(parts) if part.get("type") in _TEXT_PARTS]
    others = [part for part in parts if part.get("type") not in _TEXT_PARTS]
    kind = parts[texts[0]]["type"] if texts else _text_kind(others)
    place = texts[0] if texts else 0
    return _with_content(items, question, [*others[:place], {"type": kind, "text": text}, *others[place:]])


def media_of(message: Mapping[str, object] | None) -> list[Media]:
    """The images and files of a message, as far as they aren't the provider's own references."""
    return [medium for medium in map(_medium_of, _parts(message)) if medium is not None]


def without_media(items: Sequence[Item], dropped: Sequence[Media]) -> list[Item]:
    """The items without these images and files in the last message of the user."""
    question = question_in(items)
    if question is None:
        return list(items)
    return _with_content(items, question, drop_media(_parts(question), dropped, _medium_of))


def answer_text(output: Sequence[ResponseOutputItem]) -> str:
    """The text of an answer, refusals included."""
    parts = (part for item in output if isinstance(item, ResponseOutputMessage) for part in item.content)
    return "".join(part.refusal if isinstance(part, ResponseOutputRefusal) else part.text for part in parts)


def reasoning_text(output: Sequence[ResponseOutputItem]) -> str:
    """The reasoning of an answer, as far as it is text: the summary, and what is more."""
    items = [item for item in output if isinstance(item, ResponseReasoningItem)]
    return "".join(part.text for item in items for part in (*item.summary, *(item.content or ())))


def has_tool_calls(output: Sequence[ResponseOutputItem]) -> bool:
    """Whether an answer calls tools or another agent."""
    return any(item.type.endswith("_call") for item in output)


def patch_output(
    output: Sequence[ResponseOutputItem], patch: ModelResponsePatch, new_id: str
) -> list[ResponseOutputItem]:
    """The answer as plugins left it.

    The new text stands in the first message, without what the provider said about the old one. Reasoning that changed
    goes to where its summary was, without its encrypted form.

    :param new_id: The id of a message that the model didn't make.
    """
    if patch.blocked is not None:
        return [_message(patch.content or "", new_id)]
    patched = list(output)
    if patch.content is not None:
        patched = _with_answer(patched, patch.content, new_id)
    return patched if patch.reasoning is None else _with_reasoning(patched, patch.reasoning, new_id)


def _with_answer(items: Sequence[ResponseOutputItem], text: str, new_id: str) -> list[ResponseOutputItem]:
    """One message with this text in place of all. If there is none, it goes before the calls of tools."""
    first = next((item for item in items if isinstance(item, ResponseOutputMessage)), None)
    others: list[ResponseOutputItem] = [item for item in items if not isinstance(item, ResponseOutputMessage)]
    if text == "":
        return others
    place = len(others)
    for index, item in enumerate(items):
        if item is first or (first is None and item.type.endswith("_call")):
            place = index
            break
    message = _message(text, first.id if first else new_id)
    return [*others[:place], message, *others[place:]]


def _with_reasoning(items: Sequence[ResponseOutputItem], text: str, new_id: str) -> list[ResponseOutputItem]:
    first = next((item for item in items if isinstance(item, ResponseReasoningItem)), None)
    others: list[ResponseOutputItem] = [item for item in items if not isinstance(item, ResponseReasoningItem)]
    if text == "":
        return others
    place = 0 if first is None else list(items).index(first)
    summary = [Summary(text=text, type="summary_text")]
    changed = ResponseReasoningItem(id=first.id if first else new_id, summary=summary, type="reasoning")
    return [*others[:place], changed, *others[place:]]


def _message(text: str, item_id: str) -> ResponseOutputMessage:
    content = ResponseOutputText(annotations=[], text=text, type="output_text")
    return ResponseOutputMessage(id=item_id, content=[content], role="assistant", status="completed", type="message")


def _with_content(items: Sequence[Item], question: Mapping[str, object], content: object) -> list[Item]:
    return [{**question, "content": content} if item is question else item for item in items]


def _parts(message: Mapping[str, object] | None) -> list[Part]:
    content = None if message is None else message.get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, (list, tuple)) else []


def _text_kind(others: Sequence[Part]) -> str:
    """How the API that a message is for names its texts: in a message of the Responses API all begin with `input_`."""
    return "input_text" if all(str(part.get("type")).startswith("input_") for part in others) else "text"


def _medium_of(part: Part) -> Media | None:
    """The medium that a part is, in the forms of the Responses API and of chat completions."""
    match part.get("type"):
        case "input_image" | "image_url":
            image = part.get("image_url")
            members = image if isinstance(image, Mapping) else {"url": image}
            return _medium(members.get("url"), _mime_type(members, "image/*"))
        case "input_audio":
            audio = part.get("input_audio")
            members = audio if isinstance(audio, Mapping) else {}
            return _medium(members.get("data"), f"audio/{members.get('format') or '*'}")
        case "input_file" | "file":
            file = part.get("file")
            members = file if isinstance(file, Mapping) else part
            source = next((members[name] for name in _FILE_SOURCES if members.get(name) is not None), None)
            filename = members.get("filename")
            mime_type = _mime_type(members, "application/octet-stream")
            return _medium(source, mime_type, filename if isinstance(filename, str) else None)
    return None


def _mime_type(members: Mapping[str, object], default: str) -> str:
    """What LiteLLM adds to images and files."""
    mime_type = members.get("format")
    return mime_type if isinstance(mime_type, str) else default


def _medium(source: object, mime_type: str, filename: str | None = None) -> Media | None:
    return medium_from(source, mime_type, filename) if isinstance(source, str) else None
