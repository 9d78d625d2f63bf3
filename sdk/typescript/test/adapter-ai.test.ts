import assert from "node:assert/strict";
import { test } from "node:test";
import { type ModelMessage, generateObject, generateText, jsonSchema, stepCountIs, streamText, tool, wrapLanguageModel } from "ai";
import { z } from "zod";
import { findGatewayError, guard, guardTools } from "../src/adapters/ai.js";
import { guardToolRun } from "../src/adapters/guard.js";
import { Blocked, NoDecision, withContext } from "../src/agent/index.js";
import type { JsonObject } from "../src/json.js";
import { type ModelAnswer, scriptedModel, streamingModel } from "./support/ai-model.js";
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

const CALL: ModelAnswer = { toolCalls: [{ id: "call-1", name: "read", input: { path: "/etc/hosts" } }] };
const DONE: ModelAnswer = { text: "done" };

/** A tool that remembers its inputs. */
function readTool(execute: (input: { path: string }) => unknown = ({ path }) => ({ content: `the content of ${path}` })) {
  const inputs: unknown[] = [];
  const read = tool({
    description: "Reads a file.",
    inputSchema: z.object({ path: z.string() }),
    execute: (input) => {
      inputs.push(input);
      return execute(input);
    },
  });
  return { read, inputs };
}

function setUp({ client }: PointGateway, answers: ModelAnswer[], tools: Parameters<typeof guardTools>[1] = {}) {
  const fake = scriptedModel(...answers);
  const model = wrapLanguageModel({ model: fake, middleware: guard(client) });
  const settings = { model, tools: guardTools(client, tools), stopWhen: stepCountIs(5), maxRetries: 0 };
  /** The last prompt that the model itself got. */
  const lastPrompt = () => [...fake.doGenerateCalls, ...fake.doStreamCalls].at(-1)?.prompt ?? [];
  /** What the model got from the tool, in a text such as `json {"a":1}` or `error-text no such file`. */
  const toolOutput = () => {
    const [part] = lastPrompt().findLast(({ role }) => role === "tool")?.content ?? [];
    const { type, value } = (part as { output: { type: string; value: unknown } }).output;
    // Version 7 of the SDK writes errors as texts.
    return `${type} ${typeof value === "string" ? value.replace(/^Error: /, "") : JSON.stringify(value)}`;
  };
  return { fake, model, settings, lastPrompt, toolOutput };
}

const MESSAGES: ModelMessage[] = [
  { role: "user", content: "My name is Ada." },
  { role: "assistant", content: "Hello." },
  {
    role: "user",
    content: [
      { type: "text", text: "Who am I?" },
      { type: "file", data: new Uint8Array([1, 2, 3]), mediaType: "image/png" },
      { type: "file", data: new URL("https://x/y.pdf"), mediaType: "application/pdf" },
    ],
  },
];

/** The data of a message's files, of any type. */
function dataOf(message: { readonly content: string | readonly object[] } | undefined): unknown[] {
  const data = typeof message?.content === "object" ? message.content.flatMap((part) => ("data" in part ? [part.data] : [])) : [];
  // Version 7 of the SDK says what it is.
  return data.map((item) => (item as { data?: unknown }).data ?? (item as { url?: unknown }).url ?? item);
}

