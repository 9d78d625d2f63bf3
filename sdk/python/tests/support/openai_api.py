"""An API in the form of OpenAI's on a real socket, with scripted answers."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import Self


class OpenAiApi:
    """Answers with these bodies, one after the other. A list is a stream of events."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        api = self
        pending = iter(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                api.requests.append(json.loads(body))
                answer = next(pending)
                is_stream = isinstance(answer, list)
                data = _events(answer) if is_stream else json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _events(events: list[dict[str, Any]]) -> bytes:
    named = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
    texts = [f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(named, events, strict=True)]
    return "".join([*texts, "data: [DONE]\n\n"]).encode()


def completion(*messages: dict[str, Any]) -> dict[str, Any]:
    choices: list[dict[str, Any]] = [
        {"index": index, "finish_reason": "stop", "message": {"role": "assistant", "content": None, **message}}
        for index, message in enumerate(messages)
    ]
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    top = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
    return {**top, "choices": choices, "usage": usage, "provider_copy": "secret"}


def chunks(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    top = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    pieces: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    pieces.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    return [*({**top, "choices": [piece]} for piece in pieces), {**top, "choices": [], "usage": usage}]


def text_item(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "m-1", "role": "assistant", "status": "completed", "content": content}


def reasoning_item(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": "r-1", "summary": [{"type": "summary_text", "text": text}]}


def response(*items: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    usage: dict[str, Any] = {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "resp-1",
        "object": "response",
        "created_at": 0,
        "model": "m",
        "status": status,
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
        "provider_copy": "secret",
    }


def events(*items: dict[str, Any], end: str = "response.completed") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        for letter in item["content"][0]["text"] if item["type"] == "message" else "":
            delta = {"content_index": 0, "delta": letter, "item_id": item["id"], "output_index": index, "logprobs": []}
            found.append({"type": "response.output_text.delta", "sequence_number": 0, **delta})
        found.append({"type": "response.output_item.done", "item": item, "output_index": index, "sequence_number": 0})
    return [*found, {"type": end, "response": response(*items), "sequence_number": 0}]


def said(method: str, text: str) -> dict[str, Any]:
    return completion({"content": text}) if method == "chat" else response(text_item(text))


def streamed(method: str, text: str) -> list[dict[str, Any]]:
    return chunks(*({"content": letter} for letter in text)) if method == "chat" else events(text_item(text))
