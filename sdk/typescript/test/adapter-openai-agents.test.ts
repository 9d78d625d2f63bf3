import assert from "node:assert/strict";
import { test } from "node:test";
import { Agent, type AgentInputItem, type FunctionTool, Runner, ToolCallError, hostedMcpTool, tool, user } from "@openai/agents";
import { z } from "zod";
import { findGatewayError, guardModel, guardModelProvider, guardTools } from "../src/adapters/openai-agents.js";
import { Blocked, NoDecision, withContext } from "../src/agent/index.js";
import type { JsonObject } from "../src/json.js";
import { continues } from "./support/fake-gateway.js";
import { type ModelAnswer, ScriptedModel } from "./support/openai-model.js";
import {
  type PointGateway,
  type PointReply,
  answer,
  block,
  held,
  outage,
  patch,
  pointGateway,
  replaceText,
  signal,
} from "./support/point-script.js";

const CALL: ModelAnswer = { toolCalls: [{ id: "call-1", name: "read", input: { path: "/etc/hosts" } }] };
const DONE: ModelAnswer = { text: "done" };

function readTool(execute: (input: { path: string }) => unknown = ({ path }) => `the content of ${path}`, more: object = {}) {
  const inputs: unknown[] = [];
  const read = tool({
    name: "read",
    description: "Reads a file.",
    parameters: z.object({ path: z.string() }),
    execute: async (input) => {
      inputs.push(input);
      return execute(input);
    },
    ...more,
  });
  return { read, inputs };
}

function setUp({ client }: PointGateway, answers: ModelAnswer[], tools: FunctionTool<any, any, any>[] = [], more: object = {}) {
  const model = new ScriptedModel(...answers);
  const agent = new Agent({ name: "assistant", instructions: "Be kind.", model: "fake-1", tools: guardTools(client, tools), ...more });
  const runner = new Runner({ modelProvider: guardModelProvider(client, { getModel: () => model }), tracingDisabled: true });
  return { model, agent, runner, run: (input: string | AgentInputItem[]) => runner.run(agent, input) };
}

/** What the model got last from a tool. */
function toolOutput({ requests }: ScriptedModel): unknown {
  const items = requests.at(-1)?.input as AgentInputItem[];
  const item = items.findLast(({ type }) => type === "function_call_result") as { output: { text?: string } | string };
  return typeof item.output === "string" ? item.output : item.output.text;
}

const QUESTION = () => [
  user("My name is Ada."),
  user([
    { type: "input_text", text: "Who am I?" },
    { type: "input_image", image: "data:image/png;base64,AQID" },
    { type: "input_file", file: { url: "https://x/y.pdf" }, filename: "y.pdf" },
  ]),
];

test("openai-agents: an allowed run passes all points, and nothing changes", async () => {
  await using gateway = await pointGateway();
  const { read, inputs } = readTool();
  const { run, model } = setUp(gateway, [CALL, { text: "It is ", reasoning: "hm" }], [read]);
  const question = QUESTION();
  const result = await withContext({ sessionId: "s-1", runId: "r-1", userId: "ada" }, () => run(question));
  assert.equal(result.finalOutput, "It is ");
  assert.deepEqual(inputs, [{ path: "/etc/hosts" }]);
  assert.deepEqual(gateway.points, ["beforeLlmRequest", "beforeToolCall", "afterToolResult", "beforeLlmRequest", "beforeResponse"]);
  for (const context of gateway.contexts) assert.equal((context as JsonObject)["session_id"], "s-1");
  assert.deepEqual(gateway.contexts[0], { session_id: "s-1", run_id: "r-1", user_id: "ada", model: "fake-1" });
  const [request = {}] = gateway.payloads("beforeLlmRequest");
  assert.equal(request["text"], "Who am I?");
  assert.equal(request["system_prompt"], "Be kind.");
  assert.deepEqual(request["images"], [{ data: "AQID", mime_type: "image/png" }]);
  assert.deepEqual(request["files"], [{ url: "https://x/y.pdf", mime_type: "application/octet-stream", filename: "y.pdf" }]);
  assert.deepEqual(
    (request["messages"] as JsonObject[]).map(({ role }) => role),
    ["user", "user"],
  );
  assert.equal((request["tools"] as JsonObject[])[0]?.["name"], "read");
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
    { content: "It is ", reasoning: "hm", model: "fake-1", token_usage: { input: 3, output: 5 } },
  ]);
  assert.deepEqual(model.requests[0]?.input, question);
  assert.match(JSON.stringify(result.rawResponses), /encrypted_content/);
});

