"""Requests of Pydantic AI to a model: what plugins see of them, and how their changes get back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    FileUrl,
    InstructionPart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    StructuredContent,
    SystemPromptPart,
    TextContent,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.tools import ToolDefinition

from hookgate._json import JsonValue, dumps
from hookgate.adapters import _guard
from hookgate.adapters._guard import ModelCall, PatchError, Points, guard_model_request, patch_messages
from hookgate.adapters._media import drop_media, medium_from
from hookgate.media import Media

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from hookgate.adapters._guard import MessageEditor

_PartT = TypeVar("_PartT", bound="DataclassInstance")

_JOINT: Final = "\n\n"
"""Between the parts of a system prompt."""

_REFERENCES: Final = ("id", "signature", "provider_details", "provider_response_id", "history_digest")
"""Members that name what a provider keeps of a message: it would take that in place of a changed one."""


async def guard_prompt(
    points: Points, messages: list[ModelMessage], parameters: ModelRequestParameters, call: ModelCall
) -> tuple[list[ModelMessage], ModelRequestParameters]:
    """Asks the gateway before a model is asked.

    :returns: The request as plugins left it.
    :raises Blocked: A plugin stopped the request.
    :raises NoDecision: No decision could be made.
    :raises PatchError: A plugin changed something that Pydantic AI can't take.
    """
    conversation = _Conversation.of(messages, parameters)
    question = _question_of(conversation.messages)
    tools: list[ToolDefinition | AbstractNativeTool] = [*parameters.function_tools, *parameters.native_tools]
    request = _guard.ModelRequest(
        text="" if question is None else _text_of(question),
        system_prompt=conversation.system_prompt,
        messages=[_json_of(message) for message in conversation.messages],
        tools=[_tool_view(tool) for tool in tools] or None,
        media=() if question is None else [medium for medium in map(_medium_of, _content_of(question)) if medium],
    )
    patch = await guard_model_request(points, request, call)
    if patch.is_empty:
        return messages, parameters
    conversation.messages = list(patch_messages(conversation.messages, patch, _EDITOR))
    if patch.system_prompt is not None:
        conversation.system_prompt = patch.system_prompt
        parameters = conversation.change_instructions(parameters)
    if patch.tools is not None:
        remaining = patch.tools.apply(tools, _decode_tool)
        parameters = replace(
            parameters,
            function_tools=[tool for tool in remaining if isinstance(tool, ToolDefinition)],
            native_tools=[tool for tool in remaining if isinstance(tool, AbstractNativeTool)],
        )
    return conversation.whole(), parameters


@dataclass
class _Conversation:
    """Messages without the system prompt, which is in the first one and among the parameters."""

    messages: list[ModelMessage]
    system: Sequence[ModelRequestPart]
    has_instructions: bool
    system_prompt: str | None

    @classmethod
    def of(cls, messages: list[ModelMessage], parameters: ModelRequestParameters) -> _Conversation:
        system: list[ModelRequestPart] = []
        texts = []
        rest = list(messages)
        if rest and isinstance(first := rest[0], ModelRequest):
            for part in first.parts:
                if not isinstance(part, SystemPromptPart):
                    break
                system.append(part)
                texts.append(part.content)
            others = list(first.parts[len(system) :])
            if system:
                rest[:1] = [replace(first, parts=others)] if others else []
        instructions = _instructions_of(messages, parameters)
        texts += [part.content for part in instructions]
        return cls(rest, system, bool(instructions), _JOINT.join(texts) if texts else None)

    def change_instructions(self, parameters: ModelRequestParameters) -> ModelRequestParameters:
        """Puts the changed system prompt where the instructions were, or else into the first message."""
        text = self.system_prompt or ""
        self.system = [SystemPromptPart(content=text)] if text and not self.has_instructions else []
        instructions = [InstructionPart(content=text)] if text and self.has_instructions else []
        return replace(parameters, instruction_parts=instructions)

    def whole(self) -> list[ModelMessage]:
        if not self.system:
            return self.messages
        if self.messages and isinstance(first := self.messages[0], ModelRequest):
            return [replace(first, parts=[*self.system, *first.parts]), *self.messages[1:]]
        return [ModelRequest(parts=self.system), *self.messages]


def _instructions_of(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> Sequence[InstructionPart]:
    """Those of the parameters. Without, models take those of the last message that has some."""
    if parameters.instruction_parts is not None:
        return parameters.instruction_parts
    for message in reversed(messages):
        if isinstance(message, ModelRequest) and message.instructions is not None:
            return [InstructionPart(content=message.instructions)]
    return []


def _json_of(message: ModelMessage) -> JsonValue:
    [json] = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    json.pop("instructions", None)  # They are among the parameters; those of older messages are never sent.
    return cast("JsonValue", json)


def _question_of(messages: Sequence[ModelMessage]) -> UserPromptPart | None:
    """What the user asked last."""
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            for part in reversed(message.parts):
                if isinstance(part, UserPromptPart):
                    return part
    return None


def _content_of(part: UserPromptPart) -> Sequence[UserContent]:
    return [part.content] if isinstance(part.content, str) else part.content


def _is_text(item: UserContent) -> bool:
    return isinstance(item, (str, TextContent))


def _text_of(part: UserPromptPart) -> str:
    texts = [item.content if isinstance(item, TextContent) else item for item in _content_of(part)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _medium_of(item: UserContent) -> Media | None:
    """The medium that an item is. A provider's own reference to a file is none."""
    if isinstance(item, BinaryContent):
        return Media(data=item.data, mime_type=item.media_type)
    if not isinstance(item, FileUrl):
        return None
    try:
        mime_type = item.media_type
    except ValueError:  # Its URL doesn't tell.
        mime_type = "application/octet-stream"
    return medium_from(item.url, mime_type) or Media(url=item.url, mime_type=mime_type)


