"""The reasoning of models, which each provider gives in a form of its own."""

from __future__ import annotations

from typing import Final

_MEMBERS: Final = ("thinking", "reasoning", "reasoningText", "reasoning_text", "text", "summary", "content")
"""The members of reasoning that hold text, directly or in parts."""


def texts_in(reasoning: object) -> str:
    """All text of a provider's reasoning, in the forms of Anthropic, OpenAI, Bedrock, OpenRouter and LangChain."""
    if isinstance(reasoning, str):
        return reasoning
    if isinstance(reasoning, list):
        return "".join(map(texts_in, reasoning))
    if isinstance(reasoning, dict):
        return "".join(texts_in(reasoning.get(name)) for name in _MEMBERS)
    return ""