test("openai-agents: a rewritten request is what the model gets", async () => {
  await using gateway = await pointGateway({ beforeLlmRequest: replaceText("Ada", "[NAME]") });
  const { run, model } = setUp(gateway, [DONE], [], { instructions: "Ada pays." });
  await run([...QUESTION(), user("Is it Ada?")]);
  const [request] = model.requests;
  assert.equal(request?.systemInstructions, "[NAME] pays.");
  assert.doesNotMatch(JSON.stringify(request?.input), /Ada/);
  assert.match(JSON.stringify(request?.input), /My name is \[NAME\]\..*AQID.*Is it \[NAME\]\?/);
});

test("openai-agents: only the text changes if a plugin changes only the text, in every step", async () => {
  await using gateway = await pointGateway({ beforeLlmRequest: patch({ text: "Who is [NAME]?" }) });
  const { read } = readTool();
  const { run, model } = setUp(gateway, [CALL, DONE], [read]);
  await run(QUESTION());
  for (const { input } of model.requests) {
    const [first, question] = input as AgentInputItem[];
    assert.match(JSON.stringify(first), /My name is Ada/);
    assert.deepEqual(
      (question as { content: unknown[] }).content.map((part) => (part as { text?: string }).text),
      ["Who is [NAME]?", undefined, undefined],
    );
  }
});

test("openai-agents: a plugin takes an image and a tool away, and changes a handoff and a prompt template", async () => {
  const change = ({ tools, extra }: JsonObject) => {
    const [, second, handoff] = tools as JsonObject[];
    const prompt = { ...((extra as JsonObject)["prompt"] as JsonObject), variables: { name: "[NAME]" } };
    return { images: [], tools: [second, { ...handoff, toolDescription: "Rarely." }] as JsonObject[], extra: { prompt } };
  };
  await using gateway = await pointGateway({ beforeLlmRequest: patch(change) });
  const write = readTool(undefined, { name: "write" }).read;
  const other = new Agent({ name: "other" });
  const { run, model } = setUp(gateway, [DONE], [write, readTool().read], {
    handoffs: [other],
    prompt: { promptId: "p", variables: { name: "Ada" } },
  });
  await run(QUESTION());
  const [request] = model.requests;
  assert.deepEqual(
    request?.tools.map(({ name }) => name),
    ["read"],
  );
  assert.deepEqual(
    request?.handoffs.map(({ toolDescription }) => toolDescription),
    ["Rarely."],
  );
  assert.deepEqual(request?.prompt, { promptId: "p", variables: { name: "[NAME]" } });
  assert.doesNotMatch(JSON.stringify(request?.input), /image/);
  assert.match(JSON.stringify(request?.input), /pdf/);
});

test("openai-agents: rewritten arguments are what the tool gets, after its own validation", async () => {
  await using gateway = await pointGateway({ beforeToolCall: patch({ args: { path: "/tmp/a" } }) });
  const { read, inputs } = readTool();
  await setUp(gateway, [CALL, DONE], [read]).run("hi");
  assert.deepEqual(inputs, [{ path: "/tmp/a" }]);
  assert.deepEqual(gateway.payloads("afterToolResult")[0]?.["args"], { path: "/tmp/a" });

  await using wrong = await pointGateway({ beforeToolCall: patch({ args: { path: 1 } }) });
  const second = setUp(wrong, [CALL, DONE], [read]);
  await second.run("hi");
  assert.equal(inputs.length, 1);
  assert.match(String(toolOutput(second.model)), /An error occurred while running the tool/);
});

test("openai-agents: a renamed call runs the other tool, or none", async () => {
  await using gateway = await pointGateway({ beforeToolCall: patch({ tool_name: "safe_read" }) });
  const { read, inputs } = readTool();
  const other = readTool(undefined, { name: "safe_read" });
  await setUp(gateway, [CALL, DONE], [read, other.read]).run("hi");
  assert.deepEqual([inputs.length, other.inputs.length], [0, 1]);
  await using redacting = await pointGateway({
    beforeToolCall: patch({ tool_name: "safe_read" }),
    afterToolResult: patch({ result: "[REDACTED]" }),
  });
  for (const one of [gateway, redacting]) {
    await assert.rejects(setUp(one, [CALL, DONE], [read]).run("hi"), /a plugin changed the call to one of safe_read/);
  }
  assert.equal(redacting.payloads("afterToolResult").length, 0);
  assert.deepEqual(inputs, []);
});