test("ai: an allowed run passes all points, and nothing changes", async () => {
  await using gateway = await pointGateway();
  const { read, inputs } = readTool();
  const { settings, fake } = setUp(gateway, [CALL, { text: "It is ", reasoning: "hm" }], { read });
  const run = () => generateText({ ...settings, system: "Be kind.", messages: MESSAGES });
  const result = await withContext({ sessionId: "s-1", runId: "r-1", userId: "ada" }, run);
  assert.equal(result.text, "It is ");
  assert.deepEqual(inputs, [{ path: "/etc/hosts" }]);
  assert.deepEqual(gateway.points, ["beforeLlmRequest", "beforeToolCall", "afterToolResult", "beforeLlmRequest", "beforeResponse"]);
  for (const context of gateway.contexts) {
    assert.deepEqual(
      { ...(context as JsonObject), provider: "fake", model: "fake-1" },
      { session_id: "s-1", run_id: "r-1", user_id: "ada", provider: "fake", model: "fake-1" },
    );
  }
  const [request = {}] = gateway.payloads("beforeLlmRequest");
  assert.equal(request["text"], "Who am I?");
  assert.equal(request["system_prompt"], "Be kind.");
  assert.deepEqual(request["images"], [{ data: "AQID", mime_type: "image/png" }]);
  assert.deepEqual(
    (request["messages"] as JsonObject[]).map(({ role }) => role),
    ["user", "assistant", "user"],
  );
  assert.equal((request["tools"] as JsonObject[])[0]?.["name"], "read");
  assert.deepEqual(gateway.payloads("beforeToolCall"), [{ tool_name: "read", args: { path: "/etc/hosts" }, call_id: "call-1" }]);
  assert.equal(gateway.gateway.calls[1]?.body["takes_results"], true);
  const [after = {}] = gateway.payloads("afterToolResult");
  assert.equal(typeof after["duration_ms"], "number");
  const ran = {
    tool_name: "read",
    result: { content: "the content of /etc/hosts" },
    success: true,
    args: { path: "/etc/hosts" },
    call_id: "call-1",
  };
  assert.deepEqual({ ...after, duration_ms: 0 }, { ...ran, duration_ms: 0 });
  assert.deepEqual(gateway.payloads("beforeResponse"), [
    {
      content: "It is ",
      reasoning: "hm",
      provider: "fake",
      model: "fake-1",
      token_usage: { input: 3, output: 5 },
      stop_reason: "raw stop",
    },
  ]);
  const question = fake.doGenerateCalls[0]?.prompt.at(-1);
  assert.deepEqual(dataOf(question), [new Uint8Array([1, 2, 3]), new URL("https://x/y.pdf")]);
  assert.deepEqual(result.steps[1]?.providerMetadata, { fake: { logprobs: [] } });
});

test("ai: a rewritten request is what the model gets", async () => {
  await using gateway = await pointGateway({ beforeLlmRequest: replaceText("Ada", "[NAME]") });
  const { settings, lastPrompt, fake } = setUp(gateway, [DONE]);
  await generateText({ ...settings, system: "Ada pays.", messages: [...MESSAGES, { role: "user", content: "Is it Ada?" }] });
  assert.doesNotMatch(JSON.stringify(lastPrompt()), /Ada/);
  const prompt = fake.doGenerateCalls[0]?.prompt ?? [];
  assert.deepEqual(prompt[0], { role: "system", content: "[NAME] pays." });
  assert.equal(JSON.stringify(prompt[1]), JSON.stringify({ role: "user", content: [{ type: "text", text: "My name is [NAME]." }] }));
  // What nobody changed has kept what JSON doesn't show.
  assert.deepEqual(dataOf(prompt[3]), [new Uint8Array([1, 2, 3]), new URL("https://x/y.pdf")]);
});

test("ai: only the text changes if a plugin changes only the text, in every step", async () => {
  await using gateway = await pointGateway({ beforeLlmRequest: patch({ text: "Who is [NAME]?" }) });
  const { read } = readTool();
  const { settings, fake } = setUp(gateway, [CALL, DONE], { read });
  await generateText({ ...settings, messages: MESSAGES });
  for (const { prompt } of fake.doGenerateCalls) {
    const question = prompt.findLast(({ role }) => role === "user");
    assert.deepEqual(question?.content[0], { type: "text", text: "Who is [NAME]?", providerOptions: undefined });
    assert.equal(question?.content.length, 3);
    assert.match(JSON.stringify(prompt[0]), /My name is Ada/);
  }
});

test("ai: a plugin takes an image and a tool away, and adds a system prompt", async () => {
  const change = ({ tools }: JsonObject) => ({ images: [], tools: (tools as JsonObject[]).slice(1), system_prompt: "Be short." });
  await using gateway = await pointGateway({ beforeLlmRequest: patch(change) });
  const { read } = readTool();
  const { settings, fake } = setUp(gateway, [DONE], { write: read, read });
  await generateText({ ...settings, messages: MESSAGES });
  const call = fake.doGenerateCalls[0];
  assert.deepEqual(
    call?.tools?.map(({ name }) => name),
    ["read"],
  );
  assert.deepEqual(call?.prompt[0], { role: "system", content: "Be short." });
  assert.doesNotMatch(JSON.stringify(call?.prompt.at(-1)), /image/);
  assert.match(JSON.stringify(call?.prompt.at(-1)), /pdf/);
});

