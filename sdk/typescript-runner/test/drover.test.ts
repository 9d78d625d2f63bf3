import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { CallOptions, PluginClient } from "./support/client.js";
import { FIXTURES, type Runner, runnerFailure, startRunner, temporaryFolder, write } from "./support/runner.js";

const FOLDER = `${FIXTURES}/drover`;

async function serve(
  t: TestContext,
  module: string,
  plugin: string,
  more: readonly string[] = [],
  bun = false,
): Promise<{ client: PluginClient; runner: Runner }> {
  const runner = await startRunner(t, ["--dialect", "drover", `${FOLDER}/${module}`, ...more], { bun });
  const client = runner.client(plugin);
  await client.initialize();
  return { client, runner };
}

let ids = 0;
const newId = () => `c-${++ids}`;

/** A whole call of a tool, as an agent makes it: the tool runs unless a plugin stops or answers the call. */
async function runTool(client: PluginClient, name: string, args: unknown, result: unknown, options: CallOptions = {}) {
  const callId = options.callId ?? newId();
  const before = await client.toolCall(name, args, { ...options, callId });
  if (before.verdict === "cancel" && before.result === undefined) return { before, callId };
  const returned = before.result === undefined ? result : JSON.parse(before.result);
  return { before, callId, after: await client.toolResult(name, returned, { ...options, callId }) };
}

test("R17: runs have a state of their own, also those of two tenants with one id", async (t) => {
  for (const bun of [false, true]) {
    const { client } = await serve(t, "loop-detect.ts", "loop-detect", [], bun);
    const runs: CallOptions[] = [{ run: "one" }, { run: "two" }, { run: "one", tenant: "globex" }, { session: "s" }];
    for (let round = 1; round <= 2; round += 1) {
      for (const options of runs) assert.equal((await client.toolCall("ls", { a: 1 }, options)).verdict, "continue");
    }
    const third = await client.toolCall("ls", { a: 1 }, { run: "one" });
    assert.deepEqual([third.verdict, third.code, third.message], ["cancel", "TOOL_NOT_ALLOWED", "same call 3 times"]);
    await client.hook("run_end", {}, { run: "one" });
    assert.equal((await client.toolCall("ls", { a: 1 }, { run: "one" })).verdict, "continue", "the run began again");
  }
});

test("R17: an agent that names no run has one state for each tenant, so that rules still count", async (t) => {
  const { client } = await serve(t, "loop-detect.ts", "loop-detect");
  for (let calls = 0; calls < 2; calls += 1) await client.toolCall("ls", {}, { requestId: newId() });
  assert.equal((await client.toolCall("ls", {}, { tenant: "globex" })).verdict, "continue");
  assert.equal((await client.toolCall("ls", {})).verdict, "cancel");
});

test("R22: a factory gets its options from the runner and the gateway", async (t) => {
  const { client, runner } = await serve(t, "loop-detect.ts", "loop-detect", ["--options", '{"window":2}']);
  await client.toolCall("ls", {}, { run: "r" });
  assert.equal((await client.toolCall("ls", {}, { run: "r" })).message, "same call 2 times");
  client.digest = "warn";
  await client.initialize({ warnOnly: true });
  for (let calls = 0; calls < 2; calls += 1) assert.equal((await client.toolCall("ls", {}, { run: "r" })).verdict, "continue");
  await runner.line(/loop of 2/);
});

test("R4: a throw, and anything that is no decision, deny", async (t) => {
  const { client } = await serve(t, "scripted.mjs", "scripted");
  for (const [name, expected] of [
    ["throws", /^plugin scripted errored: boom$/],
    ["sync-throw", /^plugin scripted errored: .*JSON/],
    ["nothing", /^plugin scripted errored: beforeToolCall returned neither/],
    ["cwd", /^plugin scripted errored: `cwd` is unknown here: the agent may send its folder as the label `cwd`$/],
    ["destructive", /^plugin scripted errored: `tool` is unknown here: describe the tool `destructive` in `agent_tools`/],
  ] as [string, RegExp][]) {
    const { verdict, code, message } = await client.toolCall(name, {});
    assert.deepEqual([verdict, code], ["cancel", "TOOL_NOT_ALLOWED"]);
    assert.match(message ?? "", expected);
  }
});