test("openai-agents: a rewritten result is what the model gets", async () => {
  await using gateway = await pointGateway({ afterToolResult: patch({ result: "[REDACTED]" }) });
  const { read } = readTool();
  const { run, model } = setUp(gateway, [CALL, DONE], [read]);
  const { history } = await run("hi");
  assert.equal(toolOutput(model), "[REDACTED]");
  assert.doesNotMatch(JSON.stringify(history), /the content of/);
});

test("openai-agents: a plugin's answer replaces the tool", async () => {
  await using gateway = await pointGateway({ beforeToolCall: answer({ id: 9007199254740993n }) });
  const { read, inputs } = readTool();
  const { run, model } = setUp(gateway, [CALL, DONE], [read]);
  await run("hi");
  assert.deepEqual(inputs, []);
  assert.equal(toolOutput(model), '{"id":"9007199254740993"}');
  assert.equal(gateway.payloads("afterToolResult").length, 1);
});

test("openai-agents: a tool that throws is told as a text or as a failure, as it is made", async () => {
  const fail = () => {
    throw new Error("no such file");
  };
  await using gateway = await pointGateway();
  const first = setUp(gateway, [CALL, DONE], [readTool(fail).read]);
  await first.run("hi");
  const [told = {}] = gateway.payloads("afterToolResult");
  assert.deepEqual([told["result"], told["success"]], [toolOutput(first.model), true]);
  assert.match(String(told["result"]), /An error occurred while running the tool/);

  const second = setUp(gateway, [CALL, DONE], [readTool(fail, { errorFunction: null }).read]);
  await assert.rejects(second.run("hi"), (error) => error instanceof ToolCallError && error.error.message === "no such file");
  const [, failed = {}] = gateway.payloads("afterToolResult");
  assert.deepEqual([failed["result"], failed["success"]], ["no such file", false]);
});

test("openai-agents: a blocked call of a tool is a result for the model, and nothing runs", async () => {
  await using gateway = await pointGateway({ beforeToolCall: block("not on your plan") });
  const { read, inputs } = readTool();
  const { run, model } = setUp(gateway, [CALL, DONE], [read]);
  assert.equal((await run("hi")).finalOutput, "done");
  assert.deepEqual(inputs, []);
  assert.equal(toolOutput(model), "not on your plan");
  assert.equal(gateway.payloads("afterToolResult").length, 0);
});

test("openai-agents: a blocked result is replaced by the message", async () => {
  await using gateway = await pointGateway({ afterToolResult: block("contains secrets") });
  const { read, inputs } = readTool();
  const { run, model } = setUp(gateway, [CALL, DONE], [read]);
  const { history } = await run("hi");
  assert.equal(inputs.length, 1);
  assert.equal(toolOutput(model), "contains secrets");
  assert.doesNotMatch(JSON.stringify(history), /the content of/);
});

test("openai-agents: the message of a blocked response is all that remains of it", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("I can't say that.") });
  const { read, inputs } = readTool();
  const { run } = setUp(gateway, [{ ...CALL, text: "secret", reasoning: "secret" }], [read]);
  const { finalOutput, history, rawResponses } = await run("hi");
  assert.equal(finalOutput, "I can't say that.");
  assert.deepEqual(inputs, []);
  assert.doesNotMatch(JSON.stringify([history, rawResponses]), /secret/);
});

test("openai-agents: a rewritten response has no copy of the old text, and its tools still run", async () => {
  await using gateway = await pointGateway({ beforeResponse: replaceText("secret", "[X]") });
  const { read, inputs } = readTool();
  const { run, model } = setUp(gateway, [{ ...CALL, text: "the secret", reasoning: "a secret" }, DONE], [read]);
  const { history, rawResponses } = await run("hi");
  assert.equal(inputs.length, 1);
  assert.doesNotMatch(JSON.stringify([history, rawResponses, model.requests]), /secret/);
  assert.match(
    JSON.stringify(history),
    /"reasoning","content":\[\{"type":"input_text","text":"a \[X\]"\}\].*"text":"the \[X\]".*function_call/,
  );
});

