import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AIMessage,
  type BaseMessage,
  HumanMessage,
  ToolMessage,
  createAgent,
  providerStrategy,
  tool,
  toolRetryMiddleware,
  toolStrategy,
} from "langchain";
import { Command, MemorySaver, interrupt } from "@langchain/langgraph";
import { z } from "zod";
import { guardToolRun } from "../src/adapters/guard.js";
import { findGatewayError, guard } from "../src/adapters/langchain.js";
import { Blocked, NoDecision, withContext } from "../src/agent/index.js";
import type { JsonObject } from "../src/json.js";
import { ScriptedChatModel } from "./support/langchain-model.js";
import {
  type PointGateway,
  answer,
  block,
  forTool,
  held,
  outage,
  patch,
  pointGateway,
  replaceText,
  signal,
} from "./support/point-script.js";

const CALL = () =>
  new AIMessage({ content: "", tool_calls: [{ id: "call-1", name: "read", args: { path: "/etc/hosts" }, type: "tool_call" }] });
const DONE = () => new AIMessage({ id: "done-1", content: "done" });

function readTool(execute: (input: { path: string }) => unknown = ({ path }) => `the content of ${path}`, name = "read") {
  const inputs: unknown[] = [];
  const read = tool(
    async (input: { path: string }) => {
      inputs.push(input);
      return execute(input);
    },
    { name, description: "Reads a file.", schema: z.object({ path: z.string() }) },
  );
  return { read, inputs };
}

function setUp({ client }: PointGateway, answers: AIMessage[], tools: ReturnType<typeof readTool>["read"][] = [], more: object = {}) {
  const model = ScriptedChatModel.answering(...answers);
  const agent = createAgent({ model, tools, systemPrompt: "Be kind.", middleware: [guard(client)], ...more });
  const run = (...messages: (string | BaseMessage)[]) =>
    agent.invoke({ messages: messages.map((message) => (typeof message === "string" ? new HumanMessage(message) : message)) });
  return { model, agent, run, requests: model.script.requests };
}

/** The tool's message in what the model got last. */
function toolOutput(requests: BaseMessage[][]): string {
  const message = requests.at(-1)?.findLast((candidate) => ToolMessage.isInstance(candidate)) as ToolMessage;
  return `${message.status ?? "success"} ${message.text}`;
}

function textsOf(messages: BaseMessage[] | undefined): string {
  return JSON.stringify(messages?.map(({ content }) => content));
}

const IMAGE = { type: "image_url", image_url: { url: "data:image/png;base64,AQID" } } as const;
const QUESTION = () =>
  new HumanMessage({
    content: [
      { type: "text", text: "Who am I?" },
      IMAGE,
      { type: "file", source_type: "url", url: "https://x/y.pdf", mime_type: "application/pdf" },
    ],
  });

