"""A provider of LiteLLM's own kind, which needs no network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import litellm
import pytest
from litellm.llms.custom_llm import CustomLLM
from litellm.types.utils import GenericStreamingChunk, ModelResponse, ModelResponseStream

MODEL = "fake/model"
HELLO: list[Any] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


class FakeProvider(CustomLLM):  # type: ignore[misc, unused-ignore]
    """A provider that says what it is told, and keeps what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.message: dict[str, Any] = {"role": "assistant", "content": "a secret"}
        self.choices = 1
        self.requests: list[dict[str, Any]] = []

    def completion(self, *_: Any, **options: Any) -> ModelResponse:
        self.requests.append(options)
        choices = [{"index": n, "finish_reason": "stop", "message": self.message} for n in range(self.choices)]
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        return ModelResponse(model="model", choices=choices, usage=usage)

    async def acompletion(self, *_: Any, **options: Any) -> ModelResponse:
        return self.completion(**options)

    def streaming(self, *_: Any, **options: Any) -> Iterator[GenericStreamingChunk]:
        self.requests.append(options)
        for word in ("a ", "secret"):
            yield self._chunk(word, is_finished=False)
        yield self._chunk("", is_finished=True)

    async def astreaming(  # type: ignore[override]  # It is declared without its `yield`.
        self, *_: Any, **options: Any
    ) -> AsyncIterator[GenericStreamingChunk]:
        for chunk in self.streaming(**options):
            yield chunk

    @staticmethod
    def _chunk(text: str, *, is_finished: bool) -> GenericStreamingChunk:
        reason = "stop" if is_finished else ""
        return GenericStreamingChunk(
            text=text, is_finished=is_finished, finish_reason=reason, usage=None, index=0, tool_use=None
        )

    @property
    def messages(self) -> list[Any]:
        """Those of the last request."""
        messages: list[Any] = self.requests[-1]["messages"]
        return messages


def use_provider(monkeypatch: pytest.MonkeyPatch) -> FakeProvider:
    """Makes LiteLLM know a new one."""
    fake = FakeProvider()
    monkeypatch.setattr(litellm, "custom_provider_map", [{"provider": "fake", "custom_handler": fake}])
    setup: Any = litellm.utils.custom_llm_setup
    setup()
    return fake


def text(response: Any) -> Any:
    return response.choices[0].message.content


def delta_text(chunk: ModelResponseStream) -> str:
    return "".join(choice.delta.content or "" for choice in chunk.choices)
