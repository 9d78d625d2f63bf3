import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import {
  type BeforeToolCallPayload,
  PluginError,
  ToolError,
  answer,
  cancel,
  contribute,
  definePlugin,
  proceed,
  tool,
} from "../src/index.js";
import { CallError, TestPlugin } from "../src/testing/index.js";

const base = { name: "p", version: "1.0.0" };
const info = (code: string) => ({ kind: "info", code, message: "" }) as const;

/** Whether the error is a `CallError` with this code and text. */
function fails(code: string, message: string | RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof CallError, String(error));
    assert.equal(error.code, code);
    if (message instanceof RegExp) assert.match(error.message, message);
    else assert.equal(error.message, message);
    return true;
  };
}

test("calls reach the handlers, and replies are read as they were written", async () => {
  const plugin = await TestPlugin.start(
    definePlugin({
      ...base,
      config: z.strictObject({ refused: z.array(z.string()).default([]) }),
      tenantConfig: z.strictObject({ suffix: z.string().default("") }),
      beforeLlmRequest: (call) =>
        proceed({ text: call.text.trim(), images: [], messages: [...(call.messages ?? []), 1n << 60n], extra: { seen: true } }),
      beforeToolCall(call, ctx) {
        if (ctx.config.refused.includes(call.toolName)) return cancel("NO", "no", { scope: "run", retryAfterMs: 1.5 });
        return call.toolName === "cached" ? answer([1]) : proceed({ args: { args: call.args, suffix: ctx.tenantConfig.suffix } });
      },
      afterToolResult: ({ success, durationMs, result, args }) => proceed({ result: [success, durationMs, result, args] }),
      beforeResponse: ({ content, tokenUsage }) =>
        proceed(
          { content: `${content}${tokenUsage?.input}` },
          {
            notices: [
              { ...info("A"), details: { n: 1 } },
              { kind: "warn", message: "b" },
            ],
          },
        ),
    }),
    { refused: ["shell"] },
  );
  const request = await plugin.beforeLlmRequest({ text: " hi ", messages: ["m"], images: [{ url: "u", mimeType: "image/png" }] });
  assert.deepEqual(request.patch, { text: "hi", images: [], messages: ["m", 1n << 60n], extra: { seen: true } });
  assert.deepEqual((await plugin.beforeToolCall({ toolName: "shell" })).cancelled, {
    code: "NO",
    message: "no",
    scope: "run",
    retryAfterMs: 2,
    result: undefined,
  });
  assert.deepEqual((await plugin.beforeToolCall({ toolName: "cached" })).cancelled?.result, [1]);
  const call = await plugin.withTenantConfig({ suffix: "!" }).beforeToolCall({ toolName: "t", args: { id: 2n ** 60n } });
  assert.deepEqual([call.cancelled, call.patch], [undefined, { args: { args: { id: 2n ** 60n }, suffix: "!" } }]);
  assert.deepEqual((await plugin.beforeToolCall({ toolName: "t" })).patch, { args: { args: {}, suffix: "" } });
  assert.deepEqual((await plugin.afterToolResult({ toolName: "t", result: "r", durationMs: 7, args: 1 })).patch, {
    result: [true, 7, "r", 1],
  });
  const response = await plugin.beforeResponse({ content: "c", tokenUsage: { input: 3, output: 4 } });
  assert.deepEqual(response.patch, { content: "c3" });
  assert.deepEqual(response.notices, [
    { kind: "info", message: "", code: "A", details: { n: 1 } },
    { kind: "warn", message: "b" },
  ]);
});

