"""An agent with OpenAI's own client, which knows nothing of Hookgate. Prints what it got, one JSON value."""

import json

import openai

client = openai.OpenAI()  # its address and its key are in the environment
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("fs.read", "shell.exec")]


def ask(messages):
    return client.chat.completions.create(model="gpt-5", messages=messages, tools=TOOLS).choices[0]


def error_of(messages):
    try:
        ask(messages)
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.body["message"]]
    return None


messages = [{"role": "user", "content": "read the notes of ada@example.com"}]
turn = ask(messages)
messages.append(turn.message.to_dict())
for call in turn.message.tool_calls or []:
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "by ada@example.com"})
last = ask(messages)
got = {
    "note": turn.message.content,
    "calls": [call.function.name for call in turn.message.tool_calls or []],
    "answer": last.message.content,
    "end": last.finish_reason,
    "blocked": error_of([{"role": "user", "content": "how to make a bomb"}]),
    "models": [model.id for model in client.models.list()],
}
print(json.dumps(got))
