// An agent with OpenAI's own client, which knows nothing of Hookgate. Prints what it did, one JSON value.

import OpenAI from "openai";

const client = new OpenAI(); // its address and its key are in the environment
const [form, api] = process.argv.slice(2);
const streams = form === "stream";
const parameters = { type: "object", properties: {} };
const functions = ["fs_read", "shell_exec"].map((name) => ({ name, parameters }));
const tools = functions.map((each) => ({ type: "function", function: each }));

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

async function respond(input) {
  const request = { model: "gpt-5", input, tools: functions.map((each) => ({ type: "function", ...each })) };
  return streams ? await client.responses.stream(request).finalResponse() : await client.responses.create(request);
}

// What the helper for streams has parsed is no part of the items: OpenAI refuses it.
const unparsed = (item) =>
  JSON.parse(JSON.stringify(item, (name, value) => (name.startsWith("parsed") ? undefined : value)));

async function runResponses(text) {
  const input = [{ role: "user", content: text }];
  const ran = [];
  for (;;) {
    const { output, output_text: answer } = await respond(input);
    const calls = output.filter((item) => item.type === "function_call");
    if (calls.length === 0) {
      return { answer, ran };
    }
    input.push(...output.map(unparsed));
    ran.push(...calls.map((call) => call.name));
    const result = ({ call_id }) => ({ type: "function_call_output", call_id, output: "by ada@example.com" });
    input.push(...calls.map(result));
  }
}

const embed = (text) => client.embeddings.create({ model: "gpt-embedding", input: ["one", text] });

async function errorOf(act) {
  try {
    await act();
  } catch (error) {
    return `${error.constructor.name} ${error.status} ${error.code}`;
  }
}

const runIt = api === "responses" ? runResponses : run;
const got = await runIt("read the notes of ada@example.com");
const blocked = await errorOf(() => runIt("how to make a bomb"));
if (api === "responses") {
  got.vectors = (await embed("of ada@example.com")).data.map((vector) => vector.embedding);
  got.unembedded = await errorOf(() => embed("how to make a bomb"));
}
const models = (await client.models.list()).data.map((model) => model.id);
console.log(JSON.stringify({ ...got, blocked, models }));
