// An agent of the OpenAI Agents SDK, which knows nothing of Hookgate. Prints what it did, one JSON value.

import { Agent, run, setOpenAIAPI, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

const [form, api] = process.argv.slice(2);
// Without this it speaks Responses.
if (api !== "responses") {
  setOpenAIAPI("chat_completions");
}
setTracingDisabled(true);
const streams = form === "stream";
const ran = [];
const runs = (name, answer) =>
  tool({
    name,
    description: name,
    parameters: z.object({}),
    execute: async () => {
      ran.push(name);
      return answer;
    },
  });
const tools = [runs("fs_read", "by ada@example.com"), runs("shell_exec", "")];
const agent = new Agent({ name: "reader", model: "gpt-5", tools });

async function answerTo(text) {
  if (!streams) {
    return (await run(agent, text)).finalOutput;
  }
  const running = await run(agent, text, { stream: true });
  await running.completed;
  return running.finalOutput;
}

async function errorOf(text) {
  try {
    await answerTo(text);
  } catch (error) {
    return `${error.constructor.name} ${error.status} ${error.code}`;
  }
}

const answer = await answerTo("read the notes of ada@example.com");
console.log(JSON.stringify({ answer, ran, blocked: await errorOf("how to make a bomb") }));
