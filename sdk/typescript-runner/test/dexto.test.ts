import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type PluginClient, RawJson, failure } from "./support/client.js";
import { CAPABILITIES, type FakeHost, callToken, hostOffer, startHost } from "./support/host.js";
import { FIXTURES, type Runner, startRunner, temporaryFolder, write } from "./support/runner.js";

const TENANT_AUTH = ["--dialect", "dexto", `${FIXTURES}/tenant-auth.ts`, "--capabilities", CAPABILITIES.join(",")];

async function scripted(t: TestContext, more: readonly string[] = []): Promise<{ client: PluginClient; runner: Runner }> {
  const runner = await startRunner(t, ["--dialect", "dexto", `${FIXTURES}/scripted.js`, ...more]);
  const client = runner.client("scripted");
  await client.initialize();
  return { client, runner };
}

async function tenantAuth(t: TestContext, host: FakeHost, config: object, options = {}): Promise<{ client: PluginClient; runner: Runner }> {
  const runner = await startRunner(t, TENANT_AUTH, options);
  const client = runner.client("tenant-auth");
  await client.initialize(config, hostOffer(host, "tenant-auth") as never);
  return { client, runner };
}

const code = (script: string) => ({ code: script });

test("D38, D3: a class in TypeScript is served with its points, and blocks one tenant's tools", async (t) => {
  const host = await startHost(t);
  const { client } = await tenantAuth(t, host, { blockedTenants: ["globex"] });
  const manifest = await client.call("describe", {});
  assert.deepEqual(
    [manifest.name, manifest.version, manifest.points.length, manifest.capabilities],
    ["tenant-auth", "0.0.0", 3, CAPABILITIES],
  );
  assert.equal((await client.toolCall("bash", {}, { tenant: "acme" })).verdict, "continue");
  const blocked = await client.toolCall("bash", {}, { tenant: "globex" });
  assert.deepEqual([blocked.verdict, blocked.code], ["cancel", "TOOL_NOT_ALLOWED"]);
  assert.equal(blocked.message, "Tool 'bash' is not available on your plan.");
  assert.deepEqual(blocked.notices, [{ code: "TOOL_NOT_ALLOWED", message: "Tenant globex attempted it" }]);
  assert.equal((await failure(client.response({ content: "x" }))).code, 12, "UNIMPLEMENTED: the class has no beforeResponse");
});

test("D38: a class in JavaScript is served", async (t) => {
  const { client } = await scripted(t);
  assert.equal((await client.toolCall("t", code("return { ok: true }"))).verdict, "continue");
});

test("D29: storage.database is the gateway's storage, for the call's tenant only", async (t) => {
  const host = await startHost(t);
  const { client } = await tenantAuth(t, host, { quota: 1 });
  const ask = (tenant: string) => client.llmRequest({ text: "hi" }, { tenant, hostToken: callToken(host, "tenant-auth", tenant) });
  assert.equal((await ask("acme")).verdict, "continue");
  const blocked = await ask("acme");
  assert.deepEqual([blocked.code, blocked.message], ["QUOTA_EXCEEDED", "Daily limit exceeded."]);
  assert.equal((await ask("globex")).verdict, "continue");
});

test("D35: two processes share what is in the storage, and nothing else", async (t) => {
  const host = await startHost(t);
  const [one, other] = await Promise.all([tenantAuth(t, host, { quota: 1 }), tenantAuth(t, host, { quota: 1 })]);
  const options = { hostToken: callToken(host, "tenant-auth", "acme") };
  assert.equal((await one.client.llmRequest({ text: "hi" }, options)).verdict, "continue");
  assert.equal((await other.client.llmRequest({ text: "hi" }, options)).code, "QUOTA_EXCEEDED");
});

test("D28: context.logger writes to the gateway's log, with plugin, tenant and session", async (t) => {
  const host = await startHost(t);
  const { client } = await tenantAuth(t, host, {});
  await client.toolResult("bash", "done", { user: "ada", session: "s-1", hostToken: callToken(host, "tenant-auth", "acme") });
  for (let tries = 0; host.logLines.length === 0 && tries < 500; tries += 1) await new Promise((resolve) => setTimeout(resolve, 10));
  const [line] = host.logLines;
  assert.deepEqual(
    [line?.plugin, line?.tenant, line?.severity, line?.message],
    ["tenant-auth", "acme", "info", "Tool execution completed"],
  );
  assert.deepEqual(line?.attributes, { tenant: "acme", user: "ada", tool: "bash", session_id: "s-1" });
});