test("handles differ in their context, their time and their signal", async () => {
  const plugin = await TestPlugin.start(
    definePlugin({
      ...base,
      async beforeToolCall(_, { tenant, operator, caller, chainResult, depth, traceparent, signal, timeLeftMs }) {
        if (caller.labels["wait"] !== undefined) await new Promise((resolve) => signal.addEventListener("abort", resolve));
        return proceed({
          args: { tenant, operator, session: caller.sessionId, chainResult, depth, traceparent, timeLeftMs, aborted: signal.aborted },
        });
      },
      beforeLlmRequest: (_, { caller }) => proceed({ extra: { exchange: caller.exchangeId, replay: caller.replay, part: caller.part } }),
    }),
    {},
  );
  const call = async (handle: typeof plugin) => (await handle.beforeToolCall({ toolName: "t" })).patch?.args as Record<string, unknown>;
  assert.deepEqual(await call(plugin), { tenant: "test-tenant", operator: "test-operator", depth: 1, aborted: false });
  const other = plugin.withTenant("acme").withContext({ sessionId: "s", operator: "Ada", traceparent: "00-a-b-01" });
  assert.deepEqual(await call(other), {
    tenant: "acme",
    operator: "Ada",
    session: "s",
    depth: 1,
    traceparent: "00-a-b-01",
    aborted: false,
  });
  const place = async (handle: typeof plugin) => (await handle.beforeLlmRequest({})).patch?.extra;
  assert.deepEqual(await place(plugin), { replay: false, part: false });
  assert.deepEqual(await place(plugin.withContext({ exchangeId: "e", replay: true })), { exchange: "e", replay: true, part: false });
  assert.deepEqual(await place(plugin.withContext({ exchangeId: "e", part: true })), { exchange: "e", replay: false, part: true });
  const observer = await call(plugin.withChainResult({ decision: "block", code: "NO" }));
  assert.deepEqual(observer["chainResult"], { decision: "block", code: "NO" });
  const waiting = plugin.withContext({ labels: { wait: "" } });
  const late = await call(waiting.withTimeLeft(20));
  assert.ok(Number(late["timeLeftMs"]) <= 20 && late["aborted"] === true);
  const hangUp = new AbortController();
  const answered = call(waiting.withSignal(hangUp.signal));
  await new Promise((resolve) => setImmediate(resolve));
  hangUp.abort();
  assert.equal((await answered)["aborted"], true);
});

test("errors have the code that a gateway sees, and their cause", async () => {
  const thrown = new TypeError("broken");
  const throwing = (error: unknown) => definePlugin({ ...base, beforeResponse: () => Promise.reject(error) });
  for (const [error, code] of [
    [thrown, "ABORTED"],
    [PluginError.unavailable("away"), "UNAVAILABLE"],
    [PluginError.invalid("odd"), "INVALID_ARGUMENT"],
  ] as const) {
    const plugin = await TestPlugin.start(throwing(error), {});
    await assert.rejects(
      plugin.beforeResponse({ content: "" }),
      (found: CallError) => fails(code, error.message)(found) && found.cause === error,
    );
  }
  const plugin = await TestPlugin.start(throwing(thrown), {});
  await assert.rejects(plugin.beforeToolCall({ toolName: "t" }), fails("UNIMPLEMENTED", "p does not answer at before_tool_call"));
  await assert.rejects(plugin.onHook("recall"), fails("UNIMPLEMENTED", "p does not answer at recall"));
  await assert.rejects(plugin.runTool("t"), fails("NOT_FOUND", "p does not provide the tool t"));
  await plugin.shutdown();
  await assert.rejects(plugin.beforeResponse({ content: "" }), fails("FAILED_PRECONDITION", "no instance for this config digest"));
});

test("a start fails as a gateway's does", async () => {
  const config = z.strictObject({ key: z.string() });
  const handler = { beforeResponse: () => proceed() };
  const start = (definition: object, value: object = {}) =>
    TestPlugin.start(definePlugin({ ...base, ...handler, ...definition } as never), value as never);
  await assert.rejects(start({ config }), fails("INVALID_ARGUMENT", /^config: field `key`/));
  const initialize = () => Promise.reject(PluginError.config("key", "at least 16 characters"));
  await assert.rejects(
    start({ config, initialize }, { key: "a" }),
    fails("INVALID_ARGUMENT", "config field `key`: at least 16 characters"),
  );
  const hooks = (...names: string[]) => ({ hooks: Object.fromEntries(names.map((name) => [name, {}])), onHook: () => contribute() });
  const many = Array.from({ length: 65 }, (_, number) => `hook_${number}`);
  const cases: [object, RegExp][] = [
    [{ config, tenantConfig: config }, /^`config` and `tenantConfig` both have `key`: rename one$/],
    [hooks("Recall"), /^`hooks` has `Recall`: the name of a hook is/],
    [hooks("before_response"), /this is the name of a point/],
    [hooks(...many), /^`hooks` has 65 hooks: keep it within 64$/],
    [{ toolNames: ["*"] }, /has only wildcards/],
    [{ toolNames: ["p.["] }, /^`toolNames` has `p.\[`: it has a `\[` without its `\]`/],
  ];
  for (const [definition, message] of cases) await assert.rejects(start(definition, { key: "a" }), fails("FAILED_PRECONDITION", message));
  await start({ ...hooks("a", "b"), toolNames: ["p.*"] });
});

