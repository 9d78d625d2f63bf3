"""Requests to LiteLLM: what plugins see of them, and how their changes get back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from litellm.constants import DEFAULT_CHAT_COMPLETION_PARAM_VALUES, OPENAI_CHAT_COMPLETION_PARAMS
from litellm.llms.base_llm.base_utils import type_to_response_format_param
from litellm.types.utils import all_litellm_params
from pydantic import BaseModel

from hookgate.adapters._guard import ModelCall, Points
from hookgate.adapters._openai_chat_request import guard_chat_request
from hookgate.adapters._openai_items import encode_item, input_items
from hookgate.adapters._openai_request import CHAT_EXTRA, JUDGED, PROMPTS, check_arguments

Request: TypeAlias = "Mapping[str, Any]"
"""The arguments of a completion."""

_READ: Final = frozenset(
    {
        *CHAT_EXTRA,
        "assistant_continue_message",
        "bos_token",
        "eos_token",
        "final_prompt_value",
        "initial_prompt_value",
        "litellm_system_prompt",
        "roles",
        "user_continue_message",
    }
)
"""Arguments of which LiteLLM makes a part of the prompt."""

_KNOWN: Final = frozenset(
    {
        *OPENAI_CHAT_COMPLETION_PARAMS,
        *DEFAULT_CHAT_COMPLETION_PARAM_VALUES,
        *all_litellm_params,
        # The proxy and the router put these into a request, and take them out again.
        "disable_global_guardrails",
        "router_settings_override",
        "session_id",
        "specific_deployment",
        "trace_id",
        "user_id",
    }
)
"""Arguments that LiteLLM and the router understand. All others go to the provider as they are, who may give them to the
model."""

_CREDENTIAL: Final = re.compile(
    r"^(aws|azure|databricks|gigachat|oci|vertex|watsonx)_|(^|_)(auth|credentials?|key|password|secret|token)(_|$)"
)
"""Arguments that say how to reach a provider. They may be secret, so plugins don't see them."""

_LATER: Final = {
    "prompt_id": "a prompt of LiteLLM's prompt management",
    "vector_store_ids": "what LiteLLM finds in vector stores",
}
"""Arguments for which LiteLLM puts messages into the request after it was judged."""

_FALLBACKS: Final = ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks")

_ALTERNATIVES: Final = frozenset({*_FALLBACKS, "model_list", "router_settings_override", "user_config"})
"""Arguments with others that LiteLLM may put over those of the call."""

_PROXY_MCP: Final = re.compile(r"litellm_proxy|https?://.+/mcp/[^/]+$")
"""Addresses of MCP servers that LiteLLM may take for its own."""


def model_call(model: object, provider: object = None) -> ModelCall:
    """Which model is asked, as LiteLLM names it: `provider/model`."""
    name = model if isinstance(model, str) else None
    prefix = name.partition("/")[0] if name and "/" in name else None
    return ModelCall(provider=provider if isinstance(provider, str) else prefix, model=name)


async def guard_prompt(points: Points, request: Request, call: ModelCall, *, has_router: bool) -> dict[str, Any]:
    """Asks the gateway before a model is asked.

    :param has_router: Whether a router reads `fallbacks`. Without one an entry is arguments, whatever it looks like.
    :returns: The arguments as plugins left them.
    :raises Blocked: A plugin stopped the request.
    :raises NoDecision: No decision could be made.
    :raises PatchError: A plugin changed something that LiteLLM can't take.
    :raises TypeError: The request has a form that can't be judged.
    :raises ValueError: The model would be given something that can't be judged.
    """
    given = check_arguments(request)
    _check_prompts(given)
    _check_alternatives(given, has_router)
    _check_tools(given)
    # LiteLLM has a model of its own for messages, also for those of users.
    arguments = {**given, "messages": [encode_item(item) for item in input_items(given.get("messages"))]}
    response_format = given.get("response_format")
    if isinstance(response_format, type):
        arguments["response_format"] = type_to_response_format_param(response_format)
    extra = [*CHAT_EXTRA, *(name for name, value in given.items() if name not in CHAT_EXTRA and _is_read(name, value))]
    guarded = await guard_chat_request(points, arguments, call, extra)
    if guarded is arguments:
        return given
    if response_format is not None and guarded.get("response_format") is arguments["response_format"]:
        guarded["response_format"] = response_format
    return guarded


def _is_read(name: str, value: object) -> bool:
    """Whether the model may get to read this, beside messages and tools. A number is no text, and an object of the
    proxy's own goes to no provider."""
    if not isinstance(value, (str, list, tuple, Mapping, BaseModel)):
        return False
    is_known = name in _KNOWN or name.startswith("_") or _CREDENTIAL.search(name) is not None
    return name in _READ or not is_known


def _check_prompts(request: Request) -> None:
    for name, what in _LATER.items():
        if request.get(name) is not None:
            raise ValueError(f"{name} can't be judged: {what} is added later. Put the text into `messages`")
    for name in sorted(PROMPTS - {"messages"}):
        if request.get(name) is not None:
            raise ValueError(f"{name} can't be judged: it may replace `messages`. Put the text there")


def _check_alternatives(request: Request, has_router: bool) -> None:
    if request.get("user_config") is not None:
        raise ValueError("user_config can't be judged: it is a router with credentials. Guard a `Router` of your own")
    for where, alternative in _alternatives(request, has_router):
        for name, value in alternative.items():
            if name in JUDGED or name in _LATER or name in _ALTERNATIVES or _is_read(name, value):
                raise ValueError(f"{where} has {name!r}, which can't be judged there: make it an argument of the call")


def _alternatives(request: Request, has_router: bool) -> Iterator[tuple[str, Request]]:
    """What LiteLLM may put over the arguments of a call, and where it is."""
    settings = request.get("router_settings_override")
    for name in _FALLBACKS:
        for holder in (request, settings if isinstance(settings, Mapping) else {}):
            for entry in _mappings(holder.get(name)):
                targets = next(iter(entry.values()), None)
                # A router's entry has the targets of one group of models.
                is_argument = (JUDGED | _ALTERNATIVES) & entry.keys()
                is_group = has_router and len(entry) == 1 and isinstance(targets, (list, tuple)) and not is_argument
                yield from ((name, one) for one in (_mappings(targets) if is_group else [entry]))
    for deployment in _mappings(request.get("model_list")):
        yield from (("model_list", one) for one in _mappings([deployment.get("litellm_params")]))


def _mappings(values: object) -> list[Request]:
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, (list, tuple)) else []


def _check_tools(request: Request) -> None:
    for tool in _mappings(request.get("tools")):
        url = tool.get("server_url")
        if tool.get("type") == "mcp" and isinstance(url, str) and _PROXY_MCP.match(url):
            raise ValueError(
                f"the MCP server {url!r} among the tools can't be judged: LiteLLM may run its tools itself, and ask "
                "the model again with their results. Offer its tools as functions, and run them yourself"
            )
