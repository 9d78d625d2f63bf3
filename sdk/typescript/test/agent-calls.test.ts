import assert from "node:assert/strict";
import { test } from "node:test";
import { propagation } from "@opentelemetry/api";
import type { BeforeLlmRequestPayload, Caller } from "../src/agent/index.js";
import { FACTS, continues, startGrpc, startHttp } from "./support/fake-gateway.js";

for (const [name, start] of Object.entries({ grpc: startGrpc, http: startHttp })) {
  test(`${name}: a continue has the returned payload and the facts`, async () => {
    await using gateway = await start();
    const step = { plugin: "p", binding: "b", outcome: "modified", duration_us: 12, changes: { args: { n: 9007199254740993n } } };
    const notice = { plugin: "p", kind: "warn", code: "C", message: "careful", details: { n: 1 } };
    gateway.reply(continues({ tool_name: "patched", args: { cmd: "ls -l" } }, { modified: true, steps: [step], notices: [notice] }));
    const answer = await gateway.agent().beforeToolCall({ toolName: "own", args: { cmd: "ls" } }, { trace: true });
    assert.deepEqual(answer, {
      decision: "continue",
      payload: { toolName: "patched", args: { cmd: "ls -l" } },
      modified: true,
      steps: [{ plugin: "p", binding: "b", outcome: "modified", durationUs: 12, changes: { args: { n: 9007199254740993n } } }],
      notices: [notice],
      planDigest: "plan",
      revision: 7,
      requestId: "id",
    });
  });

  test(`${name}: every point is called with every member, and gives it back`, async () => {
    await using gateway = await start();
    const agent = gateway.agent();
    const request: BeforeLlmRequestPayload = {
      text: "hi",
      images: [
        { data: new Uint8Array([0, 255, 10]), mimeType: "image/png", filename: "a.png" },
        { url: "https://x/y", mimeType: "image/gif" },
      ],
      files: [{ data: new Uint8Array(), mimeType: "text/plain" }],
      systemPrompt: "be kind",
      messages: [{ role: "user", id: 9007199254740993n }],
      tools: [],
      extra: {},
    };
    const call = { toolName: "t", args: null, callId: "c", extra: { a: [] } };
    const result = { toolName: "t", result: "", success: false, args: 0, callId: "c", durationMs: 12, extra: {} };
    const usage = { input: 3, output: 2 ** 40 };
    const origin = { provider: "p", model: "m", router: "o", stopReason: "s" };
    const response = { content: "c", reasoning: "r", ...origin, tokenUsage: usage, extra: { x: 1 } };
    assert.deepEqual((await agent.beforeLlmRequest(request)).payload, request);
    assert.deepEqual((await agent.beforeToolCall(call)).payload, call);
    assert.deepEqual((await agent.afterToolResult(result)).payload, result);
    assert.deepEqual((await agent.beforeResponse(response)).payload, response);
    const methods = ["beforeLlmRequest", "beforeToolCall", "afterToolResult", "beforeResponse"];
    assert.deepEqual(
      gateway.calls.map(({ method }) => method),
      methods,
    );
    assert.deepEqual(gateway.calls[0]?.body, {
      context: {},
      payload: {
        text: "hi",
        images: [
          { data: "AP8K", mime_type: "image/png", filename: "a.png" },
          { url: "https://x/y", mime_type: "image/gif" },
        ],
        files: [{ data: "", mime_type: "text/plain" }],
        system_prompt: "be kind",
        messages: [{ role: "user", id: 9007199254740993n }],
        tools: [],
        extra: {},
      },
    });
    const sent = { tool_name: "t", result: "", success: false, args: 0, call_id: "c", duration_ms: 12, extra: {} };
    assert.deepEqual(gateway.calls[2]?.body["payload"], sent);
  });

  test(`${name}: integers of any size and half surrogates survive or become well-formed`, async () => {
    await using gateway = await start();
    const args = { id: 12345678901234567890123n, min: -9223372036854775808n, text: "a\ud83d", "\udca9": "😀" };
    const context = { sessionId: "s\ud83d", labels: { "l\ud83d": "\udca9" } };
    const { payload } = await gateway.agent().beforeToolCall({ toolName: "\ud83d", args, callId: "c\udca9" }, { context });
    const sent = { id: 12345678901234567890123n, min: -9223372036854775808n, text: "a\ufffd", "\ufffd": "😀" };
    assert.deepEqual(payload, { toolName: "\ufffd", args: sent, callId: "c\ufffd" });
    assert.deepEqual(gateway.calls[0]?.body["context"], { session_id: "s\ufffd", labels: { "l\ufffd": "\ufffd" } });
  });

  test(`${name}: a large payload arrives whole`, async () => {
    await using gateway = await start();
    const data = new Uint8Array(6 << 20).map((_, index) => index % 251);
    const { payload } = await gateway.agent().beforeLlmRequest({ text: "t", images: [{ data, mimeType: "x/y" }] });
    assert.deepEqual(Buffer.from(payload.images?.[0]?.data ?? []), Buffer.from(data));
  });

  test(`${name}: a plugin's result comes only to an agent that takes results`, async () => {
    await using gateway = await start();
    gateway.reply(continues({ tool_name: "t", args: {} }, { decision: "answer", result: null }));
    const agent = gateway.agent();
    const taken = await agent.beforeToolCall({ toolName: "t", args: {} }, { takesResults: true });
    assert.equal(taken.decision, "answer");
    assert.equal(taken.decision === "answer" && taken.result, null);
    assert.deepEqual(taken.payload, { toolName: "t", args: {} });
    assert.equal(gateway.calls[0]?.body["takes_results"], true);
    await assert.rejects(agent.beforeToolCall({ toolName: "t", args: {} }), { name: "NoDecision", kind: "malformed" });
  });

  test(`${name}: a hook gives contributions`, async () => {
    await using gateway = await start();
    const contributions = [
      { plugin: "notes", kind: "memory", value: { content: "tea" } },
      { kind: "note", value: 9007199254740993n },
    ];
    gateway.reply({ answer: { contributions, ...FACTS, notices: [], steps: [] } });
    const answer = await gateway.agent().runHook("recall", { message: "hi" }, { expectPlanDigest: "d", context: { runId: "r" } });
    assert.deepEqual(answer, { contributions, notices: [], steps: [], planDigest: "plan", revision: 7, requestId: "id" });
    const { method, body } = gateway.calls[0] ?? assert.fail("no call");
    assert.equal(method, "runHook");
    assert.deepEqual(body, { context: { run_id: "r" }, hook: "recall", body: { message: "hi" }, expect_plan_digest: "d" });
  });

  test(`${name}: tools are listed`, async () => {
    await using gateway = await start();
    const schema = { type: "object", properties: {} };
    const origin = { plugin: "memory", binding: "b" };
    const tools = [
      { name: "memory.retain", description: "Remembers.", input_schema: schema, annotations: { read_only_hint: false }, ...origin },
      { name: "x", description: "X.", input_schema: schema },
    ];
    gateway.reply({ answer: { tools, plan_digest: "plan", revision: 3 } });
    assert.deepEqual(await gateway.agent().listTools(), {
      tools: [
        { name: "memory.retain", description: "Remembers.", inputSchema: schema, annotations: { readOnlyHint: false }, ...origin },
        { name: "x", description: "X.", inputSchema: schema },
      ],
      planDigest: "plan",
      revision: 3,
    });
    assert.equal(gateway.calls[0]?.headers["authorization"], "Bearer token");
  });

  test(`${name}: context, options and headers are sent`, async () => {
    await using gateway = await start();
    const ofAgent = { agentId: "a", depth: 2, tenant: "acme", labels: { x: "1", y: "1" } };
    const agent = gateway.agent({ context: ofAgent, trace: true, timeoutMs: 4000 });
    const context = { sessionId: "s", correlationId: "mine-1", labels: { y: "2" } };
    await agent.beforeResponse({ content: "c" }, { context, expectPlanDigest: "plan" });
    const { headers, body } = gateway.calls[0] ?? assert.fail("no call");
    assert.deepEqual(body, {
      context: { session_id: "s", depth: 2, agent_id: "a", labels: { x: "1", y: "2" } },
      payload: { content: "c" },
      expect_plan_digest: "plan",
      trace: true,
    });
    assert.equal(headers["authorization"], "Bearer token");
    assert.equal(headers["x-request-id"], "mine-1");
    assert.equal(headers["traceparent"], undefined);
    assert.equal(headers["hookgate-depth"], undefined);
    const told = name === "http" ? Number(headers["hookgate-timeout-ms"]) : Number(headers["grpc-timeout"]) - Date.now();
    assert.ok(told > 2000 && told <= 4000, `${told}`);
  });

  test(`${name}: without a token no header is sent`, async () => {
    await using gateway = await start();
    await gateway.agent({ token: undefined }).beforeResponse({ content: "c" });
    assert.equal(gateway.calls[0]?.headers["authorization"], undefined);
  });

  test(`${name}: a plugin's call keeps its caller's time, trace and depth`, async () => {
    await using gateway = await start();
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const caller: Caller = { timeLeftMs: 3000, traceparent, tracestate: "a=1", depth: 2 };
    await gateway.agent().beforeResponse({ content: "c" }, { caller });
    const { headers } = gateway.calls[0] ?? assert.fail("no call");
    assert.equal(headers["traceparent"], traceparent);
    assert.equal(headers["tracestate"], "a=1");
    assert.equal(headers["hookgate-depth"], "2");
    const told = name === "http" ? Number(headers["hookgate-timeout-ms"]) : Number(headers["grpc-timeout"]) - Date.now();
    assert.ok(told > 1000 && told <= 3000, `${told}`);
    const late = gateway.agent().beforeResponse({ content: "c" }, { caller: { timeLeftMs: 0 } });
    await assert.rejects(late, { name: "NoDecision", kind: "timeout" });
    assert.equal(gateway.calls.length, 1);
  });

  test(`${name}: the active span is the parent, before that of the caller, and baggage stays here`, async (t) => {
    const traceparent = "00-11111111111111111111111111111111-2222222222222222-01";
    propagation.setGlobalPropagator({
      inject: (_context, carrier, setter) => {
        setter.set(carrier, "traceparent", traceparent);
        setter.set(carrier, "baggage", "user=1");
      },
      extract: (context) => context,
      fields: () => ["traceparent", "baggage"],
    });
    t.after(() => propagation.disable());
    await using gateway = await start();
    await gateway.agent().beforeResponse({ content: "c" }, { caller: { traceparent: "other", tracestate: "a=1" } });
    const { headers } = gateway.calls[0] ?? assert.fail("no call");
    assert.equal(headers["traceparent"], traceparent);
    assert.equal(headers["tracestate"], undefined);
    assert.equal(headers["baggage"], undefined);
  });

  test(`${name}: what can't be sent is named, and isn't sent`, async () => {
    await using gateway = await start();
    const agent = gateway.agent({ onNoDecision: "go_on" });
    const call = (payload: object) => agent.beforeToolCall({ toolName: "t", args: {}, ...payload } as never);
    const result = (payload: object) => agent.afterToolResult({ toolName: "t", result: {}, ...payload } as never);
    const request = (image: object) => agent.beforeLlmRequest({ text: "", images: [{ mimeType: "a/b", ...image } as never] });
    const inContext = (context: object) => agent.beforeResponse({ content: "" }, { context: context as never });
    const cases: [RegExp, () => Promise<unknown>][] = [
      [/^JsonError: payload\.args\.list\[1\] is NaN/, () => call({ args: { list: [1, NaN] } })],
      [/^JsonError: payload\.args\.id is 9007199254740992, an integer beyond/, () => call({ args: { id: 2 ** 53 } })],
      [/^TypeError: payload\.args is missing/, () => call({ args: undefined })],
      [/^TypeError: payload\.toolName is missing/, () => call({ toolName: undefined })],
      [/^TypeError: payload\.tool_name is not a member; known here: toolName, args, callId, extra/, () => call({ tool_name: "t" })],
      [/^TypeError: payload\.extra must be an object, is an array/, () => call({ extra: [] })],
      [/^TypeError: payload\.callId must be a string, is null/, () => call({ callId: null })],
      [/^TypeError: payload\.success is missing/, () => result({})],
      [/^TypeError: payload\.durationMs must be a whole number/, () => result({ success: true, durationMs: -1 })],
      [/^TypeError: payload\.images\[0\] must have either data or url/, () => request({})],
      [/^TypeError: payload\.images\[0\] must have either data or url/, () => request({ data: new Uint8Array(), url: "x" })],
      [/^TypeError: payload\.images\[0\]\.data must be a Uint8Array/, () => request({ data: "x" })],
      [/^TypeError: payload must be an object/, () => agent.beforeResponse(undefined as never)],
      [/^TypeError: context\.sessionId must be a string/, () => inContext({ sessionId: 1 })],
      [/^TypeError: context\.session_id is not a member/, () => inContext({ session_id: "s" })],
      [/^TypeError: context\.labels\.a must be a string/, () => inContext({ labels: { a: 1 } })],
      [/^TypeError: context\.depth must be a whole number from 0 to 4294967295/, () => inContext({ depth: -1 })],
      [/^TypeError: context\.correlationId must have 1 to 128 visible/, () => inContext({ correlationId: "a b" })],
      [/^TypeError: timeoutMs must be more than 0/, () => agent.beforeResponse({ content: "" }, { timeoutMs: 0 })],
      [/^TypeError: the hook's name must match/, () => agent.runHook("../tools", {})],
      [/^TypeError: body must be an object/, () => agent.runHook("recall", [])],
    ];
    for (const [expected, attempt] of cases) {
      await assert.rejects(attempt, (error) => {
        assert.match(String(error), expected);
        return true;
      });
    }
    assert.equal(gateway.calls.length, 0);
  });

  test(`${name}: measured milliseconds are rounded`, async () => {
    await using gateway = await start();
    await gateway.agent().afterToolResult({ toolName: "t", result: 1, success: true, durationMs: 12.6 });
    assert.equal((gateway.calls[0]!.body["payload"] as { duration_ms: number }).duration_ms, 13);
  });
}