test("ai: an added image is refused", async () => {
  await using gateway = await pointGateway({ beforeLlmRequest: patch({ images: [{ url: "https://x/z", mime_type: "image/png" }] }) });
  const { settings, fake } = setUp(gateway, [DONE]);
  await assert.rejects(generateText({ ...settings, prompt: "hi" }), { name: "PatchError" });
  assert.equal(fake.doGenerateCalls.length, 0);
});

test("ai: rewritten arguments are validated, and the tool gets them", async () => {
  await using gateway = await pointGateway({ beforeToolCall: patch({ args: { path: "/tmp/a" } }) });
  const { read, inputs } = readTool();
  const { settings } = setUp(gateway, [CALL, DONE], { read });
  await generateText({ ...settings, prompt: "hi" });
  assert.deepEqual(inputs, [{ path: "/tmp/a" }]);
  assert.deepEqual(gateway.payloads("afterToolResult")[0]?.["args"], { path: "/tmp/a" });
});

test("ai: rewritten arguments that don't fit are the tool's error", async () => {
  await using gateway = await pointGateway({ beforeToolCall: patch({ args: { path: 1 } }) });
  const { read, inputs } = readTool();
  const { settings, toolOutput } = setUp(gateway, [CALL, DONE], { read });
  await generateText({ ...settings, prompt: "hi" });
  assert.deepEqual(inputs, []);
  assert.match(toolOutput(), /^error-text a plugin changed the arguments of read, and they don't fit/);
  assert.equal(gateway.payloads("afterToolResult")[0]?.["success"], false);
});

test("ai: a renamed call runs the other tool, or none", async () => {
  await using gateway = await pointGateway({ beforeToolCall: patch({ tool_name: "safe_read" }) });
  const { read, inputs } = readTool();
  const other = readTool();
  const both = setUp(gateway, [CALL, DONE], { read, safe_read: other.read });
  await generateText({ ...both.settings, prompt: "hi" });
  assert.deepEqual([inputs.length, other.inputs.length], [0, 1]);
  assert.equal(gateway.payloads("afterToolResult")[0]?.["tool_name"], "safe_read");
  const one = setUp(gateway, [CALL, DONE], { read });
  await generateText({ ...one.settings, prompt: "hi" });
  assert.deepEqual(inputs, []);
  assert.match(one.toolOutput(), /^error-text a plugin changed the call to one of safe_read/);
});

test("ai: a rewritten result is what the model gets", async () => {
  await using gateway = await pointGateway({ afterToolResult: patch({ result: { content: "[REDACTED]", size: 9007199254740993n } }) });
  const { read } = readTool();
  const { settings, toolOutput } = setUp(gateway, [CALL, DONE], { read });
  const { steps } = await generateText({ ...settings, prompt: "hi" });
  assert.equal(toolOutput(), 'json {"content":"[REDACTED]","size":"9007199254740993"}');
  assert.doesNotMatch(JSON.stringify(steps), /the content of/);
});

test("ai: a plugin's answer replaces the tool", async () => {
  await using gateway = await pointGateway({ beforeToolCall: answer({ cached: true }) });
  const { read, inputs } = readTool();
  const { settings, toolOutput } = setUp(gateway, [CALL, DONE], { read });
  await generateText({ ...settings, prompt: "hi" });
  assert.deepEqual(inputs, []);
  assert.equal(toolOutput(), 'json {"cached":true}');
  assert.deepEqual(gateway.payloads("afterToolResult"), [
    { tool_name: "read", result: { cached: true }, success: true, args: { path: "/etc/hosts" }, call_id: "call-1" },
  ]);
});

test("ai: a tool that throws is told, and the model gets its error, or the plugin's text for it", async () => {
  await using gateway = await pointGateway();
  const fails = readTool(() => {
    throw new Error("no such file: /home/ada");
  });
  const first = setUp(gateway, [CALL, DONE], { read: fails.read });
  await generateText({ ...first.settings, prompt: "hi" });
  assert.equal(first.toolOutput(), "error-text no such file: /home/ada");
  const [told = {}] = gateway.payloads("afterToolResult");
  assert.deepEqual([told["result"], told["success"]], ["no such file: /home/ada", false]);

  await using redacting = await pointGateway({ afterToolResult: patch({ result: "no such file" }) });
  const second = setUp(redacting, [CALL, DONE], { read: fails.read });
  await generateText({ ...second.settings, prompt: "hi" });
  assert.equal(second.toolOutput(), "error-text no such file");
});

test("ai: a tool that yields gives its last result, once it is judged", async () => {
  await using gateway = await pointGateway();
  const read = tool({
    inputSchema: z.object({ path: z.string() }),
    async *execute() {
      yield "half";
      yield "whole";
    },
  });
  const { settings } = setUp(gateway, [CALL, DONE], { read });
  const results: unknown[] = [];
  for await (const part of streamText({ ...settings, prompt: "hi" }).fullStream) if (part.type === "tool-result") results.push(part.output);
  assert.deepEqual(results, ["whole"]);
  assert.equal(gateway.payloads("afterToolResult")[0]?.["result"], "whole");
});

test("ai: a blocked call of a tool is an error for the model, and nothing runs", async () => {
  await using gateway = await pointGateway({ beforeToolCall: block("not on your plan") });
  const { read, inputs } = readTool();
  const { settings, toolOutput } = setUp(gateway, [CALL, DONE], { read });
  assert.equal((await generateText({ ...settings, prompt: "hi" })).text, "done");
  assert.deepEqual(inputs, []);
  assert.equal(toolOutput(), "error-text not on your plan");
  assert.equal(gateway.payloads("afterToolResult").length, 0);
});

test("ai: a blocked result is replaced by the message", async () => {
  await using gateway = await pointGateway({ afterToolResult: block("contains secrets") });
  const { read, inputs } = readTool();
  const { settings, toolOutput } = setUp(gateway, [CALL, DONE], { read });
  const { steps } = await generateText({ ...settings, prompt: "hi" });
  assert.equal(inputs.length, 1);
  assert.equal(toolOutput(), "error-text contains secrets");
  const failure = steps[0]?.content.find((part) => part.type === "tool-error");
  assert.ok(findGatewayError(failure?.error) instanceof Blocked);
  assert.doesNotMatch(JSON.stringify(steps), /the content of/);
});

for (const scope of ["step", "run"] as const) {
  test(`ai: a blocked request throws, with the scope ${scope}`, async () => {
    await using gateway = await pointGateway({ beforeLlmRequest: block("no", scope) });
    const { settings, fake } = setUp(gateway, [DONE]);
    await assert.rejects(generateText({ ...settings, prompt: "hi" }), (error) => error instanceof Blocked && error.scope === scope);
    assert.equal(fake.doGenerateCalls.length, 0);
  });
}

test("ai: the message of a blocked response is all that remains of it", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("I can't say that.") });
  const { read, inputs } = readTool();
  const { settings } = setUp(gateway, [{ ...CALL, text: "secret", reasoning: "secret" }], { read });
  const result = await generateText({ ...settings, prompt: "hi" });
  assert.equal(result.text, "I can't say that.");
  assert.equal(result.finishReason, "stop");
  assert.deepEqual(inputs, []);
  const { content, reasoningText, response, providerMetadata } = result;
  assert.doesNotMatch(JSON.stringify({ content, reasoningText, response, providerMetadata }), /secret/);
});

