"""An agent with OpenAI's own client, which knows nothing of Hookgate. Prints what it did, one JSON value."""

import json
import sys

import openai

client = openai.OpenAI()  # its address and its key are in the environment
STREAM = sys.argv[1] == "stream"
RESPONSES = sys.argv[2] == "responses"
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
FUNCTIONS = [{"name": name, "parameters": SCHEMA, "strict": True} for name in ("fs_read", "shell_exec")]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]


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


def respond(items):
    request = {"model": "gpt-5", "input": items, "tools": [{"type": "function"} | function for function in FUNCTIONS]}
    if not STREAM:
        return client.responses.create(**request)
    with client.responses.stream(**request) as stream:
        return stream.get_final_response()


def run_responses(text):
    items, ran = [{"role": "user", "content": text}], []
    while True:
        response = respond(items)
        items += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return {"answer": response.output_text, "ran": ran}
        ran += [call.name for call in calls]
        outputs = [{"type": "function_call_output", "call_id": call.call_id} for call in calls]
        items += [output | {"output": "by ada@example.com"} for output in outputs]


def embed(text):
    return client.embeddings.create(model="gpt-embedding", input=["one", text]).data


def error_of(act):
    try:
        act()
    except openai.APIStatusError as error:
        return f"{type(error).__name__} {error.status_code} {error.code}"
    return None


run_it = run_responses if RESPONSES else run
got = run_it("read the notes of ada@example.com")
got["blocked"] = error_of(lambda: run_it("how to make a bomb"))
if RESPONSES:
    got["vectors"] = [vector.embedding for vector in embed("of ada@example.com")]
    got["unembedded"] = error_of(lambda: embed("how to make a bomb"))
got["models"] = [model.id for model in client.models.list()]
print(json.dumps(got))
