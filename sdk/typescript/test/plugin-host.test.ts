import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { z } from "zod";
import { type Context, PluginError, ToolError, answer, cancel, contribute, definePlugin, proceed, tool } from "../src/index.js";
import { bytes, served } from "./support/gateway-client.js";

const base = { name: "p", version: "1.0.0" };
const text = (json: Uint8Array) => Buffer.from(json).toString();

test("a call with an unknown digest is answered NOT_INITIALIZED", async (t) => {
  const { client } = await served(t, definePlugin({ ...base, beforeToolCall: () => proceed() }));
  const error = await client.failure(client.toolCall("a", {}));
  assert.equal(error.code, status.FAILED_PRECONDITION);
  assert.deepEqual(error.metadata.get("hookgate-reason"), ["NOT_INITIALIZED"]);
});

test("each call gets the configuration and the state of its digest", async (t) => {
  const plugin = definePlugin({
    ...base,
    config: z.strictObject({ n: z.number() }),
    initialize: ({ n }) => ({ twice: n * 2 }),
    beforeToolCall: (_, ctx) => cancel("N", `${ctx.config.n} ${ctx.state.twice}`),
  });
  const { client } = await served(t, plugin);
  await Promise.all([client.initialize("one", { n: 1 }), client.initialize("two", { n: 2 })]);
  const messages = await Promise.all(["one", "two"].map(async (digest) => (await client.toolCall("a", {}, { digest })).verdict.value));
  assert.deepEqual(
    messages.map((value) => (value as { message: string }).message),
    ["1 2", "2 4"],
  );
});

test("two gateways with one configuration share one start, and the last release flushes after the last call", async (t) => {
  const events: string[] = [];
  let letGo = () => {};
  const plugin = definePlugin({
    ...base,
    async initialize() {
      events.push("start");
      await sleep(20);
    },
    async beforeToolCall() {
      await new Promise<void>((resolve) => (letGo = resolve));
      events.push("answered");
      return proceed();
    },
    shutdown: () => void events.push("shutdown"),
  });
  const { client } = await served(t, plugin);
  await Promise.all([client.initialize("d", {}, "g-1"), client.initialize("d", {}, "g-2")]);
  const call = client.toolCall("a", {});
  await sleep(50);
  await client.call("release", { gatewayInstanceId: "g-1", configDigest: "d" });
  const released = client.call("release", { gatewayInstanceId: "g-2", configDigest: "d" });
  await sleep(50);
  assert.deepEqual(events, ["start"]);
  letGo();
  await Promise.all([call, released]);
  assert.deepEqual(events, ["start", "answered", "shutdown"]);
  assert.equal((await client.failure(client.toolCall("a", {}))).code, status.FAILED_PRECONDITION);
});

test("a configuration that doesn't fit is refused by its field, without its value", async (t) => {
  const config = z.strictObject({ key: z.string(), even: z.number().refine((n) => n % 2 === 0, "must be even") });
  const plugin = definePlugin({
    ...base,
    config,
    initialize(checked) {
      if (checked.key.length < 4) throw PluginError.config("key", "at least 4 characters");
    },
    beforeToolCall: () => proceed(),
  });
  const { client } = await served(t, plugin);
  for (const [wrong, message] of [
    [{ key: 7, even: 3 }, "config: field `key`: Invalid input: expected string, received number; field `even`: must be even"],
    [{ key: "abc", even: 2 }, "config field `key`: at least 4 characters"],
    [{ key: "abcd", even: 2, more: "secret" }, 'config: Unrecognized key: "more"'],
  ]) {
    const error = await client.failure(client.initialize("d", wrong));
    assert.deepEqual([error.code, error.details], [status.INVALID_ARGUMENT, message]);
  }
});

test("an error becomes a status, and a reply that nothing has made is an error", async (t) => {
  const replies: Record<string, () => unknown> = {
    forgotten: () => undefined,
    forged: () => ({ cancelled: undefined }),
    thrown: () => {
      throw new Error("x".repeat(5000));
    },
    unavailable: () => {
      throw PluginError.unavailable("no database");
    },
    invalid: () => {
      throw PluginError.invalid("no such city");
    },
    rounded: () => proceed({ args: { id: 2 ** 53 } }),
    unknown: () => proceed({ arg: 1 } as object),
    mistyped: () => proceed({ toolName: 7 }),
  };
  const plugin = definePlugin({ ...base, beforeToolCall: (call) => replies[call.toolName]!() as never });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  const statuses = Object.fromEntries(
    await Promise.all(
      Object.keys(replies).map(async (name) => {
        const { code, details } = await client.failure(client.toolCall(name, {}));
        return [name, [status[code], details]] as const;
      }),
    ),
  );
  assert.deepEqual(statuses, {
    forgotten: ["INTERNAL", "beforeToolCall returned undefined: return what proceed(), cancel() or answer() makes"],
    forged: ["INTERNAL", "beforeToolCall returned another object: return what proceed(), cancel() or answer() makes"],
    thrown: ["ABORTED", `${"x".repeat(1021)}…`],
    unavailable: ["UNAVAILABLE", "no database"],
    invalid: ["INVALID_ARGUMENT", "no such city"],
    rounded: ["ABORTED", "args.id is 9007199254740992, an integer beyond 2^53 that JavaScript may have rounded: use a BigInt"],
    unknown: ["ABORTED", "a patch at beforeToolCall has no member `arg`: it has toolName, args, extra"],
    mistyped: ["ABORTED", "`toolName` of the patch must be a string"],
  });
});