test("langchain: an allowed run passes all points, and nothing changes", async () => {
  await using gateway = await pointGateway();
  const { read, inputs } = readTool();
  const last = new AIMessage({
    content: [
      { type: "thinking", thinking: "hm", signature: "s" },
      { type: "text", text: "It is " },
    ],
    usage_metadata: { input_tokens: 3, output_tokens: 5, total_tokens: 8 },
    response_metadata: { stop_reason: "end_turn", model: "m" },
  } as never);
  const { run, requests, model } = setUp(gateway, [CALL(), last], [read]);
  const question = QUESTION();
  const { messages } = await withContext({ sessionId: "s-1", runId: "r-1", userId: "ada" }, () => run("My name is Ada.", question));
  assert.equal(messages.at(-1), last);
  assert.deepEqual(inputs, [{ path: "/etc/hosts" }]);
  assert.deepEqual(gateway.points, ["beforeLlmRequest", "beforeToolCall", "afterToolResult", "beforeLlmRequest", "beforeResponse"]);
  for (const context of gateway.contexts) assert.equal((context as JsonObject)["session_id"], "s-1");
  assert.deepEqual(gateway.contexts[0], { session_id: "s-1", run_id: "r-1", user_id: "ada", provider: "fake", model: "fake-1" });
  const [request = {}] = gateway.payloads("beforeLlmRequest");
  assert.equal(request["text"], "Who am I?");
  assert.equal(request["system_prompt"], "Be kind.");
  assert.deepEqual(request["images"], [{ data: "AQID", mime_type: "image/png" }]);
  assert.deepEqual(request["files"], [{ url: "https://x/y.pdf", mime_type: "application/pdf" }]);
  assert.deepEqual(
    (request["messages"] as JsonObject[]).map(({ role }) => role),
    ["user", "user"],
  );
  assert.match(JSON.stringify(request["tools"]), /^\[\{"type":"function","function":\{"name":"read"/);
  assert.deepEqual(gateway.payloads("beforeToolCall"), [{ tool_name: "read", args: { path: "/etc/hosts" }, call_id: "call-1" }]);
  const [after = {}] = gateway.payloads("afterToolResult");
  assert.deepEqual(
    { ...after, duration_ms: 0 },
    {
      tool_name: "read",
      result: "the content of /etc/hosts",
      success: true,
      args: { path: "/etc/hosts" },
      call_id: "call-1",
      duration_ms: 0,
    },
  );
  assert.deepEqual(gateway.payloads("beforeResponse"), [
    {
      content: "It is ",
      reasoning: "hm",
      provider: "fake",
      model: "fake-1",
      token_usage: { input: 3, output: 5 },
      stop_reason: "end_turn",
    },
  ]);
  assert.equal(requests[0]?.[2], question);
  assert.equal(model.script.tools[0]?.length, 1);
});

test("langchain: a rewritten request is what the model gets, and the state keeps its own", async () => {
  await using gateway = await pointGateway({ beforeLlmRequest: replaceText("Ada", "[NAME]") });
  const { run, requests } = setUp(gateway, [DONE()], [], { systemPrompt: "Ada pays." });
  const history = new AIMessage({
    content: "Hello Ada.",
    tool_calls: [{ id: "c", name: "find", args: { name: "Ada" } }],
    response_metadata: { output: ["Hello Ada."], model_name: "m" },
  });
  const found = new ToolMessage({ content: "Ada", tool_call_id: "c", name: "find" });
  const { messages } = await run("I am Ada.", history, found, "Is it Ada?");
  assert.equal(textsOf(requests[0]), '["[NAME] pays.","I am [NAME].","Hello [NAME].","[NAME]","Is it [NAME]?"]');
  const [, , rewritten] = requests[0] ?? [];
  assert.ok(AIMessage.isInstance(rewritten));
  assert.deepEqual(rewritten.tool_calls, [{ id: "c", name: "find", args: { name: "[NAME]" } }]);
  assert.deepEqual(rewritten.response_metadata, { model_name: "m" });
  assert.equal(messages[0]?.text, "I am Ada.");
});

test("langchain: only the text changes if a plugin changes only the text, in every step", async () => {
  await using gateway = await pointGateway({ beforeLlmRequest: patch({ text: "Who is [NAME]?" }) });
  const { read } = readTool();
  const { run, requests } = setUp(gateway, [CALL(), DONE()], [read]);
  await run("I am Ada.", QUESTION());
  for (const messages of requests) {
    const question = messages.findLast((message) => HumanMessage.isInstance(message));
    const blocks = question?.content as { text?: string }[];
    assert.deepEqual([blocks[0]?.text, blocks.length], ["Who is [NAME]?", 3]);
    assert.equal(messages[1]?.text, "I am Ada.");
  }
});

test("langchain: a plugin takes an image and a tool away, and adds a system prompt", async () => {
  const change = ({ tools }: JsonObject) => ({ images: [], tools: (tools as JsonObject[]).slice(1), system_prompt: "Be short." });
  await using gateway = await pointGateway({ beforeLlmRequest: patch(change) });
  const { run, requests, model } = setUp(gateway, [DONE()], [readTool(undefined, "write").read, readTool().read], {
    systemPrompt: undefined,
  });
  await run(QUESTION());
  assert.deepEqual(
    model.script.tools[0]?.map((bound) => "name" in bound && bound.name),
    ["read"],
  );
  assert.equal(requests[0]?.[0]?.text, "Be short.");
  assert.doesNotMatch(textsOf(requests[0]), /image/);
  assert.match(textsOf(requests[0]), /pdf/);
});

test("langchain: a changed tool is refused", async () => {
  await using gateway = await pointGateway({ beforeLlmRequest: replaceText("Reads a file.", "Reads.") });
  const { run, requests } = setUp(gateway, [DONE()], [readTool().read]);
  await assert.rejects(run("hi"), (error) => (error as Error).name === "PatchError");
  assert.equal(requests.length, 0);
});

test("langchain: rewritten arguments are what the tool gets, after its own validation", async () => {
  await using gateway = await pointGateway({ beforeToolCall: patch({ args: { path: "/tmp/a" } }) });
  const { read, inputs } = readTool();
  const { run } = setUp(gateway, [CALL(), DONE()], [read]);
  await run("hi");
  assert.deepEqual(inputs, [{ path: "/tmp/a" }]);
  assert.deepEqual(gateway.payloads("afterToolResult")[0]?.["args"], { path: "/tmp/a" });

  await using wrong = await pointGateway({ beforeToolCall: patch({ args: { path: 1 } }) });
  const second = setUp(wrong, [CALL(), DONE()], [read]);
  await second.run("hi");
  assert.equal(inputs.length, 1);
  assert.match(toolOutput(second.requests), /^error Error invoking tool 'read'/);
  assert.equal(wrong.payloads("afterToolResult")[0]?.["success"], false);
});

test("langchain: a renamed call runs the other tool, or none", async () => {
  await using gateway = await pointGateway({ beforeToolCall: patch({ tool_name: "safe_read" }) });
  const { read, inputs } = readTool();
  const other = readTool(undefined, "safe_read");
  await setUp(gateway, [CALL(), DONE()], [read, other.read]).run("hi");
  assert.deepEqual([inputs.length, other.inputs.length], [0, 1]);
  const one = setUp(gateway, [CALL(), DONE()], [read]);
  await one.run("hi");
  assert.deepEqual(inputs, []);
  assert.match(toolOutput(one.requests), /^error Error: safe_read is not a valid tool/);
});

test("langchain: a rewritten result is what the model gets", async () => {
  await using gateway = await pointGateway({ afterToolResult: patch({ result: "[REDACTED]" }) });
  const { read } = readTool();
  const { run, requests } = setUp(gateway, [CALL(), DONE()], [read]);
  const { messages } = await run("hi");
  assert.equal(toolOutput(requests), "success [REDACTED]");
  assert.doesNotMatch(JSON.stringify(messages), /the content of/);
});

test("langchain: a plugin's answer replaces the tool", async () => {
  await using gateway = await pointGateway({ beforeToolCall: answer({ id: 9007199254740993n }) });
  const { read, inputs } = readTool();
  const { run, requests } = setUp(gateway, [CALL(), DONE()], [read]);
  await run("hi");
  assert.deepEqual(inputs, []);
  assert.equal(toolOutput(requests), 'success {"id":9007199254740993}');
  assert.equal(gateway.payloads("afterToolResult").length, 1);
});

test("langchain: a tool that throws is told, and the model gets its error as without the guard, or the plugin's text for it", async () => {
  const fails = readTool(() => {
    throw new Error("no such file: /home/ada");
  });
  await using gateway = await pointGateway();
  const first = setUp(gateway, [CALL(), DONE()], [fails.read]);
  await first.run("hi");
  const unguarded = setUp(gateway, [CALL(), DONE()], [fails.read], { middleware: [] });
  await unguarded.run("hi");
  // Versions before 1.4 don't mark it as an error.
  assert.equal(toolOutput(first.requests), toolOutput(unguarded.requests).replace(/^success/, "error"));
  const [told = {}] = gateway.payloads("afterToolResult");
  assert.deepEqual([told["result"], told["success"]], ["no such file: /home/ada", false]);

  await using redacting = await pointGateway({ afterToolResult: patch({ result: "no such file" }) });
  const second = setUp(redacting, [CALL(), DONE()], [fails.read]);
  await second.run("hi");
  assert.equal(toolOutput(second.requests), "error no such file");
});

test("langchain: an interrupt in a tool is none of its failures", async () => {
  await using gateway = await pointGateway();
  const { read } = readTool(() => interrupt("may I?"));
  const { agent } = setUp(gateway, [CALL(), DONE()], [read], { checkpointer: new MemorySaver() });
  const config = { configurable: { thread_id: "1" } };
  await agent.invoke({ messages: [new HumanMessage("hi")] }, config);
  assert.deepEqual(gateway.points, ["beforeLlmRequest", "beforeToolCall"]);
  const { messages } = await agent.invoke(new Command({ resume: "yes" }), config);
  assert.equal(messages.at(-1)?.text, "done");
  assert.equal(gateway.payloads("afterToolResult")[0]?.["result"], "yes");
});

test("langchain: the message in a tool's command is judged", async () => {
  const command = () => new Command({ update: { messages: [new ToolMessage({ content: "secret", tool_call_id: "call-1" })] } });
  await using gateway = await pointGateway();
  const first = setUp(gateway, [CALL(), DONE()], [readTool(command).read]);
  await first.run("hi");
  assert.equal(toolOutput(first.requests), "success secret");
  assert.equal(gateway.payloads("afterToolResult")[0]?.["result"], "secret");
  await using redacting = await pointGateway({ afterToolResult: replaceText("secret", "[X]") });
  const second = setUp(redacting, [CALL(), DONE()], [readTool(command).read]);
  await second.run("hi");
  assert.equal(toolOutput(second.requests), "success [X]");
});

test("langchain: a blocked call of a tool is an error for the model, and nothing runs", async () => {
  await using gateway = await pointGateway({ beforeToolCall: block("not on your plan") });
  const { read, inputs } = readTool();
  const { run, requests } = setUp(gateway, [CALL(), DONE()], [read]);
  assert.equal((await run("hi")).messages.at(-1)?.text, "done");
  assert.deepEqual(inputs, []);
  assert.equal(toolOutput(requests), "error not on your plan");
  assert.equal(gateway.payloads("afterToolResult").length, 0);
});

test("langchain: a blocked result is replaced by the message", async () => {
  await using gateway = await pointGateway({ afterToolResult: block("contains secrets") });
  const { read, inputs } = readTool();
  const { run, requests } = setUp(gateway, [CALL(), DONE()], [read]);
  const { messages } = await run("hi");
  assert.equal(inputs.length, 1);
  assert.equal(toolOutput(requests), "error contains secrets");
  assert.doesNotMatch(JSON.stringify(messages), /the content of/);
});

test("langchain: the message of a blocked response is all that remains of it", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("I can't say that.") });
  const { read, inputs } = readTool();
  const secret = new AIMessage({
    id: "a-1",
    content: [
      { type: "thinking", thinking: "secret" },
      { type: "text", text: "secret" },
    ],
    tool_calls: CALL().tool_calls ?? [],
    additional_kwargs: { reasoning_content: "secret" },
    response_metadata: { output: ["secret"] },
  });
  const { messages } = await setUp(gateway, [secret], [read]).run("hi");
  assert.deepEqual([messages.at(-1)?.text, messages.at(-1)?.id], ["I can't say that.", "a-1"]);
  assert.deepEqual(inputs, []);
  assert.doesNotMatch(JSON.stringify(messages), /secret/);
});