test("tools are listed and run, and a refusal is the model's error", async () => {
  const divide = tool({
    name: "p.divide",
    description: "Divides.",
    input: z.strictObject({ a: z.number(), b: z.number() }),
    annotations: { readOnlyHint: true },
    run({ a, b }) {
      if (b === 0) throw new ToolError("Nobody divides by zero.", "DIVIDED_BY_ZERO");
      if (a < 0) throw new Error("broken");
      return a === 0 ? undefined : { quotient: a / b };
    },
  });
  const plugin = await TestPlugin.start(definePlugin({ ...base, tools: [divide] }), {});
  assert.deepEqual(
    plugin.tools.map(({ name, description, annotations }) => [name, description, annotations]),
    [["p.divide", "Divides.", { readOnlyHint: true }]],
  );
  assert.equal(plugin.tools[0]?.inputSchema["type"], "object");
  assert.deepEqual(await plugin.runTool("p.divide", { a: 6, b: 3 }), { quotient: 2 });
  assert.equal(await plugin.runTool("p.divide", { a: 0, b: 3 }), null);
  await assert.rejects(plugin.runTool("p.divide", { a: 1, b: 0 }), {
    name: "ToolError",
    code: "DIVIDED_BY_ZERO",
    message: "Nobody divides by zero.",
  });
  await assert.rejects(plugin.runTool("p.divide"), { name: "ToolError", code: "TOOL_ARGS_INVALID" });
  await assert.rejects(plugin.runTool("p.divide", { a: -1, b: 1 }), fails("ABORTED", "broken"));
});

test("each fault of a tool is named", async () => {
  const run = () => null;
  const right = { name: "p.a", description: "Does a.", input: z.object({}), run };
  const start = (...tools: object[]) =>
    TestPlugin.start(definePlugin({ ...base, toolNames: ["p.*"], tools: () => tools.map((each) => tool({ ...right, ...each })) }), {});
  const cases: [object[], RegExp][] = [
    [[{}, {}], /^`tools` names `p.a` twice/],
    [Array.from({ length: 65 }, () => ({})), /^`tools` has 65 tools/],
    [[{ name: "q.a" }], /^no glob in `toolNames` covers the tool `q.a`$/],
    [[{ name: "p.a b" }], /a name must be 1 to 128 letters/],
    [[{ description: "" }], /^`p.a` needs a `description`/],
    [[{ annotations: { title: "x".repeat(257) } }], /^the `title` of `p.a` is longer than 256 bytes$/],
    [[{ input: z.string() }], /^the `input` of `p.a` must be an object$/],
  ];
  for (const [tools, message] of cases) await assert.rejects(start(...tools), fails("FAILED_PRECONDITION", message));
  assert.equal((await start({}, { name: "p.b" })).tools.length, 2);
});

test("a hook's contributions are read, and checked as a gateway checks them", async () => {
  const plugin = await TestPlugin.start(
    definePlugin({
      ...base,
      hooks: { recall: {} },
      onHook: ({ body }, ctx) => {
        const { kind = "memory", count = 1, size = 1 } = body as { kind?: string; count?: number; size?: number };
        return contribute(
          Array.from({ length: count }, () => ({ kind, value: "x".repeat(size) })),
          { notices: [info(ctx.tenant)] },
        );
      },
    }),
    {},
  );
  const reply = await plugin.withTenant("acme").onHook("recall", { size: 2 });
  assert.deepEqual([reply.contributions, reply.notices], [[{ kind: "memory", value: "xx" }], [info("acme")]]);
  assert.equal((await plugin.onHook("recall", { size: 4_186_000 })).contributions.length, 1);
  await assert.rejects(
    plugin.onHook("recall", { kind: "A-B" }),
    fails("INTERNAL", "/contributions/0 has the kind `A-B` outside [a-z][a-z0-9_]{0,63}"),
  );
  await assert.rejects(plugin.onHook("recall", { count: 65 }), fails("INTERNAL", "65 contributions, 64 are allowed"));
  await assert.rejects(
    plugin.onHook("recall", { size: 4_186_112 }),
    fails("INTERNAL", /^contributions of \d+ bytes, 4186112 are allowed$/),
  );
});

test("a reply that a gateway rejects is an error", async () => {
  const replies = {
    many: proceed({}, { notices: Array.from({ length: 17 }, () => info("A")) }),
    large: proceed({}, { notices: Array.from({ length: 3 }, () => ({ ...info("A"), details: { text: "x".repeat(4000) } })) }),
    code: proceed({}, { notices: [info("A"), info("1")] }),
    details: proceed({}, { notices: [{ ...info("A"), details: { text: "x".repeat(4096) } }] }),
    list: proceed({}, { notices: [{ ...info("A"), details: [1] }] }),
    name: proceed({ toolName: "" }),
    cancel: cancel("NO", "no", { notices: [info("1")] }),
  };
  const plugin = await TestPlugin.start(
    definePlugin({ ...base, beforeToolCall: (call) => replies[call.toolName as keyof typeof replies] }),
    {},
  );
  const cases: [keyof typeof replies, RegExp][] = [
    ["many", /^17 notices, 16 are allowed$/],
    ["large", /^notices of 12\d{3} bytes, 8192 are allowed$/],
    ["code", /^\/notices\/1 has the code `1` outside/],
    ["details", /^\/notices\/0 has details of 4107 bytes, 4096 are allowed$/],
    ["list", /^\/notices\/0 has details that are not a JSON object$/],
    ["name", /^`toolName` of the patch must have 1 to 256 bytes$/],
  ];
  for (const [toolName, message] of cases) await assert.rejects(plugin.beforeToolCall({ toolName }), fails("INTERNAL", message));
  assert.equal((await plugin.beforeToolCall({ toolName: "cancel" })).cancelled?.code, "NO", "of a cancel, the rest is left out");
});