test("R16: the context has the run, its parent, its depth and what the agent says", async (t) => {
  const { client } = await serve(t, "scripted.mjs", "scripted");
  const options = { run: "r", parentRun: "p", depth: 2, user: "ada", session: "s", labels: { cwd: "/work", team: "a" }, callId: "c" };
  const { message } = await client.toolCall("context", { a: 1 }, options);
  assert.deepEqual(JSON.parse(message ?? ""), {
    runId: "r",
    parentRunId: "p",
    depth: 2,
    cwd: "/work",
    signal: {},
    input: { a: 1 },
    id: "c",
    meta: { cwd: "/work", team: "a", sessionId: "s", userId: "ada", tenant: "acme", operator: "op" },
  });
});

test("R8: a wrapper rewrites the arguments, and later the result", async (t) => {
  const { client } = await serve(t, "scripted.mjs", "scripted");
  const { before } = await runTool(client, "rewrite", { id: 1 }, "done");
  assert.deepEqual([before.verdict, before.modify], ["continue", { args: '{"id":1,"safe":true}' }]);
  const callId = newId();
  await client.toolCall("timed", {}, { callId });
  await sleep(60);
  assert.equal((await client.toolResult("timed", "done", { callId })).modify.result, '"done slow"', "it sees how long the tool ran");
});

test("R8: wrappers of one agent's plugins nest in their order, answer instead of the tool, and rewrite its result", async (t) => {
  for (const bun of [false, true]) {
    const { client } = await serve(t, "cache.ts", "cache", [], bun);
    const options = { run: "r" };
    const first = await runTool(client, "read", { path: "a" }, { content: "a long content", isError: false }, options);
    assert.deepEqual([first.before.verdict, first.before.modify], ["continue", {}]);
    const shown = JSON.parse(first.after?.modify.result as string) as { content: string };
    assert.deepEqual(shown, { content: `a long con... ${first.callId}`, isError: false });
    const second = await runTool(client, "read", { path: "a" }, "never read", options);
    assert.deepEqual(
      JSON.parse(second.before.result ?? ""),
      { content: `[again] ${shown.content}`, isError: false },
      "the cache has the cut result",
    );
    assert.deepEqual(second.after?.modify, {}, "an answer isn't wrapped again");
    const other = await runTool(client, "read", { path: "a" }, "short", { run: "other" });
    assert.equal(other.before.result, undefined, "another run has another cache");
    await client.toolCall("write", {}, { ...options, callId: newId() });
    assert.equal((await runTool(client, "read", { path: "a" }, "short", options)).before.result, undefined, "a write empties it");
  }
});

test("R10: tools of plugins are offered and run, with their wrappers, ids and checks", async (t) => {
  const { client } = await serve(t, "cache.ts", "cache");
  const { tools } = await client.initialize();
  assert.deepEqual(
    tools.map(({ name, description }) => [name, description]),
    [["show_all", "Shows the whole result."]],
  );
  const { callId } = await runTool(client, "read", { path: "a" }, "a long content", { run: "r" });
  const ask = (args: unknown) => client.toolCall("show_all", args, { run: "r", runTool: true });
  await client.toolCall("show_all", { id: callId }, { run: "r", callId: "own" });
  assert.equal((await ask({ id: callId })).result, '{"content":"a long content","data":{"by":"own"}}');
  assert.deepEqual(await ask({ id: "x" }), {
    verdict: "cancel",
    code: "TOOL_FAILED",
    message: "nothing of x",
    result: undefined,
    modify: {},
    notices: [],
  });
  assert.equal((await ask({ id: 5 })).message, "The arguments are wrong: /id must be string");
  assert.equal((await client.toolCall("show_all", { id: callId }, { run: "other", runTool: true })).message, `nothing of ${callId}`);
});

