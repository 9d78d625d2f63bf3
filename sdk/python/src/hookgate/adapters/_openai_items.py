"""Items of OpenAI's Responses API: what plugins see of them, and how their changes get back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from openai.types.responses import (
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_reasoning_item import Content, Summary
from pydantic import BaseModel

from hookgate._json import JsonValue
from hookgate.adapters._answer_parts import ModelResponsePatch, PartWalk, add_part, patch_parts
from hookgate.adapters._guard import PatchError
from hookgate.adapters._media import drop_media, medium_from
from hookgate.media import Media

Item: TypeAlias = object
"""An item of a request: a mapping, or an item of an earlier answer."""

Part: TypeAlias = Mapping[str, object]
"""A part of a message's content."""

TextPart: TypeAlias = ResponseOutputText | ResponseOutputRefusal
"""A part of an answer's message."""

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)
ThoughtT = TypeVar("ThoughtT", Summary, Content)

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


def edit_output(output: Sequence[ResponseOutputItem], text: PartWalk, thought: PartWalk) -> list[ResponseOutputItem]:
    """An answer with its texts, refusals included, and its thoughts changed.

    A message or a reasoning without any part left goes. A changed text loses what the provider said about the old one,
    and changed reasoning its encrypted form.
    """
    edited: list[ResponseOutputItem] = []
    for item in output:
        if isinstance(item, ResponseOutputMessage):
            content = _kept([_edit_text(part, text) for part in item.content])
            if content == item.content:
                edited.append(item)
            elif content:
                edited.append(copy_known(item, content=content))
        elif isinstance(item, ResponseReasoningItem):
            summary = _kept([_edit_thought(part, thought) for part in item.summary])
            details = _kept([_edit_thought(part, thought) for part in item.content or ()])
            if summary == item.summary and details == (item.content or []):
                edited.append(item)
            elif summary or details:
                edited.append(copy_known(item, summary=summary, content=details or None, encrypted_content=None))
        else:
            edited.append(item)
    return edited


def has_tool_calls(output: Sequence[ResponseOutputItem]) -> bool:
    """Whether an answer calls tools or another agent."""
    return any(_is_call(item) for item in output)


def patch_output(
    output: Sequence[ResponseOutputItem], patch: ModelResponsePatch, new_id: str
) -> list[ResponseOutputItem]:
    """The answer as plugins left it.

    An added text stands in the first message, or before the calls of tools. Added reasoning comes first, or stands in
    the first reasoning item.

    :param new_id: The id of a message that the model didn't make.
    """
    if patch.blocked is not None:
        return [_message(patch.blocked.message, new_id)]
    patched, text, thought = patch_parts(edit_output, output, patch)
    if text:
        first = next((item.id for item in patched if isinstance(item, ResponseOutputMessage)), new_id)
        patched = add_part(patched, _message(text, first), _is_message, _is_call)
    if thought:
        first = next((item.id for item in patched if isinstance(item, ResponseReasoningItem)), new_id)
        summary = [Summary(text=thought, type="summary_text")]
        added = ResponseReasoningItem(id=first, summary=summary, type="reasoning")
        patched = add_part(patched, added, lambda item: isinstance(item, ResponseReasoningItem), lambda _: True)
    return patched


def copy_known(model: ModelT, **changes: object) -> ModelT:
    """A copy with the members that the library knows. A provider's own ones may hold a copy of the text.

    :param changes: What members become. `None` leaves one out.
    """
    known = {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}
    members = {name: value for name, value in {**known, **changes}.items() if value is not None or name not in changes}
    return type(model).model_construct(set(members), **members)


def _edit_text(part: TextPart, text: PartWalk) -> TextPart | None:
    if isinstance(part, ResponseOutputRefusal):
        refusal = text(part.refusal)
        changed: TextPart = part if refusal == part.refusal else copy_known(part, refusal=refusal)
        return changed if refusal or changed is part else None
    new = text(part.text)
    if new == part.text:
        return part
    return ResponseOutputText(annotations=[], text=new, type="output_text") if new else None


def _edit_thought(part: ThoughtT, thought: PartWalk) -> ThoughtT | None:
    new = thought(part.text)
    if new == part.text:
        return part
    return copy_known(part, text=new) if new else None


def _kept(parts: Iterable[T | None]) -> list[T]:
    return [part for part in parts if part is not None]


def _is_message(item: ResponseOutputItem) -> bool:
    return isinstance(item, ResponseOutputMessage)


def _is_call(item: ResponseOutputItem) -> bool:
    return item.type.endswith("_call")


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