test("members that aren't read are left out, but not of a call of a tool", async () => {
  const seen: BeforeToolCallPayload[] = [];
  const double = tool({ name: "p.double", description: "d", input: z.object({ n: z.number() }), run: ({ n }) => n * 2 });
  const plugin = definePlugin({
    ...base,
    points: { beforeToolCall: { reads: ["extra"] }, beforeLlmRequest: { reads: ["systemPrompt"] } },
    tools: [double],
    beforeToolCall(call) {
      seen.push(call);
      return proceed({ args: { b: 2 } });
    },
    beforeLlmRequest: ({ text, systemPrompt }) => cancel("SEEN", `${text}/${systemPrompt}`),
  });
  const tested = await TestPlugin.start(plugin, {});
  const reply = await tested.beforeToolCall({ toolName: "fs.read", args: { a: 1 }, callId: "1", extra: { x: 1 } });
  const { toolName, args, callId, extra } = seen[0]!;
  assert.deepEqual([toolName, args, callId, extra], ["fs.read", null, "1", { x: 1 }]);
  assert.deepEqual(reply.patch, { args: { b: 2 } }, "what isn't read may be replaced");
  assert.equal((await tested.beforeLlmRequest({ text: "hi", systemPrompt: "be brief" })).cancelled?.message, "/be brief");
  assert.equal(await tested.runTool("p.double", { n: 2 }), 4);
});

test("with access `read` there is no patch and no answer", async () => {
  const start = (reply: () => never) =>
    TestPlugin.start(definePlugin({ ...base, points: { beforeToolCall: { access: "read" } }, beforeToolCall: reply }), {});
  for (const [reply, message] of [
    [() => proceed({ args: 1 }), /returned a patch, but the plugin offers it with access `read`$/],
    [() => cancel("NO", "", { patch: { args: 1 } }), /^a patch is forbidden: p offers beforeToolCall with access `read`$/],
    [() => answer(1), /^`answer` is forbidden: p offers/],
  ] as const) {
    await assert.rejects((await start(reply as never)).beforeToolCall({ toolName: "t" }), fails("INTERNAL", message));
  }
  const elsewhere = await TestPlugin.start(definePlugin({ ...base, beforeResponse: () => answer(1) }), {});
  await assert.rejects(
    elsewhere.beforeResponse({ content: "" }),
    fails("INTERNAL", "`answer` is only for beforeToolCall, not for beforeResponse"),
  );
});

test("replies that are too large, and media without content or type, are refused", async () => {
  const plugin = await TestPlugin.start(
    definePlugin({
      name: "large",
      version: "1.0.0",
      beforeLlmRequest: ({ text }) =>
        text === "media" ? proceed({ images: [{ url: "", mimeType: "image/png" }] }) : proceed({ text: "x".repeat(5 << 20) }),
    }),
    {},
  );
  await assert.rejects(plugin.beforeLlmRequest({ text: "media" }), /`images\[0\].url` of the patch is empty/);
  await assert.rejects(plugin.beforeLlmRequest({ text: "large" }), /the reply has \d+ bytes, 4194304 are allowed/);
});

test("a result that the agent wouldn't get is refused: it is too large beside the payload", async () => {
  const result = "x".repeat(2 << 20);
  const large = tool({ name: "large.make", description: "Makes one.", input: z.object({ text: z.string() }), run: () => result });
  const plugin = await TestPlugin.start(
    definePlugin({ name: "large", version: "1.0.0", tools: [large], beforeToolCall: () => answer(result) }),
    {},
  );
  assert.equal((await plugin.beforeToolCall({ toolName: "t" })).cancelled?.result, result);
  const args = { text: "x".repeat(3 << 20) };
  const refused = fails("INTERNAL", /^the result has 2097154 bytes, 11140\d\d are allowed beside a payload of 31457\d\d bytes$/);
  await assert.rejects(plugin.beforeToolCall({ toolName: "t", args }), refused);
  assert.equal(await plugin.runTool("large.make", { text: "" }), result);
  await assert.rejects(plugin.runTool("large.make", args), refused);
});
