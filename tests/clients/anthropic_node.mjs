// An agent with Anthropic's own client, which knows nothing of Hookgate. Prints what it did, one JSON value.

import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic(); // its address and its key are in the environment
const streams = process.argv[2] === "stream";
const model = "claude-sonnet-5";
const input_schema = { type: "object", properties: {} };
const tools = ["fs_read", "shell_exec"].map((name) => ({ name, input_schema }));

async function ask(messages) {
  const request = { model, max_tokens: 1000, messages, tools };
  return streams ? await client.messages.stream(request).finalMessage() : await client.messages.create(request);
}

async function run(text) {
  const messages = [{ role: "user", content: text }];
  const ran = [];
  for (;;) {
    const { content, stop_reason: reason } = await ask(messages);
    if (reason !== "tool_use") {
      const texts = content.filter((block) => block.type === "text");
      return { answer: texts.map((block) => block.text).join(""), ran };
    }
    messages.push({ role: "assistant", content });
    const calls = content.filter((block) => block.type === "tool_use");
    ran.push(...calls.map((call) => call.name));
    const result = (call) => ({ type: "tool_result", tool_use_id: call.id, content: "by ada@example.com" });
    messages.push({ role: "user", content: calls.map(result) });
  }
}

async function errorOf(act) {
  try {
    await act();
  } catch (error) {
    return `${error.constructor.name} ${error.status} ${error.error?.error?.code}`;
  }
}

const count = (text) => client.messages.countTokens({ model, messages: [{ role: "user", content: text }], tools });

const got = await run("read the notes of ada@example.com");
const blocked = await errorOf(() => run("how to make a bomb"));
const tokens = (await count("read the notes of ada@example.com")).input_tokens;
const uncounted = await errorOf(() => count("how to make a bomb"));
const models = (await client.models.list()).data.map((model) => model.id);
console.log(JSON.stringify({ ...got, blocked, tokens, uncounted, models }));
