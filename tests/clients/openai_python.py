"""An agent with OpenAI's own client, which knows nothing of Hookgate. Prints what it did, one JSON value."""

import json
import sys

import openai

client = openai.OpenAI()  # its address and its key are in the environment
STREAM = sys.argv[1] == "stream"
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA, "strict": True}}
    for name in ("fs_read", "shell_exec")
]


def ask(messages):
    if not STREAM:
        return client.chat.completions.create(model="gpt-5", messages=messages, tools=TOOLS).choices[0].message
    with client.chat.completions.stream(model="gpt-5", messages=messages, tools=TOOLS) as stream:
        return stream.get_final_completion().choices[0].message


def run(text):
    messages, ran = [{"role": "user", "content": text}], []
    while True:
        message = ask(messages)
        calls = message.tool_calls or []
        if not calls:
            return {"answer": message.content, "ran": ran}
        said = [{"id": call.id, "type": "function", "function": call.function.to_dict()} for call in calls]
        for call in said:
            call["function"].pop("parsed_arguments", None)
        messages.append({"role": "assistant", "content": message.content, "tool_calls": said})
        for call in calls:
            ran.append(call.function.name)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "by ada@example.com"})


def error_of(text):
    try:
        run(text)
    except openai.APIStatusError as error:
        return f"{type(error).__name__} {error.status_code} {error.code}"
    return None


got = run("read the notes of ada@example.com")
got["blocked"] = error_of("how to make a bomb")
got["models"] = [model.id for model in client.models.list()]
print(json.dumps(got))
