"""Puts models of LiteLLM behind the gateway, in the SDK and in the proxy.

In the SDK, wrap the function, or that of a `Router`:

    import litellm
    from hookgate.adapters.litellm import guard_acompletion

    acompletion = guard_acompletion(gateway, litellm.acompletion)
    response = await acompletion(model="openai/gpt-5", messages=[{"role": "user", "content": "hello"}])

LiteLLM's callbacks can't do that: those of the SDK see no call that isn't async, swallow what they raise about an
answer, and get a stream in pieces. A router would take what they raise about a request for a failure, and try another
model.

In the proxy, name an instance among the `callbacks` of `litellm_settings`:

    # my_callbacks.py
    guard = ProxyGuard(Agent("http://127.0.0.1:8080", token=token_file("/run/hookgate/token")))

    # config.yaml
    litellm_settings:
      callbacks: my_callbacks.guard

Where it doesn't reach:

- Tools: their calls are in the answer, and whoever asked runs them. Guard them there.
- Embeddings, images and speech. Of audio in an answer, plugins see the transcript.
- What other callbacks make of a judged request or answer: list the guard last. Logging callbacks get the answer before
  it is judged.
- What LiteLLM's own settings add: the parameters of a router's or the proxy's deployments, and vector stores that
  tools of the type `file_search` name.
- A stream that breaks off, where LiteLLM ends it with a `finish_reason` of its own: it is judged as if it were whole.
- `litellm.completion` and `litellm.acompletion` themselves, wherever else they are called.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.llms.openai import OpenAIFileObject
from litellm.types.rerank import RerankResponse
from litellm.types.utils import (
    EmbeddingResponse,
    ImageResponse,
    ModelResponse,
    ModelResponseStream,
    TranscriptionResponse,
)

from hookgate.adapters._guard import (
    Gateway,
    PatchError,
    async_points,
    blocking_points,
    find_gateway_error,
    run_blocking,
)
from hookgate.adapters._litellm_answer import guard_answer, guard_chunks
from hookgate.adapters._litellm_request import guard_prompt, model_call
from hookgate.agent import Blocked, CallContext, call_context, current_context
from hookgate.agent import sync as blocking

__all__ = ["PatchError", "ProxyGuard", "RefusedError", "find_gateway_error", "guard_acompletion", "guard_completion"]

_logger = logging.getLogger(__name__)


def guard_acompletion(gateway: Gateway, acompletion: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Puts a function that asks a model behind the gateway: `litellm.acompletion`, or the same of a `Router`.

    `before_llm_request` comes before the model is asked, `before_response` before its answer is given. Retries,
    fallbacks and LiteLLM's cache are between the two.

    - Plugins see the text of the last user message as `text`, with its images and files, leading system messages that
      are only text as `system_prompt`, the other messages as `messages`, and `tools`. They may change all of them, but
      no image and no file: those can only go.
    - In `extra` is what else the model may read: `functions`, `prediction`, `response_format` (a class as its JSON
      schema), `web_search_options`, `extra_body`, LiteLLM's parameters that become a part of the prompt, and whatever
      LiteLLM passes to the provider as it is, but for numbers and for names of credentials (`aws_...`, `..._token`).
    - Each text and each thought of an answer is judged for itself: the first call of `before_response` has the first
      text and the first thought, the second call has the second ones, and so on. A change goes back to its own place.
      Only the first call has the token usage. A block of any part stops the whole answer.
    - A refusal and the transcript of audio are texts of their own. A changed transcript becomes text without sound.
    - A signed thought that a plugin changes is left out, because the provider would refuse it.
    - An answer without text and reasoning that calls tools isn't judged. Of several choices, each is judged, and the
      first one that is judged has the usage of all.
    - With `stream=True`, the stream is held until it is judged. It is then an async generator, not LiteLLM's own
      object. One that breaks off raises a RuntimeError, and nothing of it is shown.
    - A block before the model is asked raises `Blocked`. A block before the response puts its message in place of the
      whole answer, or raises, if the answer must be JSON (`response_format`) or the scope is `run`.
    - A missing decision raises `NoDecision`.

    The function takes `model` and `messages` by position, and everything else by name. It refuses what it can't judge,
    with a TypeError or a ValueError that names the parameter:

    - What comes in after the judgement: `prompt_id`, and `vector_store_ids`.
    - What may replace `messages`, such as `system`, `contents` and `instructions`, and what was judged in `extra_body`.
    - The same, all that would be in `extra`, and more fallbacks, in fallbacks and in `model_list`; and `user_config`.
    - Tools of MCP servers that LiteLLM may serve: those whose URL begins with `litellm_proxy` or has the form
      `https://.../mcp/NAME`. It may run them itself, and ask the model again.
    - Several choices in one stream.

    :param gateway: An agent of `hookgate.agent`, or of `hookgate.agent.sync`, which is called in threads.
    :raises TypeError: The gateway is no agent.
    """
    points = async_points(gateway)
    has_router = _may_have_router(acompletion)

    @functools.wraps(acompletion)
    async def guarded(*args: object, **options: Any) -> Any:
        request = _named(args, options)
        call = model_call(request.get("model"), request.get("custom_llm_provider"))
        request = await guard_prompt(points, request, call, has_router=has_router)
        response = await acompletion(**request)
        if not request.get("stream"):
            return await guard_answer(points, response, request, call)
        return _stream(await guard_chunks(points, [chunk async for chunk in response], request, call))

    return guarded