test("langchain: a rewritten response has no copy of the old text, and its tools still run", async () => {
  await using gateway = await pointGateway({ beforeResponse: replaceText("secret", "[X]") });
  const { read, inputs } = readTool();
  const secret = new AIMessage({
    content: [
      { type: "reasoning", summary: [{ text: "a secret" }], encrypted_content: "secret" },
      { type: "text", text: "the secret" },
      { type: "tool_use", id: "call-1", name: "read", input: {} },
    ],
    tool_calls: CALL().tool_calls ?? [],
    additional_kwargs: { refusal: "secret", __signature: "s" },
    response_metadata: { logprobs: { content: ["secret"] }, model_name: "m" },
  });
  const { run, requests } = setUp(gateway, [secret, DONE()], [read]);
  const { messages } = await run("hi");
  assert.equal(inputs.length, 1);
  assert.doesNotMatch(JSON.stringify([messages, requests]), /secret/);
  const rewritten = messages.find((message) => message.text === "the [X]");
  assert.deepEqual(rewritten?.content, [
    { type: "reasoning", summary: [{ text: "a [X]" }] },
    { type: "text", text: "the [X]" },
    { type: "tool_use", id: "call-1", name: "read", input: {} },
  ]);
  assert.deepEqual(
    [rewritten?.additional_kwargs, rewritten?.response_metadata],
    [{ __signature: "s", refusal: "[X]" }, { model_name: "m" }],
  );
});

