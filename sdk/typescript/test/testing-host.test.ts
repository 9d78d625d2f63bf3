import assert from "node:assert/strict";
import { test } from "node:test";
import { type Context, definePlugin, proceed, cancel } from "../src/index.js";
import { TestHost, TestPlugin } from "../src/testing/index.js";

const MINUTE_MS = 60_000;

/** Counts calls up to two per minute and tenant, and its starts. */
const counter = definePlugin({
  name: "counter",
  version: "1.0.0",
  capabilities: ["storage:read", "storage:write", "log", "emit"],
  async initialize(_, host) {
    await host.storage.add("starts", 1);
    return host;
  },
  async beforeToolCall({ toolName }, ctx) {
    ctx.log.info(`call of ${toolName}`, { toolName });
    const { added } = await ctx.storage.add("calls", 1, { limit: 2, window: "minute" });
    if (added) return proceed();
    await ctx.emit({ name: "calls.full", severity: "warn" });
    return cancel("FULL", "no more calls");
  },
  async shutdown(host) {
    await host.storage.put("flushed", "");
  },
});

async function isLet(plugin: TestPlugin): Promise<boolean> {
  return (await plugin.beforeToolCall({ toolName: "t" })).cancelled === undefined;
}

test("replicas share a limit, and tenants do not", async () => {
  const host = new TestHost();
  const one = await TestPlugin.start(counter, {}, { host });
  const two = await TestPlugin.start(counter, {}, { host });
  assert.deepEqual([await isLet(one), await isLet(two), await isLet(one), await isLet(two)], [true, true, false, false]);
  assert.equal(await isLet(two.withTenant("other")), true);
  assert.equal(await two.storage.getJson("calls"), 2);
  host.advance(MINUTE_MS);
  assert.equal(await isLet(one), true);
  assert.equal(await one.storage.getJson("calls"), 1);
  assert.equal(await host.storageOf("counter").getJson("starts"), 2);
  assert.equal(host.now.toISOString(), "2026-01-01T00:01:00.000Z");
});

test("the plugin's own data is apart, and can be written until the end", async () => {
  const plugin = await TestPlugin.start(counter, {});
  await isLet(plugin);
  await plugin.shutdown();
  const keys = (await plugin.ownStorage.listPage()).entries.map(({ key }) => key);
  assert.deepEqual(keys, ["flushed", "starts"]);
  assert.deepEqual(
    (await plugin.storage.listPage()).entries.map(({ key }) => key),
    ["calls"],
  );
});

test("services that are unavailable fail calls and starts", async () => {
  const plugin = await TestPlugin.start(counter, {});
  plugin.host.setAvailable(false);
  const unavailable = { name: "CallError", code: "UNAVAILABLE", message: /the test made the services unavailable$/ };
  await assert.rejects(isLet(plugin), unavailable);
  await assert.rejects(TestPlugin.start(counter, {}, { host: plugin.host }), unavailable);
  plugin.host.setAvailable(true);
  assert.equal(await isLet(plugin), true);
});

test("events and log lines are kept", async () => {
  const { host } = await TestPlugin.start(counter, {});
  const plugin = (await TestPlugin.start(counter, {}, { host })).withTenant("acme");
  for (const _ of [1, 2, 3]) await isLet(plugin);
  const record = { plugin: "counter", tenant: "acme", message: "", attributes: {} };
  assert.deepEqual(host.events, [{ ...record, name: "calls.full", severity: "warn" }]);
  const lines = await host.logLines(3);
  assert.deepEqual(lines[2], { ...record, severity: "info", message: "call of t", attributes: { toolName: "t" } });
  assert.equal((await host.logLines()).length, 3);
});

test("a plugin without the capability has no storage, and one has only its methods", async () => {
  const reading = (capabilities: readonly ("storage:read" | "log")[]) =>
    definePlugin({
      name: "reader",
      version: "1.0.0",
      capabilities,
      async beforeToolCall({ toolName }, ctx: Context) {
        if (toolName === "read") await ctx.storage.get("k");
        else await ctx.storage.put("k", "");
        return proceed();
      },
    });
  const without = await TestPlugin.start(reading([]), {});
  await assert.rejects(without.beforeToolCall({ toolName: "read" }), {
    code: "UNAVAILABLE",
    message: /list the capability in the plugin's `capabilities`$/,
  });
  const reader = await TestPlugin.start(reading(["storage:read"]), {});
  await reader.beforeToolCall({ toolName: "read" });
  await assert.rejects(reader.beforeToolCall({ toolName: "write" }), {
    code: "ABORTED",
    message: /the plugin lacks the capability `storage:write`$/,
  });
});

test("a quota, a call's time and its signal hold for the storage too", async () => {
  const host = new TestHost({ quotaBytes: 10 });
  const storage = host.storageOf("p", "acme");
  await assert.rejects(storage.put("k", "x".repeat(10)), { kind: "quota_exceeded" });
  assert.equal((await storage.put("k", "x".repeat(9))).written, true);
  host.services.onCall = () => new Promise(() => {});
  const plugin = await TestPlugin.start(
    definePlugin({
      name: "p",
      version: "1.0.0",
      capabilities: ["storage:read"],
      async beforeToolCall(_, ctx) {
        await ctx.storage.get("k");
        return proceed();
      },
    }),
    {},
    { host },
  );
  await assert.rejects(plugin.withTimeLeft(50).beforeToolCall({ toolName: "t" }), { code: "UNAVAILABLE", message: /Deadline exceeded$/ });
  const abort = new AbortController();
  const reading = storage.get("k", { signal: abort.signal });
  abort.abort(new Error("no longer needed"));
  await assert.rejects(reading, /no longer needed/);
});