class _Editor:
    def decode_message(self, json: JsonValue, original: ModelMessage | None) -> ModelMessage:
        try:
            [message] = ModelMessagesTypeAdapter.validate_json(dumps([json]))
        except ValidationError as error:
            problems = error.errors(include_input=False, include_url=False)
            raise PatchError(f"a plugin left a message that is none of Pydantic AI: {problems}") from None
        if isinstance(message, ModelRequest) and isinstance(original, ModelRequest):
            message = replace(message, instructions=original.instructions)
        return _without_references(message)

    def with_text(self, messages: Sequence[ModelMessage], text: str) -> list[ModelMessage]:
        question = _question_of(messages)
        if question is None:
            return [*messages, ModelRequest.user_text_prompt(text)]
        content = _content_of(question)
        first = next((index for index, item in enumerate(content) if _is_text(item)), 0)
        others = [item for item in content if not _is_text(item)]
        before = [item for item in content[:first] if not _is_text(item)]
        changed = [*before, text, *others[len(before) :]] if others else text
        return _replace_part(messages, question, replace(question, content=changed))

    def without_media(self, messages: Sequence[ModelMessage], dropped: Sequence[Media]) -> list[ModelMessage]:
        question = _question_of(messages)
        if question is None:
            return list(messages)
        content = drop_media(_content_of(question), dropped, _medium_of)
        return _replace_part(messages, question, replace(question, content=content))


_EDITOR: Final[MessageEditor[ModelMessage]] = _Editor()


def _replace_part(messages: Sequence[ModelMessage], old: UserPromptPart, new: UserPromptPart) -> list[ModelMessage]:
    return [
        replace(message, parts=[new if part is old else part for part in message.parts])
        if isinstance(message, ModelRequest)
        else message
        for message in messages
    ]


def _without_references(message: ModelMessage) -> ModelMessage:
    """A changed message without what would bring the original back."""
    if isinstance(message, ModelResponse):
        return replace(without_references(message), parts=[without_references(part) for part in message.parts])
    return replace(message, parts=[_plain_part(part) for part in message.parts])


def without_references(part: _PartT) -> _PartT:
    """A part of an answer, or an answer, without the names under which its provider keeps it."""
    names = {field.name for field in fields(part)}
    changes: dict[str, Any] = {name: None for name in _REFERENCES if name in names}
    return replace(part, **changes)


def _plain_part(part: ModelRequestPart) -> ModelRequestPart:
    if not isinstance(part, UserPromptPart) or isinstance(part.content, str):
        return part
    return replace(part, content=list(_plain_content(part.content)))


def _plain_content(content: Sequence[UserContent]) -> Iterator[UserContent]:
    """A value that has a text beside it may still be the one from before the text was changed."""
    for item in content:
        yield TextContent(content=item.content) if isinstance(item, StructuredContent) else item


def _tool_view(tool: ToolDefinition | AbstractNativeTool) -> dict[str, object]:
    """A tool for plugins. Native ones may have credentials, so only their names are shown."""
    if isinstance(tool, AbstractNativeTool):
        return {"native_tool": tool.kind, "id": tool.unique_id}
    return {"name": tool.name, "description": tool.description, "parameters_json_schema": tool.parameters_json_schema}


def _decode_tool(
    json: JsonValue, original: ToolDefinition | AbstractNativeTool | None
) -> ToolDefinition | AbstractNativeTool:
    if not isinstance(json, dict) or not isinstance(original, ToolDefinition) or json.get("name") != original.name:
        raise PatchError(
            "a plugin added or renamed a tool, or changed a native one: this adapter can only leave it out"
        )
    description, schema = json.get("description"), json.get("parameters_json_schema")
    if not isinstance(description, (str, type(None))) or not isinstance(schema, dict):
        raise PatchError(
            f"a plugin left the tool {original.name} without a schema, or with a description that is no text"
        )
    return replace(original, description=description, parameters_json_schema=schema)