const ENDS = {
  "a block of the request": { beforeLlmRequest: block("stop") },
  "a block of the run before the request": { beforeLlmRequest: block("stop", "run") },
  "a block of the run before a tool": { beforeToolCall: block("stop", "run") },
  "a block of the run after a tool": { afterToolResult: block("stop", "run") },
  "a block of the run before the response": { beforeResponse: block("stop", "run") },
  "no decision before the request": { beforeLlmRequest: outage },
  "no decision before a tool": { beforeToolCall: outage },
  "no decision after a tool": { afterToolResult: outage },
  "no decision before the response": { beforeResponse: outage },
};
for (const [what, replies] of Object.entries(ENDS)) {
  test(`langchain: ${what} ends the run`, async () => {
    await using gateway = await pointGateway(replies);
    const { read, inputs } = readTool();
    const { run } = setUp(gateway, [CALL(), DONE()], [read]);
    const point = Object.keys(replies)[0];
    await assert.rejects(run("hi"), (error) => {
      const found = findGatewayError(error);
      assert.ok(replies === ENDS[what as keyof typeof ENDS] && found?.point === point);
      return found instanceof (what.startsWith("no decision") ? NoDecision : Blocked);
    });
    assert.equal(inputs.length, ["afterToolResult", "beforeResponse"].includes(`${point}`) ? 1 : 0);
  });
}