test("openai-agents: where the agent has an output type, a block rejects the run", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("no") });
  const { run } = setUp(gateway, [{ text: '{"a":1}' }], [], { outputType: z.object({ a: z.number() }) });
  await assert.rejects(run("hi"), { name: "Blocked" });
  await using redacting = await pointGateway({ beforeResponse: patch({ content: '{"a":2}' }) });
  const second = setUp(redacting, [{ text: '{"a":1}' }], [], { outputType: z.object({ a: z.number() }) });
  assert.deepEqual((await second.run("hi")).finalOutput, { a: 2 });
});

const ENDS = {
  "a block of the request": { beforeLlmRequest: block("stop") },
  "a block of the run before a tool": { beforeToolCall: block("stop", "run") },
  "a block of the run after a tool": { afterToolResult: block("stop", "run") },
  "a block of the run before the response": { beforeResponse: block("stop", "run") },
  "no decision before the request": { beforeLlmRequest: outage },
  "no decision before a tool": { beforeToolCall: outage },
  "no decision after a tool": { afterToolResult: outage },
  "no decision before the response": { beforeResponse: outage },
};
for (const [what, replies] of Object.entries(ENDS)) {
  for (const stream of [false, true]) {
    test(`openai-agents${stream ? " stream" : ""}: ${what} ends the run, and is not tried again`, async () => {
      await using gateway = await pointGateway(replies);
      const { read, inputs } = readTool();
      const retry = { maxRetries: 2, policy: () => true };
      const { runner, agent } = setUp(gateway, [CALL, { text: "secret" }, DONE, DONE], [read], { modelSettings: { retry } });
      const [point] = Object.keys(replies);
      const seen: unknown[] = [];
      const run = async () => {
        if (!stream) return runner.run(agent, "hi");
        const result = await runner.run(agent, "hi", { stream: true });
        for await (const event of result) seen.push(event);
        return result.completed;
      };
      await assert.rejects(run(), (error) => {
        const found = findGatewayError(error);
        return found instanceof (what.startsWith("no decision") ? NoDecision : Blocked) && found.point === point;
      });
      assert.doesNotMatch(JSON.stringify(seen), /secret|"se"/);
      assert.equal(inputs.length, ["afterToolResult", "beforeResponse"].includes(`${point}`) ? 1 : 0);
      assert.equal(gateway.points.filter((name) => name === point).length, 1);
    });
  }
}

test("openai-agents stream: an allowed stream has its own events, but nothing before the decision", async () => {
  const decision = signal();
  await using gateway = await pointGateway({ beforeResponse: held(decision.given) });
  const { read, inputs } = readTool();
  const { runner, agent } = setUp(gateway, [CALL, { text: "the answer" }], [read]);
  const seen: string[] = [];
  const result = await withContext({ sessionId: "s-1" }, () => runner.run(agent, "hi", { stream: true }));
  const reading = (async () => {
    for await (const event of result) {
      if (event.type !== "raw_model_stream_event") continue;
      seen.push(event.data.type === "output_text_delta" ? event.data.delta : event.data.type);
    }
  })();
  while (!gateway.points.includes("beforeResponse")) await new Promise((resolve) => setTimeout(resolve, 5));
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual(seen, ["response_started", "response_done"]);
  decision.give();
  await reading;
  assert.deepEqual(seen.slice(2), [
    "response_started",
    "th",
    "model",
    "e ",
    "model",
    "an",
    "model",
    "sw",
    "model",
    "er",
    "model",
    "response_done",
  ]);
  assert.equal(inputs.length, 1);
  assert.equal(result.finalOutput, "the answer");
  for (const context of gateway.contexts) assert.equal((context as JsonObject)["session_id"], "s-1");
});

for (const [what, reply, expected] of [
  ["a rewritten text replaces the pieces", replaceText("secret", "[X]"), "the [X]"],
  ["a block replaces the text", block("I can't say that."), "I can't say that."],
] as const) {
  test(`openai-agents stream: ${what}`, async () => {
    await using gateway = await pointGateway({ beforeResponse: reply });
    const { runner, agent } = setUp(gateway, [{ text: "the secret", reasoning: "secret" }]);
    const result = await runner.run(agent, "hi", { stream: true });
    const seen: string[] = [];
    for await (const event of result) if (event.type === "raw_model_stream_event") seen.push(JSON.stringify(event.data));
    assert.equal(result.finalOutput, expected);
    assert.equal(seen.length, 3);
    assert.equal(seen[1], JSON.stringify({ type: "output_text_delta", delta: expected }));
    assert.doesNotMatch(seen.join(), /secret/);
  });
}