test("R9: a wrapper that retries gets an error, and the model sees it", async (t) => {
  const { client } = await serve(t, "scripted.mjs", "scripted");
  assert.deepEqual((await runTool(client, "retry", {}, "done")).after?.modify, {});
  const { after } = await runTool(client, "retry", {}, "ENOENT", { success: false });
  assert.deepEqual([after?.verdict, after?.code], ["cancel", "TOOL_FAILED"]);
  assert.match(after?.message ?? "", /can't run a second time for one call: it runs at the agent/);
});

test("R9: a wrapper that limits the tool's time can't end the tool, but its error is what the model sees", async (t) => {
  const { client } = await serve(t, "scripted.mjs", "scripted");
  assert.deepEqual((await runTool(client, "limited", {}, "done")).after?.modify, {});
  const callId = newId();
  assert.equal((await client.toolCall("limited", {}, { callId })).verdict, "continue");
  await sleep(60);
  const late = await client.toolResult("limited", "done", { callId });
  assert.deepEqual([late.verdict, late.code, late.message], ["cancel", "TOOL_FAILED", "took more than 20 ms"]);
});

test("R8: a wrapper that fails or hangs keeps the tool from running", async (t) => {
  const { client } = await serve(t, "scripted.mjs", "scripted");
  assert.deepEqual((await runTool(client, "refuses", {}, "")).before.message, "not today");
  assert.match(
    (await client.toolCall("hangs", {}, { callId: newId(), timeoutMs: 1000 })).message ?? "",
    /neither called the tool nor answered in time/,
  );
  assert.match((await client.toolCall("peeks", {}, { callId: newId() })).message ?? "", /wrapTool errored: `destructive` is unknown here/);
});

test("R8: a result whose wrapper isn't waiting passes it from its begin: without call_id, after a restart, or in another process", async (t) => {
  const { client } = await serve(t, "cache.ts", "cache");
  const cutResult = await client.toolResult("ls", { content: "a long content" }, { callId: "never-asked" });
  assert.deepEqual(JSON.parse(cutResult.modify.result as string), { content: "a long con... never-asked" });
  assert.equal((await client.toolCall("ls", {})).verdict, "continue");
  assert.match((await client.toolResult("ls", "another long content")).modify.result as string, /^"another lo\.\.\. /);
  await client.toolCall("ls", {}, { callId: "c" });
  assert.match(
    (await client.toolResult("ls", "a long content", { callId: "c", tenant: "globex" })).modify.result as string,
    /c"$/,
    "another tenant's call",
  );
});

test("R6, R7: a result is rewritten; after an error it stays, with a notice", async (t) => {
  const { client } = await serve(t, "scripted.mjs", "scripted");
  assert.equal((await client.toolResult("redact", "a secret")).modify.result, '"a [x]"');
  assert.equal((await client.toolResult("redact", { id: 2, rows: ["secret"] })).modify.result, '{"id":2,"rows":["[x]"]}');
  const broken = await client.toolResult("after-throws", "done");
  assert.deepEqual([broken.verdict, broken.modify], ["continue", {}]);
  assert.deepEqual(broken.notices, [{ code: "PLUGIN_ERRORED", message: "plugin scripted errored, and the result stays: after broke" }]);
});

test("R19: a confirm gate waits for a human, and denies if none decides in time", async (t) => {
  const { client } = await serve(t, "scripted.mjs", "scripted");
  const decide = async (config: object, timeoutMs: number) => {
    client.digest = JSON.stringify(config);
    await client.initialize(config);
    return client.toolCall("confirm", {}, { timeoutMs });
  };
  assert.equal((await decide({ answer: "approve", answerMs: 50 }, 5000)).verdict, "continue");
  assert.equal((await decide({ answer: "reject" }, 5000)).message, "confirm-gate denied confirm");
  const late = await decide({ answer: "approve", answerMs: 60_000 }, 1000);
  assert.deepEqual([late.verdict, late.code, late.message], ["cancel", "TOOL_NOT_ALLOWED", "plugin scripted gave no decision in time"]);
});

test("R20: a circuit breaker of a run counts its failures", async (t) => {
  const { client } = await serve(t, "scripted.mjs", "scripted");
  for (let calls = 0; calls < 2; calls += 1) await runTool(client, "broken", {}, "no", { run: "r", success: false });
  assert.equal((await client.toolCall("broken", {}, { run: "r" })).message, "the circuit is open");
  assert.equal((await client.toolCall("broken", {}, { run: "other" })).verdict, "continue");
});

test("R11, R12, R15: events, the start and end of runs, and compactions reach the plugin, and its failures nobody", async (t) => {
  const { client, runner } = await serve(t, "scripted.mjs", "scripted");
  const { hooks } = await client.call("describe", {});
  assert.deepEqual(hooks.map(({ hook }) => hook).sort(), ["before_compact", "event", "run_end", "run_start"]);
  assert.deepEqual(await client.hook("run_start", {}, { run: "r" }), []);
  assert.deepEqual(await client.hook("event", { kind: "turn_start", data: { turn: 3 } }, { run: "r" }), []);
  await runner.line(/start r/);
  assert.match((await runner.line(/event/)).message, /^event {"ts":"number","turn":3,"kind":"turn_start","runId":"r"}$/);
  const messages = [{ role: "user", content: "a long text" }];
  assert.deepEqual(await client.hook("before_compact", { messages }), [{ kind: "messages", value: [{ role: "user", content: "a l" }] }]);
  assert.deepEqual(await client.hook("before_compact", { messages: [{ role: "user", content: "abc" }] }), [], "nothing changed");
  await runTool(client, "broken", {}, "no", { run: "r", success: false });
  await client.hook("run_end", { outcome: "error" }, { run: "r" });
  await runner.line(/end error 1/);
});

test("Effects need the package of the plugin's own project", async (t) => {
  const folder = temporaryFolder(t);
  const marked = write(
    folder,
    "marked.mjs",
    "export default { id: 'marked', beforeToolCall: () => ({ [Symbol.for('effect/Effect')]: {} }) };",
  );
  const runner = await startRunner(t, ["--dialect", "drover", marked]);
  const client = runner.client("marked");
  await client.initialize();
  const { verdict, message } = await client.toolCall("ls", {});
  assert.equal(verdict, "cancel");
  assert.match(message ?? "", new RegExp(`has no package \`effect\`: run \`npm install effect\` in ${folder}`));
  await runner.line(/exports an object, so all runs and tenants share its state/);
});

test("a failed Effect denies with its message", async (t) => {
  const folder = `${FIXTURES}/drover`;
  const { client } = await serve(t, "failing.ts", "failing");
  assert.equal((await client.toolCall("fail", {})).message, "plugin failing errored: tagged");
  assert.equal((await client.toolCall("die", {})).message, "plugin failing errored: defect");
  assert.equal((await client.toolCall("later", {})).verdict, "continue");
  assert.ok(folder);
});

test("a shared object keeps tenants apart by the run's id", async (t) => {
  const path = write(
    temporaryFolder(t),
    "shared.mjs",
    "export default { id: 'shared', beforeToolCall: (n, i, ctx) => ({ kind: 'deny', reason: ctx.runId }) };",
  );
  const client = (await startRunner(t, ["--dialect", "drover", path])).client("shared");
  await client.initialize();
  const ids = await Promise.all(["acme", "globex"].map(async (tenant) => (await client.toolCall("ls", {}, { tenant, run: "r" })).message));
  assert.deepEqual(ids, ["acme/r", "globex/r"]);
});

test("agent_tools says what a plugin may read of the agent's tools, and state for whom it is kept", async (t) => {
  const file = write(
    temporaryFolder(t),
    "runner.yaml",
    `
    plugins:
      - dialect: drover
        module: ${FOLDER}/scripted.mjs
        agent_tools: [{ id: destructive, destructive: true }, { id: peeks, destructive: true }]
      - { dialect: drover, module: ${FOLDER}/loop-detect.ts, state: session, options: { window: 2 } }`,
  );
  const runner = await startRunner(t, [file]);
  const client = runner.client("scripted");
  await client.initialize();
  assert.equal((await client.toolCall("destructive", {})).message, "ask first");
  assert.equal((await client.toolCall("peeks", {})).verdict, "continue");
  const loop = runner.client("loop-detect");
  await loop.initialize();
  await loop.toolCall("ls", {}, { session: "s", run: "one" });
  assert.equal((await loop.toolCall("ls", {}, { session: "s", run: "two" })).message, "same call 2 times");
});

test("R1: what can't be a plugin keeps the runner from starting", (t) => {
  const folder = temporaryFolder(t);
  for (const [name, source, expected] of [
    ["no-id", "export default {}", /must export a plugin with the text `id`, a list of plugins, or a function that returns either/],
    ["empty", "export default []", /exports an empty list/],
    ["twice", "export default [{ id: 'a' }, { id: 'a' }]", /has two plugins with the `id` 'a'/],
    ["idle", "export default { id: 'idle' }", /plugin 'idle' has no tools, and no method that a gateway calls/],
    ["text", "export default { id: 'a', wrapTool: 1 }", /a member `wrapTool` that must be a function, and is number/],
    ["throws", "export default (o) => o.missing.x", /can't be made with the runner's `options`: .*undefined/],
    [
      "schema",
      "export default { id: 'a', tools: [{ id: 't', inputSchema: { type: 'array' }, execute() {} }] }",
      /`inputSchema` of the tool t must be a JSON Schema with the type `object`/,
    ],
    [
      "unresolved",
      "export default { id: 'a', tools: [{ id: 't', inputSchema: { type: 'object', $ref: '#/nowhere' }, execute() {} }] }",
      /plugin 'a': `inputSchema` of the tool t can't be used: can't resolve reference/,
    ],
  ] as [string, string, RegExp][]) {
    const path = write(folder, `${name}.mjs`, source);
    const { status, message } = runnerFailure(["--dialect", "drover", path, "--listen", "unix:///tmp/never-listens"]);
    assert.match(message.length > 0 ? message : "", expected);
    assert.equal(status, 1);
  }
});