test("langchain: with streamMode messages nothing is shown before the decision, and then in one piece", async () => {
  const decision = signal();
  await using gateway = await pointGateway({ beforeResponse: held(decision.given, replaceText("secret", "[X]")) });
  const { read } = readTool();
  const { agent } = setUp(gateway, [CALL(), new AIMessage("the secret")], [read]);
  const seen: string[] = [];
  const stream = await withContext({ sessionId: "s-1" }, () =>
    agent.stream({ messages: [new HumanMessage("hi")] }, { streamMode: ["messages", "updates"] }),
  );
  const reading = (async () => {
    for await (const chunk of stream) seen.push(JSON.stringify(chunk));
  })();
  while (!gateway.points.includes("beforeResponse")) await new Promise((resolve) => setTimeout(resolve, 5));
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.match(seen.join(), /the content of/);
  assert.doesNotMatch(seen.join(), /"content":"(th|e |se|cr|et)"/);
  decision.give();
  await reading;
  assert.doesNotMatch(seen.join(), /secret|"content":"(th|e |se|cr|et)"/);
  assert.equal(seen.filter((chunk) => chunk.startsWith('["messages"') && chunk.includes("the [X]")).length, 1);
  for (const context of gateway.contexts) assert.equal((context as JsonObject)["session_id"], "s-1");
});

const FORMAT = z.object({ name: z.string() });
const FORMATS = {
  "the provider's format": { responseFormat: providerStrategy(FORMAT), answer: () => new AIMessage('{"name":"Ada"}') },
  "a tool for the format": {
    responseFormat: toolStrategy(FORMAT),
    answer: () => new AIMessage({ content: "", tool_calls: [{ id: "f", name: "extract-1", args: { name: "Ada" } }] }),
  },
};
for (const [what, { responseFormat, answer: formatted }] of Object.entries(FORMATS)) {
  const formatName = (responseFormat as { [index: number]: { name?: string } })[0]?.name;
  const answerOf = () => {
    const message = formatted();
    for (const call of message.tool_calls ?? []) call.name = formatName ?? call.name;
    return message;
  };

  test(`langchain: an answer in ${what} is judged as JSON, can be rewritten, and a block throws`, async () => {
    await using gateway = await pointGateway();
    const allowed = await setUp(gateway, [answerOf()], [], { responseFormat }).run("hi");
    assert.deepEqual((allowed as { structuredResponse?: unknown }).structuredResponse, { name: "Ada" });
    assert.equal(gateway.payloads("beforeResponse")[0]?.["content"], '{"name":"Ada"}');

    await using redacting = await pointGateway({ beforeResponse: replaceText("Ada", "[X]") });
    const rewritten = await setUp(redacting, [answerOf()], [], { responseFormat }).run("hi");
    assert.deepEqual((rewritten as { structuredResponse?: unknown }).structuredResponse, { name: "[X]" });
    assert.doesNotMatch(JSON.stringify(rewritten), /Ada/);

    await using blocking = await pointGateway({ beforeResponse: block("no") });
    await assert.rejects(
      setUp(blocking, [answerOf()], [], { responseFormat }).run("hi"),
      (error) => findGatewayError(error) instanceof Blocked,
    );
  });
}

test("langchain: what a model says beside an answer in a format is judged apart from it", async () => {
  await using gateway = await pointGateway();
  const responseFormat = toolStrategy(FORMAT);
  const name = `${(responseFormat as { [index: number]: { name?: string } })[0]?.name}`;
  const beside = new AIMessage({ content: "Here it is:", tool_calls: [{ id: "f", name, args: { name: "Ada" } }] });
  await setUp(gateway, [beside], [], { responseFormat }).run("hi");
  assert.deepEqual(
    gateway.payloads("beforeResponse").map(({ content }) => content),
    ["Here it is:", '{"name":"Ada"}'],
  );
});

test("langchain: the end of a run within a tool ends this one, although other middleware makes a result of it", async () => {
  await using gateway = await pointGateway({ beforeToolCall: forTool("inner", outage) });
  const { client } = gateway;
  const inner = () => guardToolRun(client, { toolName: "inner", args: {} }, () => assert.fail());
  const middleware = [guard(client), toolRetryMiddleware({ maxRetries: 1, initialDelayMs: 0, jitter: false })];
  const { run, requests } = setUp(gateway, [CALL(), DONE()], [readTool(inner).read], { middleware });
  await assert.rejects(run("hi"), (error) => findGatewayError(error) instanceof NoDecision);
  assert.equal(requests.length, 1);
  assert.deepEqual(gateway.payloads("afterToolResult"), []);
});