test("openai-agents: the provider's own errors are tried again as it advises", async () => {
  await using gateway = await pointGateway();
  const model = new ScriptedModel();
  const advice = { suggested: true };
  const guarded = guardModel(gateway.client, Object.assign(model, { getRetryAdvice: () => advice }));
  const request = { input: "hi" } as never;
  assert.equal(await guarded.getRetryAdvice?.({ request, error: new Error("busy"), stream: false, attempt: 1 }), advice);
  assert.equal((guarded as { model?: string }).model, "fake-1");
});

test("openai-agents: a tool that the gateway can't guard is refused", async () => {
  await using gateway = await pointGateway();
  const hosted = hostedMcpTool({ serverLabel: "x", serverUrl: "https://x" });
  assert.throws(() => guardTools(gateway.client, [hosted]), /^TypeError: the tool hosted_mcp is of the type hosted_tool/);
});

test("openai-agents: an agent as a tool is guarded like any other", async () => {
  await using gateway = await pointGateway({ afterToolResult: replaceText("secret", "[X]") });
  const inner = new Agent({ name: "inner", model: guardModel(gateway.client, new ScriptedModel({ text: "a secret" })) });
  const asTool = inner.asTool({ toolName: "ask", toolDescription: "Asks." });
  const call = { toolCalls: [{ id: "call-1", name: "ask", input: { input: "who?" } }] };
  const { run, model } = setUp(gateway, [call, DONE], [asTool]);
  await run("hi");
  assert.equal(toolOutput(model), "a [X]");
});

/** An agent with a tool that is another agent, which calls `read`. The reply is about what the inner one does. */
function askInner(gateway: PointGateway) {
  const { read, inputs } = readTool();
  const inner = new Agent({
    name: "inner",
    model: guardModel(gateway.client, new ScriptedModel(CALL, { text: "inner" })),
    tools: guardTools(gateway.client, [read]),
  });
  const call = { toolCalls: [{ id: "call-2", name: "ask", input: { input: "who?" } }] };
  const asTool = inner.asTool({ toolName: "ask", toolDescription: "Asks." });
  return { ...setUp(gateway, [call, DONE], [asTool]), inputs };
}

/** A reply about the inner agent alone. */
function onlyInner(reply: PointReply): PointReply {
  return (payload, call) =>
    [payload["tool_name"], payload["content"]].some((value) => value === "read" || value === "inner")
      ? reply(payload, call)
      : continues(payload);
}

for (const point of ["beforeToolCall", "beforeResponse"] as const) {
  for (const [what, reply] of Object.entries({ "a block of the run": block("stop", "run"), "no decision": outage })) {
    test(`openai-agents: ${what} at ${point} of an agent as a tool also ends the outer run`, async () => {
      await using gateway = await pointGateway({ [point]: onlyInner(reply) });
      const { run, model } = askInner(gateway);
      await assert.rejects(run("hi"), (error) => findGatewayError(error) instanceof (reply === outage ? NoDecision : Blocked));
      assert.equal(model.requests.length, 1);
      assert.ok(gateway.payloads("afterToolResult").every((payload) => payload["tool_name"] === "read"));
    });
  }
}

test("openai-agents: a change that an agent as a tool can't take ends the outer run", async () => {
  await using gateway = await pointGateway({ beforeToolCall: onlyInner(patch({ tool_name: "write" })) });
  const { run, model, inputs } = askInner(gateway);
  await assert.rejects(run("hi"), /which is none of the tools/);
  assert.deepEqual([inputs.length, model.requests.length], [0, 1]);
});

test("openai-agents: a block of a step within an agent as a tool leaves both runs", async () => {
  await using gateway = await pointGateway({ beforeToolCall: onlyInner(block("not on your plan")) });
  const { run, model } = askInner(gateway);
  assert.equal((await run("hi")).finalOutput, "done");
  assert.equal(toolOutput(model), "inner");
});