test("a cancel stays a cancel, whatever else is wrong with the reply", async (t) => {
  const plugin = definePlugin({
    ...base,
    beforeToolCall({ toolName }) {
      if (toolName === "answer") return answer({ id: 2 ** 53 }, "It is known.");
      if (toolName === "odd") return cancel("NO", new Error("boom") as never, { retryAfterMs: NaN });
      if (toolName === "long") return cancel("NO", undefined as never, { retryAfterMs: Infinity });
      const notices = [{ kind: "info", message: "m", details: { n: NaN } }] as const;
      return cancel("NO", "Stop.", { patch: { arg: 1 } as object, notices, scope: "run", retryAfterMs: 1.5 });
    },
  });
  const { client, logger } = await served(t, plugin);
  await client.initialize("d");
  const { verdict, modify, notices } = await client.toolCall("a", {});
  assert.deepEqual([verdict.case, modify, notices], ["cancel", undefined, []]);
  const { code, message, scope, retryAfterMs } = verdict.value as { code: string; message: string; scope: number; retryAfterMs: bigint };
  assert.deepEqual([code, message, scope, retryAfterMs], ["NO", "Stop.", 2, 2n]);
  assert.equal(logger.lines.filter((line) => line.startsWith("a part of a cancel was left out")).length, 2);
  const odd = (await client.toolCall("odd", {})).verdict.value as { message: string; retryAfterMs: bigint };
  assert.deepEqual([odd.message, odd.retryAfterMs], ["Error: boom", undefined]);
  const long = (await client.toolCall("long", {})).verdict.value as { message: string; retryAfterMs: bigint };
  assert.deepEqual([long.message, long.retryAfterMs], ["", BigInt(Number.MAX_SAFE_INTEGER)]);
  const answered = (await client.toolCall("answer", {})).verdict.value as { code: string; message: string; result: Uint8Array };
  assert.deepEqual([answered.code, answered.message, answered.result.length], ["TOOL_FAILED", "It is known.", 0]);
});

test("a patch where the plugin only reads is an error", async (t) => {
  const plugin = definePlugin({ ...base, points: { beforeToolCall: { access: "read" } }, beforeToolCall: () => proceed({ args: 1 }) });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  assert.match((await client.failure(client.toolCall("a", {}))).details, /returned a patch, but the plugin offers it with access `read`/);
});

test("integers beyond 2^53, null and half surrogates pass as the protocol wants them", async (t) => {
  const plugin = definePlugin({
    ...base,
    beforeToolCall({ args, toolName }) {
      return proceed({ toolName: toolName.slice(0, 3), args: { ...(args as object), cut: "a🙂".slice(0, 2) } });
    },
  });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  const { modify } = await client.toolCall("to🙂", '{"id":9007199254740993,"none":null,"e":1e2}');
  assert.equal(text(modify!.args!), '{"id":9007199254740993,"none":null,"e":100,"cut":"a\ufffd"}');
  assert.equal(modify!.toolName, "to\ufffd");
});

test("a plugin learns how much time is left, and when the gateway gives up", async (t) => {
  const seen: { left: number | undefined; reason: unknown }[] = [];
  const plugin = definePlugin({
    ...base,
    async beforeToolCall(_, ctx) {
      const left = ctx.timeLeftMs;
      await new Promise((resolve) => ctx.signal.addEventListener("abort", resolve));
      seen.push({ left, reason: ctx.signal.reason });
      return proceed();
    },
  });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  const abort = new AbortController();
  const call = client.failure(client.toolCall("a", {}, { timeoutMs: 3_000, signal: abort.signal }));
  await sleep(100);
  abort.abort();
  assert.equal((await call).code, status.CANCELLED);
  for (let tries = 0; seen.length === 0 && tries < 100; tries += 1) await sleep(10);
  assert.ok(seen[0]!.left! > 2_000 && seen[0]!.left! <= 3_000, String(seen[0]!.left));
  assert.match(String(seen[0]!.reason), /gave up the call/);
});