def guard_completion(gateway: blocking.Agent, completion: Callable[..., Any]) -> Callable[..., Any]:
    """The same as `guard_acompletion` for code that isn't async: `litellm.completion`. A stream is then a generator.

    :raises TypeError: The gateway is no agent of `hookgate.agent.sync`.
    """
    points = blocking_points(gateway)
    has_router = _may_have_router(completion)

    async def run(request: dict[str, Any]) -> Any:
        call = model_call(request.get("model"), request.get("custom_llm_provider"))
        request = await guard_prompt(points, request, call, has_router=has_router)
        response = completion(**request)
        if not request.get("stream"):
            return await guard_answer(points, response, request, call)
        return (chunk for chunk in await guard_chunks(points, list(response), request, call))

    @functools.wraps(completion)
    def guarded(*args: object, **options: Any) -> Any:
        if options.get("acompletion"):
            raise ValueError("use guard_acompletion for calls that are async")
        return run_blocking(run(_named(args, options)))

    return guarded


def _may_have_router(function: Callable[..., Any]) -> bool:
    return function not in (litellm.acompletion, litellm.completion)


def _named(args: tuple[object, ...], options: dict[str, Any]) -> dict[str, Any]:
    names = ("model", "messages")
    if len(args) > len(names):
        raise TypeError("only `model` and `messages` are taken by position")
    positional = dict(zip(names, args, strict=False))
    if repeated := positional.keys() & options.keys():
        raise TypeError(f"given twice: {', '.join(repeated)}")
    return {**positional, **options}


async def _stream(chunks: Iterable[ModelResponseStream]) -> AsyncGenerator[ModelResponseStream]:
    for chunk in chunks:
        yield chunk


class RefusedError(Exception):
    """What the proxy answers with. It takes the status and the code from the members."""

    def __init__(self, message: str, status_code: int, code: str | None) -> None:
        """Takes what the client gets to see."""
        super().__init__(message)
        self.message = message
        self.status_code = status_code
        """HTTP status: 403 for a block, 503 for a missing decision, 400 for a request that can't be judged."""
        self.code = code
        """That of the block or of the gateway's error."""
        self.type = "hookgate"
        self.param = None


_CHAT: Final = frozenset({"completion", "acompletion"})

_UNJUDGED: Final = frozenset(
    prefix + name
    for prefix in ("", "a")
    for name in ("embedding", "rerank", "moderation", "transcription", "speech", "image_generation", "image_edit")
)

_UNJUDGED_ANSWERS: Final = (EmbeddingResponse, ImageResponse, OpenAIFileObject, RerankResponse, TranscriptionResponse)
"""What no chat completion gives. The routes of images and files don't say which one they are."""


