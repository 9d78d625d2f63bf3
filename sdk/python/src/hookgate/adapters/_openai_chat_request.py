"""Requests of chat completions: what plugins see of them, and how their changes get back."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Final, cast

from hookgate._json import JsonValue
from hookgate.adapters import _openai_items
from hookgate.adapters._guard import (
    MessageEditor,
    ModelCall,
    ModelRequest,
    PatchError,
    Points,
    guard_model_request,
    patch_messages,
)
from hookgate.adapters._openai_items import (
    Item,
    encode_item,
    input_items,
    is_text_part,
    media_of,
    question_in,
    text_of,
)
from hookgate.adapters._openai_request import CHAT_EXTRA, Arguments, extra_of, patch_tools_and_extra

_REASONING_COPIES: Final = ("provider_specific_fields", "reasoning_details", "reasoning_items", "thinking_blocks")
"""Where providers repeat parts of a message, some of them signed."""


async def guard_chat_request(
    points: Points, arguments: Arguments, call: ModelCall, extra: Collection[str] = CHAT_EXTRA
) -> Arguments:
    """Asks the gateway before a model is asked.

    :param extra: The arguments that plugins see in `extra`.
    :returns: The arguments as plugins left them; the same object if they changed nothing.
    :raises Blocked: A plugin stopped the request.
    :raises NoDecision: No decision could be made.
    :raises PatchError: A plugin changed something in a way that the API can't take.
    """
    given = input_items(arguments.get("messages"))
    leading = list(itertools.takewhile(_is_system_text, given))
    messages = given[len(leading) :]
    question = question_in(messages)
    system = [text_of(cast("Mapping[str, object]", message)) for message in leading]
    view = ModelRequest(
        text=text_of(question),
        system_prompt="\n".join(system) if system else None,
        messages=[encode_item(message) for message in messages],
        tools=None if arguments.get("tools") is None else [encode_item(tool) for tool in arguments["tools"]],
        media=media_of(question),
        extra=extra_of(arguments, extra),
    )
    patch = await guard_model_request(points, view, call)
    if patch.is_empty:
        return arguments
    if patch.system_prompt is not None:
        role = cast("Mapping[str, object]", leading[0])["role"] if leading else "system"
        leading = [{"role": role, "content": patch.system_prompt}] if patch.system_prompt else []
    changed = {**arguments, "messages": [*leading, *patch_messages(messages, patch, _EDITOR)]}
    patch_tools_and_extra(changed, patch, extra)
    return changed


def _is_system_text(message: object) -> bool:
    """Whether a message is a text of the system, with nothing else that the model may read."""
    if not isinstance(message, Mapping) or message.get("role") not in ("system", "developer"):
        return False
    content = message.get("content")
    is_text = isinstance(content, str) or (isinstance(content, (list, tuple)) and all(map(is_text_part, content)))
    return is_text and message.keys() <= {"role", "content", "cache_control"}


class _ChatEditor:
    """Changes messages as `_openai_items` does, but each has a role, and may have copies of what a plugin changed."""

    with_text = staticmethod(_openai_items.with_text)
    without_media = staticmethod(_openai_items.without_media)

    @staticmethod
    def decode_message(json: JsonValue, original: Item | None) -> Item:
        if not isinstance(json, dict) or not isinstance(json.get("role"), str):
            raise PatchError("a plugin left a message without a role")
        old = encode_item(original)
        copies = [name for name in _REASONING_COPIES if isinstance(old, Mapping) and name in old]
        return {name: value for name, value in json.items() if name not in copies}


_EDITOR: Final[MessageEditor[Item]] = _ChatEditor()