test("a class is constructed once per configuration, and tells what a property hides", async (t) => {
  class Counter {
    calls = 0;
    constructor(readonly config: { step: number }) {}
    async initialize() {
      await sleep(1);
      this.calls = 100;
    }
    beforeToolCall() {
      this.calls += this.config.step;
      return cancel("N", String(this.calls));
    }
  }
  const config = z.strictObject({ step: z.number() });
  const { client } = await served(t, definePlugin({ ...base, config }, Counter));
  await client.initialize("d", { step: 5 });
  await client.toolCall("a", {});
  assert.equal(((await client.toolCall("a", {})).verdict.value as { message: string }).message, "110");

  class Hidden {
    beforeResponse = () => proceed();
    beforeToolCall() {
      return proceed();
    }
  }
  const hidden = await served(t, definePlugin(base, Hidden));
  const error = await hidden.client.failure(hidden.client.initialize("d"));
  assert.equal(error.details, "`beforeResponse` of Hidden is a property: write it as a method");
});

test("tools are listed, run with checked arguments, and fail for the model", async (t) => {
  const divide = tool({
    name: "p.divide",
    description: "Divides.",
    input: z.strictObject({ a: z.number(), b: z.number() }),
    annotations: { readOnlyHint: true, title: "Divide" },
    run({ a, b }, ctx: Context) {
      if (b === 0) throw new ToolError(`${ctx.tenant} divides by zero.`, "DIVIDED_BY_ZERO");
      if (a < 0) throw new Error("broken");
      return { quotient: a / b };
    },
  });
  const plugin = definePlugin({ ...base, tools: [divide] });
  const { client } = await served(t, plugin);
  assert.deepEqual((await client.call("describe", {})).tools, ["p.divide"]);
  const { tools } = await client.initialize("d");
  const schema = JSON.parse(text(tools[0]!.inputSchema)) as { type: string; required: string[] };
  assert.deepEqual([schema.type, schema.required, tools[0]!.annotations!.title], ["object", ["a", "b"], "Divide"]);
  const run = async (args: unknown) =>
    (await client.toolCall("p.divide", args, { runTool: true })).verdict.value as { code: string; message: string; result: Uint8Array };
  assert.equal(text((await run({ a: 6, b: 3 })).result), '{"quotient":2}');
  assert.deepEqual([(await run({ a: 1, b: 0 })).code, (await run({ a: 1, b: 0 })).message], ["DIVIDED_BY_ZERO", "acme divides by zero."]);
  const wrong = await run({ a: "1", b: 1 });
  assert.deepEqual(
    [wrong.code, wrong.message],
    ["TOOL_ARGS_INVALID", "The arguments are wrong: field `a`: Invalid input: expected number, received string"],
  );
  assert.equal((await client.failure(client.toolCall("p.divide", { a: -1, b: 1 }, { runTool: true }))).code, status.ABORTED);
  assert.equal((await client.failure(client.toolCall("p.multiply", {}, { runTool: true }))).code, status.NOT_FOUND);
  assert.equal((await client.failure(client.toolCall("p.divide", {}))).code, status.UNIMPLEMENTED);
});

test("describe tells apart reading nothing, some members and all", async (t) => {
  const plugin = definePlugin({
    ...base,
    points: { beforeLlmRequest: { reads: ["text", "systemPrompt"] }, beforeToolCall: { reads: [] } },
    beforeLlmRequest: () => proceed(),
    beforeToolCall: () => proceed(),
    beforeResponse: () => proceed(),
  });
  const { client } = await served(t, plugin);
  const { points } = await client.call("describe", {});
  assert.deepEqual(
    points.map(({ reads }) => reads?.names),
    [["text", "system_prompt"], [], undefined],
  );
});

test("describe offers windows only where the plugin does", async (t) => {
  for (const windows of [true, false, undefined]) {
    const offer = windows === undefined ? {} : { windows };
    const { client } = await served(t, definePlugin({ ...base, points: { beforeResponse: offer }, beforeResponse: () => proceed() }));
    const { points } = await client.call("describe", {});
    assert.deepEqual(
      points.map((point) => point.windows),
      [windows ?? false],
    );
  }
});

test("a hook contributes, and other hooks and points are not offered", async (t) => {
  const plugin = definePlugin({
    ...base,
    hooks: { recall: { sideEffects: "none" }, mine: {} },
    onHook: (call) => contribute(call.hook === "recall" ? [{ kind: "memory", value: { content: call.body.message } }] : []),
  });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  const hook = (name: string, body: unknown) =>
    client.call("onHook", {
      call: { context: { tenant: "acme" }, configDigest: "d" },
      payload: { hook: name, body: bytes(body) },
    });
  const { contributions } = await hook("recall", { message: "hi" });
  assert.deepEqual([contributions[0]!.kind, text(contributions[0]!.value)], ["memory", '{"content":"hi"}']);
  assert.deepEqual((await hook("mine", {})).contributions, []);
  assert.equal((await client.failure(hook("turn_end", {}))).code, status.UNIMPLEMENTED);
  assert.equal((await client.failure(client.toolCall("a", {}))).details, "p does not answer at before_tool_call");
});