test("ai: a rewritten response has no copy of the old text", async () => {
  await using gateway = await pointGateway({ beforeResponse: replaceText("secret", "[X]") });
  const { settings } = setUp(gateway, [{ text: "the secret", reasoning: "a secret" }]);
  const { text, reasoningText, content, response, providerMetadata } = await generateText({ ...settings, prompt: "hi" });
  assert.deepEqual([text, reasoningText], ["the [X]", "a [X]"]);
  assert.doesNotMatch(JSON.stringify({ content, response, providerMetadata }), /secret|signature|logprobs/);
  assert.equal(response.id, "response-1");
});

test("ai: where the answer must be JSON, a block throws", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("no") });
  const { model } = setUp(gateway, [{ text: '{"a":1}' }]);
  const schema = jsonSchema<{ a: number }>({ type: "object", properties: { a: { type: "number" } } });
  await assert.rejects(generateObject({ model, schema, prompt: "hi", maxRetries: 0 }), { name: "Blocked" });
});

const TOOL_POINTS = ["beforeToolCall", "afterToolResult"] as const;
for (const point of TOOL_POINTS) {
  for (const [what, reply] of Object.entries({ "a block of the run": block("stop", "run"), "no decision": outage })) {
    test(`ai: ${what} at ${point} ends the run with the next request, also if runs share the ids of their calls`, async () => {
      await using gateway = await pointGateway({ [point]: reply });
      await using other = await pointGateway();
      const { read, inputs } = readTool();
      const { settings, fake } = setUp(gateway, [CALL, DONE], { read });
      const neighbour = setUp(other, [CALL, DONE], { read });
      const [ended, finished] = await Promise.allSettled([
        generateText({ ...settings, prompt: "hi" }),
        generateText({ ...neighbour.settings, prompt: "hi" }),
      ]);
      assert.ok(ended.status === "rejected" && findGatewayError(ended.reason) === ended.reason);
      assert.equal(fake.doGenerateCalls.length, 1);
      assert.equal(finished.status, "fulfilled");
      assert.equal(inputs.length, point === "beforeToolCall" ? 1 : 2);
    });
  }
}