class ProxyGuard(CustomLogger):
    """Puts the chat completions of LiteLLM's proxy behind the gateway, as `guard_acompletion` does.

    - A block is an error with the status 403 and the message, or, before the response and with the scope `step`, the
      message in place of the answer. A missing decision is an error with the status 503, which doesn't say why. The
      log does (`hookgate.adapters.litellm`).
    - All other routes that could ask a model (responses, messages of Anthropic, completions of text, batches, realtime,
      pass-through and so on) and the tools of MCP are refused with the status 400, unless `unjudged` names them.
      Embeddings, reranking, moderation, speech and images pass.
    - A client can't turn it off, as it could with some guardrails.

    It works only in the proxy. In the SDK, `litellm.acompletion` fails with it; `litellm.completion` doesn't notice it.
    """

    # The proxy also has this judge the requests in files for batches.
    enforces_request_content = True

    def __init__(
        self,
        gateway: Gateway,
        *,
        unjudged: Collection[str] = (),
        context: Callable[[Any], CallContext] | None = None,
    ) -> None:
        """Nothing is sent before the first request.

        :param unjudged: More of LiteLLM's call types that may pass without a decision, such as `aresponses`.
        :param context: What to say about a call, of the proxy's `UserAPIKeyAuth`; adds to that of `call_context`.
        :raises TypeError: The gateway is no agent.
        :raises ValueError: `unjudged` names chat completions.
        """
        super().__init__()
        if _CHAT & set(unjudged):
            raise ValueError("chat completions are what is judged")
        self._points = async_points(gateway)
        self._unjudged = _UNJUDGED | set(unjudged)
        self._context = context

    def __init_subclass__(cls, **options: Any) -> NoReturn:
        # The proxy calls only what the class of a callback defines itself, not what it inherits.
        raise TypeError("ProxyGuard can't be subclassed")

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: object, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        """Asks the gateway before a request goes on. The proxy calls this one, and the next two."""
        if call_type in self._unjudged:
            return None
        if call_type not in _CHAT:
            raise RefusedError(f"{call_type} can't be judged here", 400, "NOT_JUDGED")
        if data.get("stream") and (data.get("n") or 1) != 1:
            raise RefusedError("a stream with several choices can't be judged", 400, "NOT_JUDGED")
        with self._saying(user_api_key_dict), _refusing():
            return await guard_prompt(self._points, data, model_call(data.get("model")), has_router=True)

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> ModelResponse | None:
        """Asks the gateway before a whole answer is shown."""
        if _call_type(data) in self._unjudged or isinstance(response, _UNJUDGED_ANSWERS):
            return None
        with self._saying(user_api_key_dict), _refusing():
            return await guard_answer(self._points, response, data, model_call(data.get("model")))

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: AsyncIterator[Any], request_data: dict[str, Any]
    ) -> AsyncGenerator[ModelResponseStream, None]:
        """Asks the gateway before a streamed answer is shown."""
        if _call_type(request_data) in self._unjudged:
            async for chunk in response:
                yield chunk
            return
        chunks = [chunk async for chunk in response]
        with self._saying(user_api_key_dict), _refusing():
            judged = await guard_chunks(self._points, chunks, request_data, model_call(request_data.get("model")))
        for chunk in judged:
            yield chunk

    async def async_pre_call_deployment_hook(self, kwargs: Any, call_type: object) -> None:
        """Runs in the SDK too, where nothing else here would."""
        if "litellm.proxy.proxy_server" not in sys.modules and "litellm.proxy.utils" not in sys.modules:
            raise TypeError("ProxyGuard judges only in the proxy: use guard_acompletion")

    @contextmanager
    def _saying(self, user: object) -> Iterator[None]:
        with call_context(**(current_context() if self._context is None else self._context(user))):
            yield


def _call_type(data: dict[str, Any]) -> str | None:
    """The route's, of an object that the proxy adds to a request."""
    call_type = getattr(data.get("litellm_logging_obj"), "call_type", None)
    return call_type if isinstance(call_type, str) else None


@contextmanager
def _refusing() -> Iterator[None]:
    """Why there was no decision is for the operator of the proxy, not for its client."""
    try:
        yield
    except Exception as error:
        found = find_gateway_error(error)
        if isinstance(found, Blocked):
            raise RefusedError(found.message, 403, found.code) from error
        if found is not None:
            _logger.error("No decision about a request", exc_info=found)
            raise RefusedError("no decision about this request", 503, found.code) from error
        if isinstance(error, (TypeError, ValueError)):
            raise RefusedError(str(error), 400, "NOT_JUDGED") from error
        raise
