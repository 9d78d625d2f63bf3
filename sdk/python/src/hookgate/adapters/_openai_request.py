"""Requests in OpenAI's form: what plugins see of them beside messages, and how their changes get back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from openai import NotGiven, Omit

from hookgate._json import JsonObject, JsonValue
from hookgate.adapters._guard import ModelCall, ModelRequestPatch, PatchError
from hookgate.adapters._values import is_same_json, to_json

Arguments: TypeAlias = dict[str, Any]
"""The arguments of `create`, which has dozens that are passed on as they are."""

Create: TypeAlias = Callable[[Arguments], Awaitable[object]]
"""Asks the model. A stream comes as the list of all its events."""

CHAT_EXTRA: Final = ("functions", "prediction", "response_format", "web_search_options", "extra_body")
"""Arguments of chat completions that the model also reads, shown to plugins in `extra`."""

RESPONSES_EXTRA: Final = ("prompt", "text", "extra_body")
"""The same of the Responses API."""

PROMPTS: Final = frozenset(
    {
        "chat_history",
        "contents",
        "input",
        "instructions",
        "messages",
        "preamble",
        "prompt",
        "system",
        "systemInstruction",
        "system_instruction",
    }
)
"""What models of all APIs read in place of messages. Providers take these names as they are, so that one of them beside
the judged messages would replace them."""

JUDGED: Final = PROMPTS | {"background", "functions", "n", "prediction", "response_format", "stream", "text", "tools"}
"""What is judged, or says how to judge: `extra_body` must not replace it."""


def check_arguments(arguments: Mapping[str, Any]) -> Arguments:
    """The arguments that are given.

    :raises TypeError: What they ask for can't be judged.
    """
    given = {name: value for name, value in arguments.items() if not isinstance(value, (NotGiven, Omit))}
    if given.get("background"):
        raise TypeError("an answer that is made in the background can't be judged: leave out `background`")
    replaced = sorted(JUDGED & set(given.get("extra_body") or ()))
    if replaced:
        raise TypeError(
            f"extra_body has {replaced[0]!r}, which would replace what was judged: "
            "make it an argument of its own, or a message"
        )
    return given


def model_call(arguments: Mapping[str, Any]) -> ModelCall:
    """Which model is asked."""
    model = arguments.get("model")
    return ModelCall(model=model if isinstance(model, str) else None)


def extra_of(arguments: Mapping[str, Any], names: Iterable[str]) -> dict[str, object] | None:
    """What else the model gets to read: the arguments with these names."""
    return {name: arguments[name] for name in names if arguments.get(name) is not None} or None


def needs_json(response_format: object) -> bool:
    """Whether an answer must be JSON, or has a form of its own."""
    is_text = isinstance(response_format, Mapping) and response_format.get("type", "text") == "text"
    return response_format is not None and not is_text


def patch_tools_and_extra(arguments: Arguments, patch: ModelRequestPatch, names: Iterable[str]) -> None:
    """Changes the tools, and the arguments that are in `extra`, to what plugins left."""
    if patch.tools is not None:
        tools = patch.tools.apply(list(arguments.get("tools") or ()), _decode_tool)
        if tools:
            arguments["tools"] = tools
        else:
            # The API refuses an empty list, and what only makes sense with tools.
            for option in ("tools", "tool_choice", "parallel_tool_calls"):
                arguments.pop(option, None)
    if patch.extra is not None:
        if added := sorted(patch.extra.keys() - set(names)):
            raise PatchError(f"a plugin added {added[0]!r} to `extra`, where this adapter has only {', '.join(names)}")
        for name in names:
            if name not in patch.extra:
                arguments.pop(name, None)
            elif not is_same_json(to_json(arguments.get(name)), patch.extra[name]):
                arguments[name] = patch.extra[name]


def _decode_tool(json: JsonValue, _: object) -> JsonObject:
    if isinstance(json, dict):
        return json
    raise PatchError("a plugin left a tool that is no object")