test("ai: an ended run stays ended for every run with the same ids, and for a repeated request", async () => {
  await using gateway = await pointGateway({ beforeToolCall: block("stop", "run") });
  const runs = await Promise.allSettled(
    Array.from({ length: 3 }, () => {
      const { settings } = setUp(gateway, [CALL, DONE, DONE], { read: readTool().read });
      return generateText({ ...settings, prompt: "hi", maxRetries: 1 });
    }),
  );
  assert.deepEqual(
    runs.map(({ status }) => status),
    ["rejected", "rejected", "rejected"],
  );
});

test("ai: no decision at the model's points throws", async () => {
  await using before = await pointGateway({ beforeLlmRequest: outage });
  const first = setUp(before, [DONE]);
  await assert.rejects(
    generateText({ ...first.settings, prompt: "hi" }),
    (error) => error instanceof NoDecision && error.point === "beforeLlmRequest",
  );
  assert.equal(first.fake.doGenerateCalls.length, 0);
  await using after = await pointGateway({ beforeResponse: outage });
  const second = setUp(after, [DONE]);
  await assert.rejects(
    generateText({ ...second.settings, prompt: "hi" }),
    (error) => error instanceof NoDecision && error.point === "beforeResponse",
  );
});

test("ai: a tool without execute is refused", async () => {
  await using gateway = await pointGateway();
  assert.throws(() => guardTools(gateway.client, { ask: tool({ inputSchema: z.object({}) }) }), /^TypeError: the tool ask has no execute/);
});

test("ai stream: an allowed stream has its own parts, but nothing before the decision", async () => {
  const decision = signal();
  await using gateway = await pointGateway({ beforeResponse: held(decision.given) });
  const { read, inputs } = readTool();
  const { settings } = setUp(gateway, [CALL, { text: "the answer", reasoning: "hm" }], { read });
  const seen: string[] = [];
  const result = withContext({ sessionId: "s-1" }, () => streamText({ ...settings, prompt: "hi", includeRawChunks: true }));
  const reading = (async () => {
    for await (const part of result.fullStream) seen.push(part.type === "text-delta" ? part.text : part.type);
  })();
  while (!gateway.points.includes("beforeResponse")) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(
    seen.filter((part) => /text|reasoning|raw/.test(part)),
    [],
  );
  decision.give();
  await reading;
  assert.deepEqual(
    seen.filter((part) => part.length <= 2),
    ["th", "e ", "an", "sw", "er"],
  );
  assert.equal(seen.filter((part) => part === "raw").length, 6);
  assert.equal(inputs.length, 1);
  assert.equal(await result.text, "the answer");
  assert.equal(await result.finishReason, "stop");
  for (const context of gateway.contexts) assert.equal((context as JsonObject)["session_id"], "s-1");
  assert.deepEqual(gateway.points, ["beforeLlmRequest", "beforeToolCall", "afterToolResult", "beforeLlmRequest", "beforeResponse"]);
});

test("ai stream: a rewritten text and reasoning replace the pieces", async () => {
  await using gateway = await pointGateway({ beforeResponse: replaceText("secret", "[X]") });
  const { settings } = setUp(gateway, [{ text: "the secret", reasoning: "a secret" }]);
  const result = streamText({ ...settings, prompt: "hi", includeRawChunks: true });
  const parts: unknown[] = [];
  for await (const part of result.fullStream) parts.push(part);
  assert.doesNotMatch(JSON.stringify(parts), /"raw"|"rawValue"|logprobs|secret/);
  assert.equal(parts.filter((part) => JSON.stringify(part).includes("-delta")).length, 2);
  assert.deepEqual([await result.text, await result.reasoningText], ["the [X]", "a [X]"]);
});

