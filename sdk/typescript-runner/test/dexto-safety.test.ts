/** What a plugin of Dexto answers or does wrong must cost its own call only, and never let it pass. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { mediaFromDexto } from "../dist/dexto/media.js";
import { patchFromDexto } from "../dist/dexto/payload.js";
import { messageOf } from "../dist/entry.js";
import { logLine } from "../dist/host-logger.js";
import { cut } from "../dist/notices.js";
import { type PluginClient, failure } from "./support/client.js";
import { CAPABILITIES, type FakeHost, callToken, hostOffer, startHost } from "./support/host.js";
import { FIXTURES, type Runner, startRunner, temporaryFolder, write } from "./support/runner.js";

const code = (script: string) => ({ code: script });

async function scripted(t: TestContext): Promise<{ client: PluginClient; runner: Runner }> {
  const runner = await startRunner(t, ["--dialect", "dexto", `${FIXTURES}/scripted.js`]);
  const client = runner.client("scripted");
  await client.initialize();
  return { client, runner };
}

async function withHost(t: TestContext): Promise<{ client: PluginClient; host: FakeHost }> {
  const host = await startHost(t);
  const runner = await startRunner(t, ["--dialect", "dexto", `${FIXTURES}/scripted.js`, "--capabilities", CAPABILITIES.join(",")]);
  const client = runner.client("scripted");
  await client.initialize({}, hostOffer(host, "scripted") as never);
  return { client, host };
}

test("a cancel counts whatever is wrong beside it", async (t) => {
  const { client, runner } = await scripted(t);
  for (const script of [
    "return { ok: false, cancel: true, message: 'no', notices: [undefined, 5] }",
    "return { ok: false, cancel: true, message: 'no', notices: [{ kind: 'warn', get message() { throw new Error('getter'); } }] }",
    "return { ok: false, cancel: true, message: 'no', notices: [{ kind: 'warn', message: Object.create(null) }] }",
    "return { ok: true, cancel: true, message: 'no', modify: { callId: 'z' } }",
    "return { ok: true, cancel: true, message: 'no', modify: { args: 9007199254740993 } }",
    "return { ok: true, cancel: true, message: 'no', modify: 5 }",
    "return { cancel: true, message: 'no' }",
    "payload.sessionId = 'other'; return { ok: true, cancel: true, message: 'no' }",
  ]) {
    const reply = await client.toolCall("t", code(script), { session: "s-1" });
    assert.deepEqual([reply.verdict, reply.message, reply.modify], ["cancel", "no", {}], script);
  }
  assert.equal((await runner.line(/a part of the plugin's answer was left out: `modify`/)).plugin, "scripted");
  await runner.line(/left out: notices/);
  const whole = await client.toolCall("t", code("return { ok: true, cancel: true, notices: [null, { kind: 'warn', message: 'kept' }] }"));
  assert.deepEqual(whole.notices, [{ code: undefined, message: "kept" }]);
});

test("the block notice and its code are kept, however many notices are before them", async (t) => {
  const { client } = await scripted(t);
  const stop = (last: string) =>
    client.toolCall(
      "t",
      code(`return { ok: false, cancel: true, notices:
        [...Array.from({ length: 20 }, (_, n) => ({ kind: 'info', code: 'N' + n, message: 'm' })), ${last}] }`),
    );
  const own = await stop("{ kind: 'block', code: 'MY_CODE', message: 'why' }");
  assert.deepEqual([own.verdict, own.code, own.notices.length], ["cancel", "MY_CODE", 16]);
  assert.deepEqual(own.notices[0], { code: "MY_CODE", message: "why" });
  assert.equal((await stop("{ kind: 'info', code: 'QUOTA_EXCEEDED', message: 'why' }")).code, "QUOTA_EXCEEDED");
});

test("a queue with one worker can't use the storage of another tenant's call", async (t) => {
  const { client, host } = await withHost(t);
  const ask = (tenant: string, script: string) =>
    client.toolCall("t", code(script), { tenant, hostToken: callToken(host, "scripted", tenant) });
  // The call of A works until there is a job, and runs the job of B in its own async scope.
  const worker = ask(
    "a",
    `while (self.job === undefined) await new Promise((resolve) => setTimeout(resolve, 5));
    await self.job().then(() => self.done("written"), (error) => self.done(error.message));
    return { ok: true, modify: { args: await context.agent.storage.database.get("who") ?? "nothing" } };`,
  );
  const job = ask(
    "b",
    `const answer = new Promise((resolve) => (self.done = resolve));
    self.job = () => context.agent.storage.database.set("who", "b");
    return { ok: true, modify: { args: await answer } };`,
  );
  assert.match(String((await job).modify.args), /use the context of the current call/);
  assert.equal((await worker).modify.args, '"nothing"', "the storage of A is as it was");
  const kept = "self.db ??= context.agent.storage.database; await self.db.set('x', 1); return { ok: true }";
  assert.equal((await ask("a", kept)).verdict, "continue");
  assert.equal((await ask("a", kept)).verdict, "continue", "a later call of the same tenant");
  assert.match((await failure(ask("b", kept))).details, /use the context of the current call/);
});

test("a logger writes for the call whose context it is from, wherever it is used", async (t) => {
  const { client, runner } = await scripted(t);
  const first = client.toolCall(
    "t",
    code("while (self.log.length === 0) await new Promise((resolve) => setTimeout(resolve, 5)); self.log[0](); return { ok: true }"),
    { tenant: "a", session: "s-a" },
  );
  await client.toolCall("t", code("self.log.push(() => context.logger.warn('of b')); return { ok: true }"), {
    tenant: "b",
    session: "s-b",
  });
  await first;
  const line = await runner.line(/of b/);
  assert.deepEqual([line.plugin, line.tenant, line.session_id], ["scripted", "b", "s-b"]);
});

test("a medium with many spaces doesn't block the process, and an unchanged URL stays one", () => {
  const begin = performance.now();
  const spaces = `${" ".repeat(500_000)}!`;
  assert.throws(() => mediaFromDexto({ image: spaces, mimeType: "image/png" }, "image", []), /must be base64, a URL or bytes/);
  assert.ok(performance.now() - begin < 2000, `${performance.now() - begin} ms`);
  for (const url of ["images/cat", "gs://bucket/cat.png", "data:image/png;base64,aGk="]) {
    const before = [{ url, mimeType: "image/png" }];
    assert.deepEqual(mediaFromDexto({ image: url, mimeType: "image/jpeg" }, "image", before), [{ url, mimeType: "image/jpeg" }]);
  }
  const [wrapped] = mediaFromDexto({ image: "data:image/png;base64,aG\nk= ", mimeType: "image/png" }, "image", []);
  assert.deepEqual(Buffer.from(wrapped?.data ?? []).toString(), "hi");
});

test("members of a modify with names of Object.prototype go into extra", () => {
  const call = { extra: { seen: 1 }, toolName: "t", args: {} } as never;
  const before = { toolName: "t", args: {}, seen: 1 };
  const modify = JSON.parse('{"constructor":{"a":1},"toString":"x","__proto__":{"b":2}}');
  const { extra } = patchFromDexto("beforeToolCall", call, before, { ...before, ...modify });
  assert.equal(JSON.stringify(extra), '{"seen":1,"constructor":{"a":1},"toString":"x","__proto__":{"b":2}}');
  assert.equal(Object.getPrototypeOf(extra), Object.prototype);
});

test("whatever a plugin throws or logs has a text", async (t) => {
  const thrown: [unknown, string][] = [
    [Object.create(null), "[a value without a text]"],
    [Object.assign(new Error(""), { message: 5 }), "Error: 5"],
    [Object.assign(new Error(""), { message: Object.create(null) }), "[a value without a text]"],
    [
      {
        get message() {
          throw new Error("getter");
        },
      },
      "[object Object]",
    ],
    [{ message: "m" }, "m"],
    [undefined, "undefined"],
  ];
  for (const [error, expected] of thrown) assert.equal(messageOf(error), expected);
  assert.equal(cut(Object.create(null)), "[a value without a text]");
  const details = {
    get broken() {
      throw new Error("getter");
    },
    nothing: Object.create(null),
  };
  assert.doesNotThrow(() => logLine("debug", Object.create(null), details, []));
  const { client, runner } = await scripted(t);
  assert.equal((await failure(client.toolCall("t", code("throw Object.create(null)")))).code, 10);
  const logs = "context.logger.warn(Object.create(null), { get broken() { throw new Error('getter'); } }); return { ok: true }";
  assert.equal((await client.toolCall("t", code(logs))).verdict, "continue");
  assert.equal((await runner.line(/a member that throws/)).message, "[a value without a text]");
});

test("a plugin can't forge lines of the process's log, and its bytes are UTF-8", async (t) => {
  const { client, runner } = await scripted(t);
  const forged = "process.stderr.write(JSON.stringify({ level: 'error', message: 'forged', plugin: 'other' }) + '\\n');";
  const written = "process.stdout.write(new TextEncoder().encode('größe'));";
  assert.equal((await client.toolCall("t", code(`${forged} ${written} return { ok: true }`))).verdict, "continue");
  const line = await runner.line(/forged/);
  assert.deepEqual([line.plugin, line.tenant, JSON.parse(line.message).plugin], ["scripted", "acme", "other"]);
  assert.equal((await runner.line(/größe/)).plugin, "scripted");
  await client.toolCall("t", code("context.logger.warn('detailed', { plugin: 'other', tenant: 'x' }); return { ok: true }"));
  const detailed = await runner.line(/detailed/);
  assert.deepEqual([detailed.plugin, detailed.tenant], ["scripted", "acme"]);
  assert.equal(runner.stdout(), "");
});

test("an entry of agent_tools has members of the right types", async (t) => {
  const { readEntries } = await import("../dist/file.js");
  const folder = temporaryFolder(t);
  for (const tool of ["{ id: bash, destructive: 'no' }", "{ id: bash, description: 5 }", "{ description: x }"]) {
    const file = write(folder, "runner.yaml", `plugins: [{ dialect: drover, module: ./a.ts, agent_tools: [${tool}] }]`);
    assert.throws(() => readEntries(file), /`agent_tools` must be a list; each entry: an object with the text `id`.*true or false/);
  }
  const right = "{ id: bash, description: Runs., destructive: false }";
  const file = write(folder, "runner.yaml", `plugins: [{ dialect: drover, module: ./a.ts, agent_tools: [${right}] }]`);
  assert.equal(readEntries(file)[0]?.agentTools?.length, 1);
});
