"""An agent of the OpenAI Agents SDK, which knows nothing of Hookgate. Prints what it did, one JSON value."""

import asyncio
import json
import sys

import openai
from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

# Without this it speaks Responses.
if sys.argv[2] != "responses":
    set_default_openai_api("chat_completions")
set_tracing_disabled(True)
ran = []


@function_tool
def fs_read() -> str:
    """Reads the notes."""
    ran.append("fs_read")
    return "by ada@example.com"


@function_tool
def shell_exec() -> str:
    """Runs a command."""
    ran.append("shell_exec")
    return ""


agent = Agent(name="reader", model="gpt-5", tools=[fs_read, shell_exec])


async def run(text):
    if sys.argv[1] != "stream":
        return (await Runner.run(agent, text)).final_output
    running = Runner.run_streamed(agent, text)
    async for _ in running.stream_events():
        pass
    return running.final_output


async def error_of(text):
    try:
        await run(text)
    except openai.APIStatusError as error:
        return f"{type(error).__name__} {error.status_code} {error.code}"
    return None


async def main():
    answer = await run("read the notes of ada@example.com")
    print(json.dumps({"answer": answer, "ran": ran, "blocked": await error_of("how to make a bomb")}))


asyncio.run(main())
