// An agent with OpenAI's own client, which knows nothing of Hookgate. Prints what it did, one JSON value.

import OpenAI from "openai";

const client = new OpenAI(); // its address and its key are in the environment
const streams = process.argv[2] === "stream";
const parameters = { type: "object", properties: {} };
const tools = ["fs_read", "shell_exec"].map((name) => ({ type: "function", function: { name, parameters } }));

async function ask(messages) {
  const request = { model: "gpt-5", messages, tools };
  const completion = streams
    ? await client.chat.completions.stream(request).finalChatCompletion()
    : await client.chat.completions.create(request);
  return completion.choices[0].message;
}

async function run(text) {
  const messages = [{ role: "user", content: text }];
  const ran = [];
  for (;;) {
    const { content, tool_calls: calls = [] } = await ask(messages);
    if (calls.length === 0) {
      return { answer: content, ran };
    }
    messages.push({ role: "assistant", content, tool_calls: calls });
    for (const call of calls) {
      ran.push(call.function.name);
      messages.push({ role: "tool", tool_call_id: call.id, content: "by ada@example.com" });
    }
  }
}

async function errorOf(text) {
  try {
    await run(text);
  } catch (error) {
    return `${error.constructor.name} ${error.status} ${error.code}`;
  }
}

const got = await run("read the notes of ada@example.com");
const blocked = await errorOf("how to make a bomb");
const models = (await client.models.list()).data.map((model) => model.id);
console.log(JSON.stringify({ ...got, blocked, models }));
