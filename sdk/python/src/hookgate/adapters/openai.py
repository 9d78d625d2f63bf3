"""Puts clients of OpenAI's API (package `openai`) behind the gateway.

    from openai import AsyncOpenAI
    from hookgate.adapters.openai import guard, guard_tool

    client = guard(gateway, AsyncOpenAI())
    answer = await client.chat.completions.create(model="gpt-5", messages=messages)

    @guard_tool(gateway)
    async def read(path: str) -> str: ...

The client runs no tools, so guard the functions that you run for the model with `guard_tool`:

    try:
        output = await read(**json.loads(call.function.arguments))
    except Blocked as block:
        if block.scope == "run":
            raise
        output = block.message

Where it doesn't reach: tools that the provider runs itself, their results in answers, and images and audio that a model
makes; of audio, plugins see the transcript.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn, TypeVar, cast

from openai import AsyncOpenAI, AsyncStream, OpenAI, Stream
from typing_extensions import Self

from hookgate.adapters._function_tool import ToolError, guard_tool
from hookgate.adapters._guard import (
    Gateway,
    PatchError,
    Points,
    async_points,
    blocking_points,
    find_gateway_error,
    run_blocking,
)
from hookgate.adapters._openai_chat import ask_chat
from hookgate.adapters._openai_request import Arguments, Create
from hookgate.adapters._openai_responses import ask_responses

__all__ = ["PatchError", "ToolError", "find_gateway_error", "guard", "guard_tool"]

ClientT = TypeVar("ClientT", OpenAI, AsyncOpenAI)


def guard(gateway: Gateway, client: ClientT) -> ClientT:
    """A client behind the gateway: `before_llm_request` before each call of `chat.completions.create` and
    `responses.create`, `before_response` before its answer is returned. The client itself stays as it is.

    - Plugins see the last user message as `text`, with its images and files, leading system messages that are only text
      or the instructions as `system_prompt`, the other messages or items as `messages`, and `tools`. In `extra` are a
      prompt template, the format of the answer (`response_format` or `text`), old `functions`, a `prediction`,
      `web_search_options` and the `extra_body`. They may change all of them, but no image and no file: those can only
      go.
    - An `extra_body` with something that would replace what was judged raises a TypeError.
    - Each text and each thought of an answer is judged for itself: the first call of `before_response` has the first
      text and the first thought, the second call has the second ones, and so on. A change goes back to its own place.
      Only the first call has the token usage. A block of any part stops the whole answer.
    - A refusal and the transcript of audio are texts of their own. A changed transcript becomes text without sound.
    - An answer without text and reasoning that calls tools isn't judged here: its tools are, with `guard_tool`.
    - A stream is held until it is judged: `create` returns when the model has finished. A stream that breaks off raises
      a RuntimeError, and nothing of it is shown.
    - Each of several choices is judged for itself. The first one that is judged has the usage of all.
    - A block before the model is asked raises the `Blocked`. A block before the response puts its message in place of
      the whole answer, or raises, if the answer must be JSON or the scope is `run`.
    - A missing decision raises the `NoDecision`.
    - Of a conversation that the provider keeps, plugins see only the new items, and the provider keeps the answer as
      the model gave it, also a blocked one.

    The result has only what is guarded, beside `with_options`, `copy` and `close`: whatever else it is asked for raises
    an AttributeError, such as `parse`, `stream`, `with_raw_response` and `responses.retrieve`. Use the client itself
    for what asks no model. So it is no instance of the client's class.

    :param gateway: An agent of `hookgate.agent.sync`, or of `hookgate.agent` for an async client.
    :raises TypeError: The gateway is no agent for it, or the client is none of this package.
    """
    if isinstance(client, AsyncOpenAI):
        create_all = _async_methods(async_points(gateway), client)
    elif isinstance(client, OpenAI):
        create_all = _blocking_methods(blocking_points(gateway), client)
    else:
        raise TypeError(f"client must be an OpenAI or AsyncOpenAI, is of the type {type(client).__name__}")
    chat, responses = create_all
    return cast("ClientT", _GuardedClient(gateway, client, chat, responses))


_Method = Callable[..., Any]


def _async_methods(points: Points, client: AsyncOpenAI) -> tuple[_Method, _Method]:
    def whole(method: _Method) -> Create:
        async def create(arguments: Arguments) -> object:
            answer = await method(**arguments)
            if not isinstance(answer, AsyncStream):
                return answer
            async with answer:
                return [event async for event in answer]

        return create

    async def chat(**arguments: Any) -> object:
        return _held_async(await ask_chat(points, whole(client.chat.completions.create), arguments))

    async def responses(**arguments: Any) -> object:
        return _held_async(await ask_responses(points, whole(client.responses.create), arguments))

    return chat, responses


def _blocking_methods(points: Points, client: OpenAI) -> tuple[_Method, _Method]:
    def whole(method: _Method) -> Create:
        async def create(arguments: Arguments) -> object:
            answer = method(**arguments)
            if not isinstance(answer, Stream):
                return answer
            with answer:
                return list(answer)

        return create

    def chat(**arguments: Any) -> object:
        return _held(run_blocking(ask_chat(points, whole(client.chat.completions.create), arguments)))

    def responses(**arguments: Any) -> object:
        return _held(run_blocking(ask_responses(points, whole(client.responses.create), arguments)))

    return chat, responses


def _held(answer: object) -> object:
    return _HeldStream(answer) if isinstance(answer, list) else answer


def _held_async(answer: object) -> object:
    return _AsyncHeldStream(answer) if isinstance(answer, list) else answer


class _HeldStream:
    """The events of a stream that has been judged. It looks like the client's `Stream`."""

    def __init__(self, events: list[object]) -> None:
        self._events = iter(events)

    def __iter__(self) -> Iterator[object]:
        return self._events

    def __next__(self) -> object:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops what is left."""
        self._events = iter(())


class _AsyncHeldStream:
    """The events of a stream that has been judged. It looks like the client's `AsyncStream`."""

    def __init__(self, events: list[object]) -> None:
        self._events = iter(events)

    def __aiter__(self) -> AsyncIterator[object]:
        return self

    async def __anext__(self) -> object:
        try:
            return next(self._events)
        except StopIteration:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Drops what is left."""
        self._events = iter(())


class _Guarded:
    """Has only what is guarded."""

    def __init__(self, **members: object) -> None:
        self.__dict__.update(members)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} isn't guarded: what asks no model is in the client itself")


class _GuardedClient(_Guarded):
    def __init__(self, gateway: Gateway, client: OpenAI | AsyncOpenAI, chat: _Method, responses: _Method) -> None:
        completions = _Guarded(create=chat)
        super().__init__(chat=_Guarded(completions=completions), responses=_Guarded(create=responses))
        self._gateway = gateway
        self._client: Any = client

    def with_options(self, **options: Any) -> object:
        """A guarded client with other options."""
        return guard(self._gateway, self._client.with_options(**options))

    copy = with_options

    def close(self) -> object:
        """Closes the client itself."""
        return self._client.close()

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._client.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._client.__aexit__(*error)
