"""The tool runner of Anthropic's own client, which knows nothing of Hookgate. Prints what it did, one JSON value."""

import json
import sys

import anthropic
from anthropic import beta_tool

client = anthropic.Anthropic()  # its address and its key are in the environment
STREAM = sys.argv[1] == "stream"
ran = []


@beta_tool
def fs_read() -> str:
    """Reads the notes."""
    ran.append("fs_read")
    return "by ada@example.com"


@beta_tool
def shell_exec() -> str:
    """Runs a command."""
    ran.append("shell_exec")
    return ""


def run(text):
    runner = client.beta.messages.tool_runner(
        model="claude-sonnet-5",
        max_tokens=1000,
        messages=[{"role": "user", "content": text}],
        tools=[fs_read, shell_exec],
        stream=STREAM,
    )
    for message in runner:
        last = message.get_final_message() if STREAM else message
    return "".join(block.text for block in last.content if block.type == "text")


def error_of(text):
    try:
        run(text)
    except anthropic.APIStatusError as error:
        return f"{type(error).__name__} {error.status_code} {error.body['error']['code']}"
    return None


answer = run("read the notes of ada@example.com")
print(json.dumps({"answer": answer, "ran": ran, "blocked": error_of("how to make a bomb")}))