test("a tenant-level configuration is checked, and has its defaults", async (t) => {
  const plugin = definePlugin({
    ...base,
    tenantConfig: z.strictObject({ mode: z.enum(["a", "b"]).default("a") }),
    beforeToolCall: (_, ctx) => cancel("MODE", ctx.tenantConfig.mode),
  });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  const mode = async (tenantConfig?: unknown) =>
    ((await client.toolCall("a", {}, { tenantConfig })).verdict.value as { message: string }).message;
  assert.deepEqual([await mode(), await mode({ mode: "b" }), await mode({})], ["a", "b", "a"]);
  const error = await client.failure(client.toolCall("a", {}, { tenantConfig: { mode: "c" } }));
  assert.deepEqual(
    [error.code, error.details],
    [status.INVALID_ARGUMENT, 'tenant-level config: field `mode`: Invalid option: expected one of "a"|"b"'],
  );
});

test("a definition that can't work is refused by its member", () => {
  const handler = { beforeToolCall: () => proceed() };
  const noJsonSchema = { "~standard": { version: 1, vendor: "old", validate: () => ({ value: 1 }) } };
  for (const [definition, message] of [
    [{ ...base }, /does nothing/],
    [{ version: "1.0.0", ...handler }, /`name` is missing/],
    [{ ...base, ...handler, points: { beforeResponse: {} } }, /`points.beforeResponse` has no handler/],
    [{ ...base, hooks: { recall: {} } }, /`hooks` and `onHook` need each other/],
    [{ ...base, tools: () => [] }, /`toolNames` is missing/],
    [{ ...base, ...handler, config: noJsonSchema }, /`config` is of old, and has no Standard JSON Schema: use zod 4.2/],
    [{ ...base, ...handler, config: { type: "object" } }, /`config` isn't a Standard Schema/],
    [{ ...base, ...handler, beforetoolcall: () => proceed() }, /a plugin has no member `beforetoolcall`: it has name,/],
  ] as [never, RegExp][]) {
    assert.throws(() => definePlugin(definition), message);
  }
  class Misspelt {
    beforeToolCall = () => proceed();
    beforeLLMRequest() {
      return proceed();
    }
    before_response() {
      return proceed();
    }
  }
  assert.throws(() => definePlugin(base, Misspelt), /`beforeLLMRequest` is never called: write `beforeLlmRequest`/);
});

test("a configuration that has to make room for another one is logged", async (t) => {
  const shutDown: number[] = [];
  const plugin = definePlugin({
    ...base,
    config: z.strictObject({ n: z.number() }),
    initialize: ({ n }) => n,
    beforeToolCall: () => proceed(),
    shutdown: (n) => void shutDown.push(n),
  });
  const { client, logger } = await served(t, plugin);
  const evictions = () => logger.lines.filter((line) => line.includes("too many configurations"));
  for (let n = 0; n < 16; n += 1) await client.initialize(`d${n}`, { n });
  assert.deepEqual(evictions(), []);
  await client.initialize("d16", { n: 16 });
  assert.equal(evictions().length, 1);
  assert.match(evictions()[0] ?? "", / p 16$/);
  assert.deepEqual(shutDown, [0]);
});

test("a misspelt member of a patch doesn't compile", async (t) => {
  const misspelt = definePlugin({
    ...base,
    // @ts-expect-error
    beforeToolCall: ({ args }) => proceed({ args, tolName: "b" }),
  });
  const withCancel = definePlugin({
    ...base,
    // @ts-expect-error
    beforeToolCall: ({ args }) => cancel("NO", "no", { patch: { args, tolName: "b" } }),
  });
  const known = definePlugin({ ...base, beforeToolCall: ({ args }) => proceed({ args, toolName: "b" } as { [name: string]: unknown }) });
  const codes: unknown[] = [];
  for (const plugin of [misspelt, known]) {
    const { client } = await served(t, plugin);
    await client.initialize("d");
    codes.push(
      await client.toolCall("a", {}).then(
        ({ verdict }) => verdict.case,
        ({ details }) => details,
      ),
    );
  }
  assert.ok(withCancel instanceof Object);
  assert.deepEqual(codes, ["a patch at beforeToolCall has no member `tolName`: it has toolName, args, extra", "continue"]);
});