test("ai stream: a block replaces the text, and no tool runs", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("I can't say that.") });
  const { read, inputs } = readTool();
  const { settings } = setUp(gateway, [{ ...CALL, text: "secret" }], { read });
  const result = streamText({ ...settings, prompt: "hi" });
  await result.consumeStream();
  assert.equal(await result.text, "I can't say that.");
  assert.equal(await result.finishReason, "stop");
  assert.deepEqual(inputs, []);
});

test("ai stream: added reasoning goes before the text", async () => {
  await using gateway = await pointGateway({ beforeResponse: patch({ reasoning: "I think." }) });
  const { settings } = setUp(gateway, [DONE]);
  const types: string[] = [];
  for await (const part of streamText({ ...settings, prompt: "hi" }).fullStream) types.push(part.type);
  const answer = types.filter((type) => /^(text|reasoning)-(start|end)$|^finish$/.test(type));
  assert.deepEqual(answer, ["reasoning-start", "reasoning-end", "text-start", "text-end", "finish"]);
});

test("ai stream: what came before an error of the model is judged", async () => {
  await using gateway = await pointGateway({ beforeResponse: replaceText("secret", "[X]") });
  const parts = [
    { type: "text-start", id: "0" },
    { type: "text-delta", id: "0", delta: "a secret" },
    { type: "error", error: new Error("overloaded") },
  ] as const;
  const model = wrapLanguageModel({ model: streamingModel(...parts), middleware: guard(gateway.client) });
  const { stream } = await model.doStream({ prompt: [{ role: "user", content: [{ type: "text", text: "hi" }] }] });
  const seen: unknown[] = [];
  for await (const part of stream) seen.push(part.type === "text-delta" ? part.delta : part.type);
  assert.deepEqual(seen, ["text-start", "a [X]", "text-end", "error"]);
});

const STREAM_ENDS = {
  "a block of the request": { beforeLlmRequest: block("no") },
  "a block of the run by the response": { beforeResponse: block("no", "run") },
  "no decision before the request": { beforeLlmRequest: outage },
  "no decision before the response": { beforeResponse: outage },
};
for (const [what, replies] of Object.entries(STREAM_ENDS)) {
  test(`ai stream: ${what} is the stream's error, and nothing is shown`, async () => {
    await using gateway = await pointGateway(replies);
    const { settings } = setUp(gateway, [{ text: "secret" }]);
    const errors: unknown[] = [];
    const result = streamText({ ...settings, prompt: "hi", onError: ({ error }) => void errors.push(error) });
    let text = "";
    for await (const piece of result.textStream) text += piece;
    assert.equal(text, "");
    assert.equal(errors.length, 1);
    assert.ok(findGatewayError(errors[0]));
    await assert.rejects(async () => result.text);
  });
}

test("ai stream: what ends the run in a tool is the stream's error", async () => {
  await using gateway = await pointGateway({ beforeToolCall: block("stop", "run") });
  const { read } = readTool();
  const { settings, fake } = setUp(gateway, [CALL, DONE], { read });
  const errors: unknown[] = [];
  const result = streamText({ ...settings, prompt: "hi", onError: ({ error }) => void errors.push(error) });
  await result.consumeStream();
  assert.ok(errors.some((error) => error instanceof Blocked && error.scope === "run"));
  assert.equal(fake.doStreamCalls.length, 1);
});

test("ai: the run's signal cancels the gateway's calls", async () => {
  await using gateway = await pointGateway({ beforeLlmRequest: () => ({ hang: true }) });
  const { settings } = setUp(gateway, [DONE]);
  const abort = new AbortController();
  const running = generateText({ ...settings, prompt: "hi", abortSignal: abort.signal });
  while (gateway.points.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  abort.abort(new Error("enough"));
  await assert.rejects(running, /enough/);
});

test("ai: the end of a run within a tool ends this one, whatever the tool makes of it", async () => {
  await using gateway = await pointGateway({ beforeToolCall: forTool("inner", outage) });
  const inner = () => guardToolRun(gateway.client, { toolName: "inner", args: {} }, () => assert.fail()).catch(() => "never mind");
  const { settings, fake } = setUp(gateway, [CALL, DONE], { read: readTool(inner).read });
  await assert.rejects(generateText({ ...settings, prompt: "hi" }), NoDecision);
  assert.equal(fake.doGenerateCalls.length, 1);
  assert.deepEqual(gateway.payloads("afterToolResult"), []);
});