test("D28: without the capability, context.logger writes to the process's log", async (t) => {
  const { client, runner } = await scripted(t);
  await client.toolCall("t", code("context.logger.createChild('x').warn('look', { n: { a: 1 } }); return { ok: true }"), {
    session: "s-1",
  });
  const line = await runner.line(/look/);
  assert.deepEqual([line.plugin, line.tenant, line.level, line.n, line.session_id], ["scripted", "acme", "warn", '{"a":1}', "s-1"]);
});

test("D29: storage without a capability, and other members of the host, answer with a clear error", async (t) => {
  const { client, runner } = await scripted(t);
  for (const [script, expected] of [
    ["await context.agent.storage.database.get('k')", /uses `storage.database` without the capability storage:read: list it/],
    ["context.agent.storage.database.append('k', 1)", /`storage.database.append` isn't available/],
    ["context.agent.toolManager.list()", /`agent.toolManager.list` isn't available to a plugin behind a gateway/],
    ["await context.agent.storageManager.getCache().get('k')", /`agent.storage.cache.get` isn't available.*use `agent.storage.database`/],
    ["context.agent.sessionManager.x = 1", /`agent.sessionManager.x` isn't available/],
  ] as [string, RegExp][]) {
    const { code: status, details } = await failure(client.toolCall("t", code(`return ${script}`)));
    assert.match(details, expected);
    assert.ok([10, 13].includes(status), String(status));
  }
  const logged = "context.logger.info('agent', { agent: context.agent }); return { ok: true }";
  assert.equal((await client.toolCall("t", code(logged))).verdict, "continue", "a context can be logged");
  await runner.line(/"agent"/);
});

test("D25: calls of several tenants at the same time don't mix", async (t) => {
  const host = await startHost(t);
  const runner = await startRunner(t, ["--dialect", "dexto", `${FIXTURES}/scripted.js`, "--capabilities", CAPABILITIES.join(",")]);
  const client = runner.client("scripted");
  await client.initialize({}, hostOffer(host, "scripted") as never);
  const script = `
    const db = context.agent.storage.database;
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 30));
    await db.set("who", context.tenantId);
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 30));
    return { ok: true, modify: { args: { tenant: context.tenantId, user: context.userId, stored: await db.get("who") } } };`;
  const tenants = Array.from({ length: 20 }, (_, index) => `t${index}`);
  const calls = tenants.map((tenant) =>
    client.toolCall("t", code(script), { tenant, user: `u-${tenant}`, hostToken: callToken(host, "scripted", tenant) }),
  );
  for (const [index, { modify }] of (await Promise.all(calls)).entries()) {
    const tenant = tenants[index];
    assert.deepEqual(JSON.parse(modify.args as string), { tenant, user: `u-${tenant}`, stored: tenant });
  }
});

test("D25: getContext() of the plugin's own @dexto/core has the call's tenant and user", async (t) => {
  const folder = temporaryFolder(t);
  const { mkdirSync } = await import("node:fs");
  mkdirSync(`${folder}/node_modules/@dexto/core`, { recursive: true });
  write(
    folder,
    "node_modules/@dexto/core/package.json",
    JSON.stringify({ name: "@dexto/core", type: "module", exports: { ".": { import: "./index.js" } } }),
  );
  write(
    folder,
    "node_modules/@dexto/core/index.js",
    `
    import { AsyncLocalStorage } from "node:async_hooks";
    const store = new AsyncLocalStorage();
    export const getContext = () => store.getStore();
    export const runWithContext = async (context, run) => store.run(context, run);`,
  );
  write(folder, "package.json", JSON.stringify({ type: "module" }));
  const path = write(
    folder,
    "reader.ts",
    `
    import { getContext } from "@dexto/core";
    export default class { async beforeToolCall() { await null; return { ok: true, modify: { args: getContext() } }; } }`,
  );
  const runner = await startRunner(t, ["--dialect", "dexto", path]);
  const client = runner.client("reader");
  await client.initialize();
  const [one, other] = await Promise.all(["a", "b"].map((tenant) => client.toolCall("t", {}, { tenant, user: `${tenant}-1` })));
  assert.equal(one?.modify.args, '{"tenantId":"a","userId":"a-1"}');
  assert.equal(other?.modify.args, '{"tenantId":"b","userId":"b-1"}');
});

test("D11: ok: false without cancel goes on with a notice, and its modify is ignored", async (t) => {
  const { client } = await scripted(t);
  const script =
    "payload.args.x = 1; return { ok: false, message: 'no luck', modify: { args: 1 }, notices: [{ kind: 'info', message: 'own' }] }";
  const reply = await client.toolCall("t", code(script));
  assert.deepEqual([reply.verdict, reply.modify], ["continue", {}]);
  assert.deepEqual(reply.notices, [
    { code: "PLUGIN_REPORTED_FAILURE", message: "plugin 'scripted' reported a failure and cancelled nothing: no luck" },
    { code: undefined, message: "own" },
  ]);
});

test("D12, D14, D23: a cancel has its code from the notices; its modify counts only with ok: true", async (t) => {
  const { client } = await scripted(t);
  const stop = (members: string) => client.toolCall("t", code(`return { cancel: true, modify: { args: { y: 1 } }, ${members} }`));
  const failed = await stop(
    "ok: false, notices: [{ kind: 'block', code: 'X', message: 'm' }, { kind: 'info', code: 'UNAUTHORIZED', message: 'm' }]",
  );
  assert.deepEqual([failed.verdict, failed.code, failed.message, failed.modify], ["cancel", "UNAUTHORIZED", "", {}]);
  const patched = await stop("ok: true, message: 'stop', notices: [{ kind: 'block', code: 'MY_CODE', message: 'm' }]");
  assert.deepEqual([patched.verdict, patched.code, patched.message, patched.modify], ["cancel", "MY_CODE", "stop", { args: '{"y":1}' }]);
});

test("D15: a throw, and an answer without ok, fail the step", async (t) => {
  const { client } = await scripted(t);
  for (const [script, expected] of [
    ["throw new Error('broken')", /broken/],
    ["throw 'text'", /text/],
    ["return undefined", /beforeToolCall returned undefined: return an object such as \{ ok: true \}/],
    ["return { modify: {} }", /returned no `ok`/],
    ["return { ok: true, modify: [1] }", /`modify` that isn't an object/],
    ["return { ok: true, modify: { callId: 'other' } }", /`modify`: `callId` can't be changed at beforeToolCall/],
    ["return { ok: true, modify: { toolName: 1 } }", /`toolName` must be a string, and is number/],
  ] as [string, RegExp][]) {
    const { code: status, details } = await failure(client.toolCall("t", code(script)));
    assert.equal(status, 10, details);
    assert.match(details, expected);
  }
  assert.equal((await client.toolCall("t", code("return { ok: true }"))).verdict, "continue");
});

test("D2, D10: args survive exactly, and a modify replaces whole members", async (t) => {
  const { client } = await scripted(t);
  const big = '"id":9007199254740993,"other":1e2,"deep":[null,{"n":-9007199254740995}]';
  const ask = (script: string) => client.toolCall("t", new RawJson(`{"code":${JSON.stringify(script)},${big}}`));
  assert.deepEqual((await ask("JSON.stringify(payload); return { ok: true, modify: { ...payload } }")).modify, {}, "nothing changed");
  const moved = await ask("return { ok: true, modify: { args: { moved: payload.args.deep, id: payload.args.id, n: 5 } } }");
  assert.equal(moved.modify.args, '{"moved":[null,{"n":-9007199254740995}],"id":9007199254740993,"n":5}');
  const inPlace = await ask("payload.args.deep = 'é'; delete payload.args.code; return { ok: true }");
  assert.equal(inPlace.modify.args, '{"id":9007199254740993,"other":100,"deep":"é"}');
});

test("D1, D4, D10: other members reach the plugin, and keys of its own go into extra", async (t) => {
  const { client } = await scripted(t);
  const images = [{ source: { case: "data", value: Buffer.from("png") }, mimeType: "image/png" }] as const;
  const script =
    "return { ok: true, modify: { text: JSON.stringify(payload), mark: 1, imageData: { image: 'aGk=', mimeType: 'image/gif' } } }";
  const extra = Buffer.from('{"seen":[1],"text":"no"}');
  const reply = await client.llmRequest({ text: script, images: [...images], extra }, { session: "s-1" });
  assert.deepEqual(JSON.parse((reply.modify.text as { value?: string }).value ?? (reply.modify.text as string)), {
    seen: [1],
    text: script,
    imageData: { image: "cG5n", mimeType: "image/png" },
    sessionId: "s-1",
  });
  assert.equal(reply.modify.extra, '{"seen":[1],"text":"no","mark":1}');
  const answered = await client.response({
    content: "return { ok: true, modify: { content: JSON.stringify(payload), reasoning: undefined } }",
    reasoning: "why",
    tokenUsage: { input: 3n, output: 4n },
  });
  const { content, ...others } = JSON.parse(answered.modify.content as string) as { content: string };
  assert.ok(content.startsWith("return"));
  assert.deepEqual(others, { reasoning: "why", provider: "openai", model: "gpt", tokenUsage: { input: 3, output: 4 } });
  assert.equal(answered.modify.reasoning, "");
});

test("D1: several images are refused, unless the operator lets the plugin see the first only", async (t) => {
  const image = (url: string) => ({ source: { case: "url" as const, value: url }, mimeType: "image/png" });
  const images = [image("https://a/1"), image("https://a/2")];
  const { client } = await scripted(t);
  const refused = await failure(client.llmRequest({ text: "return { ok: true }", images }));
  assert.deepEqual([refused.code, /has 2 images.*first_medium_only/.test(refused.details)], [3, true]);

  const file = write(
    temporaryFolder(t),
    "runner.yaml",
    `plugins: [{ dialect: dexto, module: ${FIXTURES}/scripted.js, first_medium_only: true }]`,
  );
  const lenient = (await startRunner(t, [file])).client("scripted");
  await lenient.initialize();
  const reply = await lenient.llmRequest({
    text: "return { ok: true, modify: { imageData: { ...payload.imageData, image: 'https://b/1' } } }",
    images,
  });
  const { items } = reply.modify.images as { items: { source: { value: string } }[] };
  assert.deepEqual(
    items.map(({ source }) => source.value),
    ["https://b/1", "https://a/2"],
  );
});

test("D21: notices beyond the gateway's limits are cut, so that the step still counts", async (t) => {
  const { client } = await scripted(t);
  const many =
    "Array.from({ length: 40 }, (_, n) => ({ kind: n ? 'warn' : 'odd', code: 'not a code', message: 'm' + n, details: { s: 'x'.repeat(9000) } }))";
  const { notices } = await client.toolCall("t", code(`return { ok: true, notices: ${many} }`));
  assert.equal(notices.length, 16);
  assert.deepEqual(notices.at(-1), { code: "NOTICES_LEFT_OUT", message: "25 further notices don't fit" });
});

test("D31, D33, D34: one object per configuration, initialised before the first call, and cleaned up", async (t) => {
  const { client, runner } = await scripted(t, ["--options", '{"a":1,"b":{"c":2}}']);
  const broken = runner.client("scripted");
  broken.digest = "broken";
  const { code: status, details } = await failure(broken.initialize({ fail: "no key" }));
  assert.deepEqual([status, details], [10, "PLUGIN_INITIALIZATION_FAILED: plugin 'scripted' failed at its initialization: no key"]);
  const other = runner.client("scripted");
  other.digest = "other";
  await other.initialize({ b: 3 });
  const read = (from: PluginClient) => from.toolCall("t", code("return { ok: true, modify: { args: [self.calls, self.config] } }"));
  for (let calls = 1; calls <= 3; calls += 1) assert.equal((await read(client)).modify.args, `[${calls},{"a":1,"b":{"c":2}}]`);
  assert.equal((await read(other)).modify.args, '[1,{"a":1,"b":3}]');
  await client.call("shutdown", { gatewayInstanceId: "g" });
  assert.match((await runner.line(/cleaned up 3/)).message, /^cleaned up 3$/);
  await runner.line(/cleaned up 1/);
});
