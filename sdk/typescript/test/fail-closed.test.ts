/** What a plugin does wrong must not let a call pass, nor reach another tenant. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { z } from "zod";
import { answer, cancel, definePlugin, proceed, stderrLogger, tool } from "../src/index.js";
import { served } from "./support/gateway-client.js";

const base = { name: "p", version: "1.0.0" };
const limits = { maxReplyBytes: 100_000n, maxNoticeBytes: 8_192n };

test("a cancel that is too large keeps what fits", async (t) => {
  const text = "x".repeat(200_000);
  const details = { text };
  const plugin = definePlugin({
    ...base,
    beforeToolCall({ toolName }) {
      if (toolName === "patch") return cancel("NO", text, { patch: { args: text }, notices: [{ kind: "info", message: "kept" }] });
      if (toolName === "answer") return answer(text, "known");
      return cancel("NO", "Stop.", { notices: [{ kind: "info", message: "m", details }] });
    },
  });
  const { client, logger } = await served(t, plugin);
  await client.initialize("d", {}, "g", { limits });
  const patch = await client.toolCall("patch", {});
  assert.deepEqual([patch.verdict.case, patch.modify, patch.notices[0]?.message], ["cancel", undefined, "kept"]);
  assert.ok((patch.verdict.value as { message: string }).message.length <= 1024);
  const notices = await client.toolCall("notices", {});
  assert.deepEqual([notices.verdict.case, notices.notices], ["cancel", []]);
  const known = (await client.toolCall("answer", {})).verdict.value as { code: string; message: string; result: Uint8Array };
  assert.deepEqual([known.code, known.message, known.result.length], ["TOOL_FAILED", "known", 0]);
  assert.ok(logger.lines.some((line) => line.includes("more than 100000")));
});

test("a cancel with odd members stays a cancel", async (t) => {
  const hostile = {
    toJSON() {
      throw { circular: hostile };
    },
  };
  const odd: Record<string, () => unknown> = {
    wait: () => cancel("NO", "m", { retryAfterMs: "soon" as never }),
    bigint: () => cancel("NO", "m", { retryAfterMs: 5n as never }),
    message: () => cancel("NO", Object.create(null)),
    patch: () => cancel("NO", "m", { patch: { args: hostile } }),
    code: () => cancel(undefined as never, "m"),
  };
  const plugin = definePlugin({ ...base, beforeToolCall: ({ toolName }) => odd[toolName]!() as never });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  for (const name of Object.keys(odd)) assert.equal((await client.toolCall(name, {})).verdict.case, "cancel", name);
});

test("a patch that is undefined, as a whole or in a member, is an error", async (t) => {
  const forgotten = (): undefined => undefined;
  const plugin = definePlugin({
    ...base,
    beforeToolCall: ({ toolName }) => (toolName === "whole" ? (proceed(forgotten()) as never) : (proceed({ args: forgotten() }) as never)),
  });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  assert.match((await client.failure(client.toolCall("whole", {}))).details, /the patch of `proceed` is undefined/);
  assert.match(
    (await client.failure(client.toolCall("member", {}))).details,
    /`args` of the patch is undefined: leave it out, or use null/,
  );
});

test("tenants with the same configuration can't change it for each other", async (t) => {
  const plugin = definePlugin({
    ...base,
    config: z.object({ list: z.array(z.string()) }),
    tenantConfig: z.object({ allowed: z.array(z.string()).default([]) }),
    beforeToolCall({ toolName }, ctx) {
      (toolName === "tenant" ? ctx.tenantConfig.allowed : ctx.config.list).push(ctx.tenant);
      return proceed();
    },
  });
  const { client } = await served(t, plugin);
  await client.initialize("d", { list: [] });
  for (const name of ["tenant", "plugin"]) {
    assert.match((await client.failure(client.toolCall(name, {}, { tenantConfig: {} }))).details, /not extensible/, name);
  }
});

test("a payload that is copied or written as a whole has its JSON", async (t) => {
  const plugin = definePlugin({
    ...base,
    beforeToolCall(call) {
      const copied = { ...call };
      return cancel("SEEN", `${JSON.stringify(call)} ${Object.keys(copied).includes("args")}`);
    },
  });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  const { message } = (await client.toolCall("a", { secret: "AKIA" })).verdict.value as { message: string };
  assert.equal(message, '{"toolName":"a","args":{"secret":"AKIA"}} true');
});

test("a tool that returns a cancel blocks, and one that returns proceed() fails", async (t) => {
  const input = z.object({});
  const plugin = definePlugin({
    ...base,
    tools: [
      tool({ name: "p.refuse", description: "Refuses.", input, run: () => cancel("FORBIDDEN", "no") }),
      tool({ name: "p.proceed", description: "Errs.", input, run: () => proceed() }),
    ],
  });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  const refused = (await client.toolCall("p.refuse", {}, { runTool: true })).verdict.value as { code: string; result: Uint8Array };
  assert.deepEqual([refused.code, refused.result.length], ["FORBIDDEN", 0]);
  assert.equal((await client.failure(client.toolCall("p.proceed", {}, { runTool: true }))).code, status.INTERNAL);
});

test("tools may depend on the configuration, each instance with its own", async (t) => {
  const plugin = definePlugin({
    ...base,
    config: z.object({ names: z.array(z.string()) }),
    toolNames: ["p.*"],
    initialize: () => "state",
    tools: ({ names }, state) => names.map((name) => tool({ name: `p.${name}`, description: state, input: z.object({}), run: () => name })),
  });
  const { client } = await served(t, plugin);
  const one = await client.initialize("one", { names: ["a"] });
  const two = await client.initialize("two", { names: ["b", "c"] });
  assert.deepEqual(
    [one.tools, two.tools].map((tools) => tools.map(({ name }) => name)),
    [["p.a"], ["p.b", "p.c"]],
  );
});

test("an instance whose gateway left while it started is shut down", async (t) => {
  const events: string[] = [];
  let start = () => {};
  const plugin = definePlugin({
    ...base,
    initialize: () => new Promise<void>((resolve) => (start = resolve)),
    beforeToolCall: () => proceed(),
    shutdown: () => void events.push("shutdown"),
  });
  const { client } = await served(t, plugin);
  const initialized = client.initialize("d", {}, "g-1");
  await sleep(50);
  await client.call("release", { gatewayInstanceId: "g-1", configDigest: "d" });
  start();
  await initialized;
  await sleep(50);
  assert.deepEqual(events, ["shutdown"]);
  assert.equal((await client.failure(client.toolCall("a", {}))).code, status.FAILED_PRECONDITION);
});

test("a log line never throws, and an error shows only its stack", (t) => {
  const lines: string[] = [];
  t.mock.method(process.stderr, "write", (line: string) => lines.push(line) > 0);
  const circle: { self?: unknown } = {};
  circle.self = circle;
  class Leaky extends Error {
    toJSON() {
      return { authorization: "Bearer SECRET" };
    }
  }
  stderrLogger.warn("odd", { error: circle });
  stderrLogger.warn("large", { n: 1n });
  stderrLogger.warn("leaky", { error: new Leaky("boom") });
  t.mock.reset();
  assert.match(lines[0]!, /"message":"odd"\}/);
  assert.match(lines[1]!, /"n":"1"/);
  assert.ok(lines[2]!.includes("boom") && !lines[2]!.includes("SECRET"), lines[2]);
});

test("a name and a version may have every form that the protocol allows", () => {
  const name = `P${"_-9".repeat(21)}`;
  const plugin = definePlugin({ ...base, name, version: "1.0.0-rc.1+build.7", beforeToolCall: () => proceed() });
  assert.deepEqual([plugin.name.length, plugin.version], [64, "1.0.0-rc.1+build.7"]);
});

test("a definition whose handler would never be called is refused", () => {
  class Plain {
    beforeToolCall() {
      return proceed();
    }
  }
  class Plural extends Plain {
    beforeToolCalls() {
      return proceed();
    }
  }
  class Unknown extends Plain {
    afterResponse() {
      return proceed();
    }
  }
  const handler = { beforeToolCall: () => proceed() };
  for (const [define, message] of [
    [() => definePlugin({ ...base, ...handler, beforeResponse: undefined as never }), /`beforeResponse` is undefined, not a function/],
    [() => definePlugin({ ...base, ...handler } as never, Plain), /`beforeToolCall` stands beside a class/],
    [() => definePlugin(base, Plural), /`beforeToolCalls` is never called: write `beforeToolCall`/],
    [() => definePlugin(base, Unknown), /`afterResponse` is never called: the points are/],
    [
      () => definePlugin({ ...base, ...handler, points: { before_tool_call: {} } as never }),
      /`points.before_tool_call` is no point: they are/,
    ],
    [
      () => definePlugin({ ...base, ...handler, points: { beforeToolCall: { access: "Read" as never } } }),
      /access` must be "read" or "modify"/,
    ],
    [
      () => definePlugin({ ...base, ...handler, points: { beforeToolCall: { reads: ["text" as never] } } }),
      /`points.beforeToolCall.reads` has "text": choose from args, extra/,
    ],
    [() => definePlugin({ ...base, ...handler, points: { beforeToolCall: { reads: ["args", "args"] } } }), /reads` has "args" twice/],
    [() => definePlugin({ ...base, ...handler, points: { beforeToolCall: { reads: "args" as never } } }), /reads` must be a list/],
    [() => definePlugin({ ...base, ...handler, name: "" }), /^TypeError: `name` is missing/],
    [
      () => definePlugin({ ...base, ...handler, name: "bad name" }),
      /^TypeError: `name` is `bad name`: it must be a letter, then up to 63 letters, digits, `_` and `-`$/,
    ],
    [() => definePlugin({ ...base, ...handler, name: "1p" }), /^TypeError: `name` is `1p`: it must be a letter/],
    [() => definePlugin({ ...base, ...handler, name: "p".repeat(65) }), /it must be a letter/],
    [() => definePlugin({ ...base, ...handler, version: undefined as never }), /^TypeError: `version` is missing/],
    [
      () => definePlugin({ ...base, ...handler, version: "1.0" }),
      /^TypeError: `version` is `1.0`, which isn't a semantic version such as 1.0.0$/,
    ],
    [() => definePlugin({ ...base, ...handler, version: "1.0.0-01" }), /isn't a semantic version/],
    [() => definePlugin({ ...base, ...handler, version: `1.0.0-${"a".repeat(256)}` }), /isn't a semantic version/],
    [() => definePlugin({ ...base, ...handler, capabilities: ["storage" as never] }), /there is no capability "storage"/],
    [() => definePlugin({ ...base, ...handler, config: z.object({ at: z.date() }) }), /`config` has no JSON Schema: Date/],
  ] as [() => unknown, RegExp][]) {
    assert.throws(define, message);
  }
});

test("an event that nobody waits for doesn't end the process", async (t) => {
  const plugin = definePlugin({
    ...base,
    beforeToolCall(_, ctx) {
      void ctx.emit({ name: "seen" });
      return proceed();
    },
  });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  assert.equal((await client.toolCall("a", {})).verdict.case, "continue");
  await sleep(50);
});
