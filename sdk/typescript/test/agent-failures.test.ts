import assert from "node:assert/strict";
import { test } from "node:test";
import { status } from "@grpc/grpc-js";
import { Agent, Blocked, CallError, type GatewayClient, NoDecision } from "../src/agent/index.js";
import { FetchAgent } from "../src/agent/fetch.js";
import type { JsonObject } from "../src/json.js";
import { type GatewayError, type Reply, continues, startGrpc, startHttp } from "./support/fake-gateway.js";

const OWN = { toolName: "own", args: { n: 1 } };

const STEPS = [
  { plugin: "first", binding: "a", outcome: "modified", duration_us: 3 },
  { plugin: "guard", binding: "floor", outcome: "failed", reason: "breaker_open", duration_us: 0 },
];

function blocks(block: JsonObject, others: JsonObject = {}): { answer: JsonObject } {
  return continues({ tool_name: "patched", args: {} }, { decision: "block", block, ...others });
}

/** What a call throws, which must be no decision. */
async function noDecision(call: Promise<unknown>): Promise<NoDecision> {
  const error = await call.then(
    () => assert.fail("a decision"),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof NoDecision, String(error));
  assert.ok(!(error instanceof Blocked));
  return error;
}

for (const [name, start] of Object.entries({ grpc: startGrpc, http: startHttp })) {
  test(`${name}: a block is thrown with all that it says, and the call is made once`, async () => {
    await using gateway = await start();
    const block = { plugin: "auth", binding: "floor", code: "TOOL_NOT_ALLOWED", message: "no", retry_after_ms: 1500, scope: "run" };
    const notice = { kind: "block", message: "no" };
    gateway.reply(blocks(block, { notices: [notice], steps: STEPS }));
    // `go_on` applies to the lack of a decision, never to a block.
    const agent = gateway.agent({ onNoDecision: "go_on" });
    const error = await agent.beforeToolCall(OWN).then(
      () => assert.fail("no block"),
      (thrown: unknown) => thrown,
    );
    assert.ok(error instanceof Blocked && !(error instanceof CallError), String(error));
    const { point, code, message, scope, retryAfterMs, plugin, binding } = error;
    assert.deepEqual([point, code, message, scope], ["beforeToolCall", "TOOL_NOT_ALLOWED", "no", "run"]);
    assert.deepEqual([retryAfterMs, plugin, binding], [1500, "auth", "floor"]);
    assert.deepEqual(error.payload, { toolName: "patched", args: {} });
    assert.deepEqual(error.notices, [notice]);
    assert.deepEqual(
      error.steps.map(({ outcome }) => outcome),
      ["modified", "failed"],
    );
    assert.deepEqual([error.planDigest, error.revision, error.requestId], ["plan", 7, "id"]);
    assert.equal(gateway.calls.length, 1);
  });

  test(`${name}: a block says only what the gateway reveals`, async () => {
    await using gateway = await start();
    gateway.reply(blocks({ code: "X", message: "no", scope: "step" }));
    const error = await gateway
      .agent()
      .beforeToolCall(OWN)
      .catch((thrown: unknown) => thrown);
    assert.ok(error instanceof Blocked);
    assert.deepEqual([error.scope, error.plugin, error.binding, error.retryAfterMs], ["step", undefined, undefined, undefined]);
  });

  test(`${name}: an error has its code, its step and the steps until then`, async () => {
    await using gateway = await start();
    const guard = { plugin: "guard", binding: "floor", reason: "breaker_open" };
    gateway.reply({ error: { code: "PLUGIN_UNAVAILABLE", status: 503, detail: "Plugin 'guard' failed", ...guard, steps: STEPS } });
    const error = await noDecision(gateway.agent().beforeToolCall(OWN));
    assert.equal(error.message, "no decision at beforeToolCall: PLUGIN_UNAVAILABLE: Plugin 'guard' failed");
    const { kind, code, detail, plugin, binding, reason, requestId } = error;
    assert.deepEqual([kind, code, detail, requestId], ["error", "PLUGIN_UNAVAILABLE", "Plugin 'guard' failed", "error-id"]);
    assert.deepEqual({ plugin, binding, reason }, guard);
    assert.deepEqual(error.steps, [
      { plugin: "first", binding: "a", outcome: "modified", durationUs: 3 },
      { plugin: "guard", binding: "floor", outcome: "failed", reason: "breaker_open", durationUs: 0 },
    ]);
    assert.ok(error.isTransient);
  });

  test(`${name}: an invalid request is told by its members, and isn't transient`, async () => {
    await using gateway = await start();
    const errors = [
      { pointer: "/payload/args", message: "too deep" },
      { pointer: "", message: "bad" },
    ];
    gateway.reply({ error: { code: "PAYLOAD_INVALID", status: 400, detail: "2 invalid members", errors } });
    const error = await noDecision(gateway.agent().beforeToolCall(OWN));
    assert.deepEqual(error.violations, [
      { field: "/payload/args", description: "too deep" },
      { field: "", description: "bad" },
    ]);
    assert.deepEqual([error.code, error.isTransient, error.retryAfterMs, error.steps], ["PAYLOAD_INVALID", false, undefined, []]);
  });

  test(`${name}: an overload is transient, and says when to try again`, async () => {
    await using gateway = await start();
    gateway.reply({ error: { code: "OVERLOADED", status: 503, detail: "busy", retryAfterMs: 3000 } });
    const error = await noDecision(gateway.agent().beforeToolCall(OWN));
    assert.deepEqual([error.code, error.isTransient, error.retryAfterMs], ["OVERLOADED", true, 3000]);
  });

  test(`${name}: a hook's and a list's errors are call errors`, async () => {
    await using gateway = await start();
    const error: GatewayError = { code: "PLUGIN_TIMEOUT", status: 504, detail: "too late", plugin: "notes" };
    gateway.reply({ error });
    const hook = await gateway
      .agent()
      .runHook("recall", {})
      .catch((thrown: unknown) => thrown);
    assert.ok(hook instanceof CallError && !(hook instanceof NoDecision));
    assert.deepEqual([hook.message, hook.plugin], ["no answer at the hook recall: PLUGIN_TIMEOUT: too late", "notes"]);
    await assert.rejects(gateway.agent().listTools(), { name: "CallError", message: "no list of tools: PLUGIN_TIMEOUT: too late" });
  });

  test(`${name}: an answer that contradicts itself is malformed, and never goes on`, async () => {
    await using gateway = await start();
    const agent = gateway.agent({ onNoDecision: "go_on" });
    const payload = { tool_name: "t", args: {} };
    const block = { code: "X", message: "no", scope: "step" };
    const { payload: _, ...withoutPayload } = continues(payload).answer;
    const answers: [string, JsonObject, RegExp][] = [
      ["unknown decision", continues(payload, { decision: "perhaps" }).answer, /no decision that this version/],
      ["no payload", withoutPayload, /payload must be an object/],
      ["payload without args", continues({ tool_name: "t" }).answer, /payload\.args is missing/],
      ["continue with a block", continues(payload, { block }).answer, /decision and its block contradict/],
      ["block without a block", continues(payload, { decision: "block" }).answer, /decision and its block contradict/],
      ["answer without a result", continues(payload, { decision: "answer" }).answer, /decision and its result contradict/],
      ["continue with a result", continues(payload, { result: 1 }).answer, /decision and its result contradict/],
    ];
    for (const [what, answer, expected] of answers) {
      gateway.reply({ answer });
      const error = await noDecision(agent.beforeToolCall(OWN, { takesResults: true }));
      assert.equal(error.kind, "malformed", what);
      assert.match(error.message, expected, what);
      assert.ok(!error.isTransient);
    }
  });

  test(`${name}: what isn't a gateway's answer is malformed`, async () => {
    await using gateway = await start();
    const agent = gateway.agent({ onNoDecision: "go_on" });
    const decision = { "hookgate-decision": "continue" };
    const body = JSON.stringify(continues({ tool_name: "t", args: {} }).answer);
    const latin1 = Buffer.from(body.replace("plan", "\xff"), "latin1");
    const garbage = new Uint8Array([0xff, 0xff, 0xff]);
    const replies: Record<string, Reply> = {
      "not JSON": { http: { status: 200, headers: decision, body: "<html>" }, grpc: garbage },
      "JSON that is cut short": { http: { status: 200, headers: decision, body: body.slice(0, -1) }, grpc: garbage },
      "JSON that isn't UTF-8": { http: { status: 200, headers: decision, body: latin1 }, grpc: garbage },
      "another shape": { http: { status: 200, headers: decision, body: '["continue"]' }, grpc: garbage },
      "no header": { http: { status: 200, body }, grpc: garbage },
      "another header": { http: { status: 200, headers: { "hookgate-decision": "block" }, body }, grpc: garbage },
      "another status": { http: { status: 403, headers: decision, body }, grpc: garbage },
      "a redirect": { http: { status: 302, headers: { location: "http://127.0.0.1:1/" }, body: "" }, grpc: garbage },
      "a page for people": { http: { status: 401, body: "<html>log in" }, grpc: { code: status.UNAUTHENTICATED, details: "log in" } },
      "another service's problem": {
        http: { status: 500, body: '{"type":"about:blank","code":"X"}' },
        grpc: { code: status.INTERNAL, details: "x" },
      },
      "an error that claims a decision": {
        http: { status: 403, body: '{"type":"urn:hookgate:error:X","code":"X","decision":"block"}' },
        grpc: { code: status.UNKNOWN, details: "x" },
      },
    };
    for (const [what, reply] of Object.entries(replies)) {
      gateway.reply(reply);
      const error = await noDecision(agent.beforeToolCall(OWN));
      assert.deepEqual([error.kind, error.code], ["malformed", undefined], `${what}: ${error.message}`);
    }
    gateway.reply(replies["not JSON"] as Reply);
    await assert.rejects(agent.runHook("recall", {}), { name: "CallError", kind: "malformed" });
    await assert.rejects(agent.listTools(), { name: "CallError", kind: "malformed" });
  });

  test(`${name}: a gateway behind a proxy that doesn't reach it is unreachable`, async () => {
    await using gateway = await start();
    gateway.reply({ http: { status: 502, body: "<html>bad gateway" }, grpc: { code: status.UNAVAILABLE, details: "bad gateway" } });
    const error = await noDecision(gateway.agent().beforeToolCall(OWN));
    assert.deepEqual([error.kind, error.code, error.isTransient], ["unreachable", undefined, true]);
  });

  test(`${name}: a lost connection is unreachable`, async () => {
    await using gateway = await start();
    gateway.reply({ dropConnection: true });
    const error = await noDecision(gateway.agent().beforeToolCall(OWN));
    assert.equal(error.kind, "unreachable");
    assert.ok(error.cause instanceof Error);
  });

  test(`${name}: a gateway that doesn't answer in time is a timeout, and the call is cancelled`, async () => {
    await using gateway = await start();
    gateway.reply({ hang: true });
    const error = await noDecision(gateway.agent().beforeToolCall(OWN, { timeoutMs: 150 }));
    assert.deepEqual([error.kind, error.isTransient], ["timeout", true]);
    assert.equal(error.message, "no decision at beforeToolCall: no answer from the gateway within 150 ms");
    await gateway.calls[0]?.abandoned;
  });

  test(`${name}: a signal cancels the call, which throws its reason`, async () => {
    await using gateway = await start();
    const controller = new AbortController();
    const reason = new Error("the user pressed stop");
    gateway.reply(() => {
      controller.abort(reason);
      return { hang: true };
    });
    const agent = gateway.agent({ onNoDecision: "go_on" });
    await assert.rejects(agent.beforeToolCall(OWN, { signal: controller.signal }), reason);
    await gateway.calls[0]?.abandoned;
    await assert.rejects(agent.beforeToolCall(OWN, { signal: controller.signal }), reason);
    assert.equal(gateway.calls.length, 1);
  });

  test(`${name}: a signal cancels any number of calls, and isn't said to leak`, async (t) => {
    await using gateway = await start();
    const warnings: Error[] = [];
    const warned = (warning: Error) => warnings.push(warning);
    process.on("warning", warned);
    t.after(() => process.off("warning", warned));
    const controller = new AbortController();
    const { signal } = controller;
    const agent = gateway.agent();
    await Promise.all(Array.from({ length: 30 }, () => agent.beforeToolCall(OWN, { signal })));
    gateway.reply(() => {
      if (gateway.calls.length === 60) controller.abort();
      return { hang: true };
    });
    const calls = await Promise.allSettled(Array.from({ length: 30 }, () => agent.beforeToolCall(OWN, { signal })));
    assert.ok(calls.every((call) => call.status === "rejected" && call.reason === signal.reason));
    await new Promise(setImmediate);
    assert.deepEqual(warnings, []);
  });

  test(`${name}: an agent that may go on does so with its own payload, where it may`, async () => {
    await using gateway = await start();
    gateway.reply({ error: { code: "PLUGIN_TIMEOUT", status: 504, detail: "late" } });
    const agent = gateway.agent({ onNoDecision: { beforeToolCall: "go_on" } });
    const { noDecision: why, ...answer } = await agent.beforeToolCall(OWN);
    const facts = { notices: [], steps: [], planDigest: "", revision: 0, requestId: "" };
    assert.deepEqual(answer, { decision: "continue", payload: OWN, modified: false, ...facts });
    assert.deepEqual([why?.code, why?.point], ["PLUGIN_TIMEOUT", "beforeToolCall"]);
    await noDecision(agent.beforeToolCall(OWN, { onNoDecision: "fail" }));
    gateway.reply({ error: { code: "PLUGIN_ERROR", status: 502, detail: "thrown" } });
    await noDecision(agent.beforeToolCall(OWN));
    gateway.reply({ error: { code: "PLUGIN_TIMEOUT", status: 504, detail: "late" } });
    await noDecision(agent.beforeResponse({ content: "c" }));
    assert.ok((await agent.beforeResponse({ content: "c" }, { onNoDecision: "go_on" })).noDecision);
    gateway.reply(continues({ content: "c" }));
    assert.equal((await agent.beforeResponse({ content: "c" })).noDecision, undefined);
  });

  test(`${name}: names that a later gateway may use don't make an answer malformed`, async () => {
    await using gateway = await start();
    const step = { plugin: "p", binding: "b", outcome: "pondered", reason: "tired", duration_us: 1 };
    gateway.reply(continues({ tool_name: "t", args: {} }, { steps: [step], notices: [{ kind: "shout", message: "m" }], later: 1 }));
    const answer = await gateway.agent().beforeToolCall(OWN);
    assert.deepEqual(answer.steps, [{ plugin: "p", binding: "b", outcome: "unknown", reason: "unknown", durationUs: 1 }]);
    assert.deepEqual(answer.notices, [{ kind: "unknown", message: "m" }]);
  });
}

for (const [name, start, connect] of [
  ["grpc", startGrpc, (url: string): GatewayClient => new Agent(url, { token: "t" })],
  ["http", startHttp, (url: string): GatewayClient => new FetchAgent(url, { token: "t" })],
] as const) {
  test(`${name}: an unreachable gateway is no decision, unless the agent may go on`, async () => {
    const gateway = await start();
    await gateway.close();
    using agent = connect(gateway.url);
    const error = await noDecision(agent.beforeToolCall(OWN));
    assert.deepEqual([error.kind, error.isTransient, error.code], ["unreachable", true, undefined]);
    assert.match(error.message, /ECONNREFUSED/);
    const answer = await agent.beforeToolCall(OWN, { onNoDecision: "go_on" });
    assert.deepEqual(answer.payload, OWN);
    assert.equal(answer.noDecision?.kind, "unreachable");
    await assert.rejects(agent.runHook("recall", {}), { name: "CallError", kind: "unreachable" });
  });
}
