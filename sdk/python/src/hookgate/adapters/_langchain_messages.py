"""Messages of LangChain: what plugins see of them, and how their changes get back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import ValidationError

from hookgate._json import JsonObject, JsonValue
from hookgate.adapters._guard import PatchError
from hookgate.adapters._media import drop_media, medium_from
from hookgate.media import Media

Block: TypeAlias = dict[str, object]
"""A block of a message's content."""

Content: TypeAlias = str | list[str | dict[object, object]]
"""How LangChain's types name a message's content."""

_ROLES: Final[Mapping[str, str]] = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
"""The roles that most providers use, by LangChain's types."""

_MEDIA_BLOCKS: Final[Mapping[str, str]] = {
    "image": "image/*",
    "audio": "audio/*",
    "video": "video/*",
    "file": "application/octet-stream",
    "document": "application/octet-stream",
    "media": "application/octet-stream",
}


def encode_message(message: BaseMessage) -> JsonObject:
    """A message as plugins see it: `role`, `content`, `id`, `name`, and `tool_calls`, `tool_call_id` and `status` where
    they apply. What a provider added stays here."""
    role = message.role if isinstance(message, ChatMessage) else _ROLES.get(message.type, message.type)
    members: dict[str, object] = {
        "role": role,
        "content": message.content,
        "id": message.id,
        "name": message.name,
    }
    if isinstance(message, AIMessage):
        members["tool_calls"] = message.tool_calls or None
    if isinstance(message, ToolMessage):
        members |= {"tool_call_id": message.tool_call_id, "status": message.status}
    return cast("JsonObject", {name: value for name, value in members.items() if value is not None})


def decode_message(json: JsonValue, original: BaseMessage | None) -> BaseMessage:
    """The message that a plugin left. Copies of an answer's text that a provider keeps beside it are left out.

    :raises PatchError: It isn't a message.
    """
    if not isinstance(json, dict) or not isinstance(role := json.get("role"), str):
        raise PatchError("a plugin left a message without a role")
    fields = {name: value for name, value in json.items() if name != "role"}
    is_same = original is not None and _ROLES.get(original.type) == role
    if is_same and original is not None and role in ("user", "assistant"):
        if role == "user":
            fields["additional_kwargs"] = original.additional_kwargs
        else:
            # Not `additional_kwargs`: the calls that a provider repeats there would count again.
            _, metadata = remainder(original)
            fields["response_metadata"] = cast("JsonValue", metadata)
    try:
        match role:
            case "user":
                return HumanMessage.model_validate(fields)
            case "assistant":
                return AIMessage.model_validate(fields)
            case "system":
                return SystemMessage.model_validate(fields)
            case "tool":
                return ToolMessage.model_validate(fields)
            case _:
                return ChatMessage.model_validate({**fields, "role": role})
    except ValidationError:
        raise PatchError(f"a plugin left a message of the role {role} that LangChain can't take") from None


def text_of(message: BaseMessage | None) -> str:
    """The text of a message, that of several blocks one below the other."""
    if message is None or isinstance(message.content, str):
        return "" if message is None else str(message.content)
    return "\n".join(str(block.get("text", "")) for block in _blocks(message) if block.get("type") == "text")


def is_text_only(message: BaseMessage) -> bool:
    """Whether a message is a text, with nothing else that the model may read."""
    return message.name is None and all(
        block.get("type") == "text"
        and isinstance(block.get("text"), str)
        and block.keys() <= {"type", "text", "cache_control"}
        for block in _blocks(message)
    )


def question_in(messages: Sequence[BaseMessage]) -> HumanMessage | None:
    """The last message of the user."""
    return next((message for message in reversed(messages) if isinstance(message, HumanMessage)), None)


def with_text(messages: Sequence[BaseMessage], text: str) -> list[BaseMessage]:
    """The messages with this text in the last one of the user, whose other blocks stay."""
    question = question_in(messages)
    if question is None:
        return [*messages, HumanMessage(text)]
    is_text = isinstance(question.content, str)
    return _with_content(messages, question, text if is_text else _replace_text(_blocks(question), text))


def media_of(message: BaseMessage | None) -> list[Media]:
    """The images and files of a message, as far as they aren't a provider's own references."""
    media = [] if message is None else map(_medium_of, _blocks(message))
    return [medium for medium in media if medium is not None]


def without_media(messages: Sequence[BaseMessage], dropped: Sequence[Media]) -> list[BaseMessage]:
    """The messages without these images and files in the last one of the user."""
    question = question_in(messages)
    if question is None:
        return list(messages)
    return _with_content(messages, question, drop_media(_blocks(question), dropped, _medium_of))


def remainder(message: BaseMessage) -> tuple[dict[str, object], dict[str, object]]:
    """What a provider added to an answer and what can't hold a copy of its text: tool calls, signatures, names and
    numbers."""
    additional: dict[str, object] = {
        name: value
        for name, value in message.additional_kwargs.items()
        if name in ("tool_calls", "function_call") or name.startswith("__")
    }
    metadata: dict[str, object] = {
        name: value
        for name, value in message.response_metadata.items()
        if value is None or isinstance(value, (str, int, float))
    }
    return additional, metadata


def _blocks(message: BaseMessage) -> list[Block]:
    """The blocks of a message whose content is no text. A text between them is a block too."""
    content = cast("str | list[str | Block]", message.content)
    if isinstance(content, str):
        return []
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]


def _replace_text(blocks: Sequence[Block], text: str) -> list[Block]:
    """The blocks with this text in place of all."""
    others = [block for block in blocks if block.get("type") != "text"]
    if text == "" and others:
        return others
    first = next((index for index, block in enumerate(blocks) if block.get("type") == "text"), 0)
    return [*others[:first], {"type": "text", "text": text}, *others[first:]]


def _with_content(
    messages: Sequence[BaseMessage], question: HumanMessage, content: str | list[Block]
) -> list[BaseMessage]:
    changed = question.model_copy(update={"content": content})
    return [changed if message is question else message for message in messages]


def _medium_of(block: Block) -> Media | None:
    """The medium that a block is, in the forms of LangChain (also those before 1.0), OpenAI and Anthropic."""
    kind = str(block.get("type"))
    if kind == "image_url":
        image = block.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        return medium_from(url, "image/*") if isinstance(url, str) else None
    if kind == "input_audio":
        audio = _members(block.get("input_audio"))
        return _medium(audio.get("data"), f"audio/{audio.get('format') or '*'}", None)
    if kind not in _MEDIA_BLOCKS:
        return None
    nested = _members(block.get("source")) or _members(block.get("file"))
    mime_type = block.get("mime_type") or nested.get("media_type") or _MEDIA_BLOCKS[kind]
    own = [block.get(name) for name in ("url", "base64", "data")]
    sources = [*own, *(nested.get(name) for name in ("url", "data", "file_data"))]
    source = next((source for source in sources if source is not None), None)
    return _medium(source, str(mime_type), block.get("filename") or nested.get("filename"))


def _medium(source: object, mime_type: str, filename: object) -> Media | None:
    name = filename if isinstance(filename, str) else None
    if isinstance(source, bytes):
        return Media(data=source, mime_type=mime_type, filename=name)
    return medium_from(source, mime_type, name) if isinstance(source, str) else None


def _members(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
