import assert from "node:assert/strict";
import { test } from "node:test";
import { TenantMap, memoryOf } from "../dist/bounded-map.js";
import { Effects } from "../dist/drover/effects.js";
import { afterToolResult, beforeToolCall, recordRun, runCall } from "../dist/drover/points.js";
import { RunState, Runs } from "../dist/drover/run-state.js";

const effects = await Effects.forPlugin("/nowhere/plugin.mjs");

function context(caller: object, tenant = "acme", requestId = "r-1"): any {
  return { tenant, operator: "op", requestId, caller: { labels: {}, ...caller }, signal: new AbortController().signal };
}

/** One run of these plugins. */
function runOf(plugins: object[], caller: object = { runId: "r" }, isShared = false) {
  const state = new RunState(plugins as any, effects, []);
  const on = (more: object = {}, tenant?: string) => runCall(state, context({ ...caller, ...more }, tenant), isShared);
  return {
    state,
    on,
    before: async (toolName: string, args: object, callId: string) =>
      (await beforeToolCall(on(), { toolName, args, callId } as any)) as any,
    after: async (toolName: string, result: unknown, callId: string, more: object = {}) =>
      (await afterToolResult(on(), { toolName, result, callId, success: true, ...more } as any)) as any,
  };
}

const wrapping = (wrap: (tool: any) => unknown) => ({ id: "wrapper", wrapTool: wrap });
const redact = (tool: any) => async (input: unknown, ctx: unknown) => {
  const result = await tool.execute(input, ctx);
  return { ...result, content: result.content.replaceAll("SECRET", "[x]") };
};
/** Answers the first call, and redacts the results of all others. */
const answering = (answered: object) =>
  wrapping((tool) => {
    let calls = 0;
    const execute = (input: unknown, ctx: unknown) => (++calls === 1 ? answered : redact(tool)(input, ctx));
    return { ...tool, execute };
  });

test("a tool that ran although a wrapper answered for it has its result wrapped", async () => {
  for (const answered of [{ content: "cached" }, { content: "no", isError: true }]) {
    const run = runOf([answering(answered)]);
    const before = await run.before("read", {}, "c");
    assert.ok(before.cancelled, "it answered or refused");
    assert.deepEqual((await run.after("read", "a SECRET", "c")).patch, { result: "a [x]" });
  }
  const same = runOf([answering({ content: "cached SECRET", data: { a: 1 } })]);
  await same.before("read", {}, "c");
  const kept = await same.after("read", { content: "cached SECRET", data: { a: 1 } }, "c");
  assert.deepEqual(kept.patch, {}, "the answer itself isn't wrapped again");
});

test("a wrapper that changes the tool in place wraps it, once", async () => {
  let wraps = 0;
  const plugin = wrapping((tool) => {
    wraps += 1;
    const inner = tool.execute;
    tool.execute = (input: unknown, ctx: unknown) => redact({ execute: inner })(input, ctx);
    return tool;
  });
  const own = { id: "own", description: "d", inputSchema: {}, execute: async () => ({ content: "SECRET own" }) };
  const run = runOf([{ ...plugin, tools: [own] }]);
  const execute = own.execute;
  for (const id of ["a", "b"]) {
    await run.before("read", {}, id);
    assert.deepEqual((await run.after("read", "a SECRET", id)).patch, { result: "a [x]" });
    assert.deepEqual(await run.state.wrap("own", "acme")?.execute({}, {} as any), { content: "[x] own" });
  }
  assert.deepEqual([wraps, own.execute === execute], [2, true]);
});

test("a wrapper that returns no tool is a block", async () => {
  for (const returned of [undefined, {}, Promise.resolve({})]) {
    const run = runOf([wrapping(() => returned)]);
    assert.match(JSON.stringify(await run.before("read", {}, "c")), /wrapTool of wrapper returned no tool/);
    assert.match(JSON.stringify(await run.after("read", "SECRET", "c")), /TOOL_FAILED.*returned no tool/);
  }
});

test("what isn't known of a tool stays refused for the next wrapper, and a tool that no wrapper changes is remembered", async () => {
  let asked = 0;
  const first = wrapping((tool) => ({ ...tool, execute: redact(tool) }));
  const second = { id: "second", wrapTool: (tool: any) => (tool.destructive ? { ...tool } : tool) };
  assert.match(JSON.stringify(await runOf([first, second]).before("rm", {}, "c")), /`destructive` is unknown here/);
  const asking = (tool: object) => {
    asked += 1;
    return { ...tool };
  };
  const idle = runOf([wrapping(asking)]);
  for (const id of ["a", "b"]) assert.equal((await idle.before("ls", {}, id)).patch, undefined);
  assert.equal(asked, 1);
});

test("the agent's tool with the name of a plugin's tool has its result wrapped, and the plugin's own result is wrapped once", async () => {
  let runs = 0;
  const own = { id: "read", description: "d", inputSchema: {}, execute: async () => ({ content: `SECRET ${++runs}` }) };
  const run = runOf([{ ...wrapping((tool) => ({ ...tool, execute: redact(tool) })), tools: [own] }]);
  await run.before("read", {}, "agents");
  assert.deepEqual((await run.after("read", "a SECRET", "agents")).patch, { result: "a [x]" });
  assert.equal(runs, 0, "the plugin's tool didn't run");
  recordRun(run.on(), "own");
  assert.deepEqual((await run.after("read", "SECRET", "own")).patch, {});
  recordRun(run.on(), "again");
  await run.before("read", {}, "again");
  assert.deepEqual((await run.after("read", "SECRET", "again")).patch, { result: "[x]" }, "an id that is used again is a new call");
});

test("a shared plugin sees the ids of each tenant apart, and no label passes for an id", async () => {
  const seen: any[] = [];
  const beforeToolCall = (_: string, __: unknown, ctx: any, meta: any) => {
    seen.push([meta.toolUseId, ctx.meta]);
    return { kind: "allow" };
  };
  const wrapTool = (tool: any) => ({ ...tool, execute: (_: unknown, ctx: any) => ({ content: ctx.toolUseId }) });
  const run = runOf(
    [{ id: "a", beforeToolCall, wrapTool }],
    { sessionId: "s", userId: "ada", labels: { tenant: "x", projectId: "p", team: "t" } },
    true,
  );
  const reply = await askFor(run.on({}, "globex"));
  assert.deepEqual(seen, [["globex/c", { sessionId: "globex/s", userId: "globex/ada", team: "t", tenant: "globex", operator: "op" }]]);
  assert.match(JSON.stringify(reply), /"content":"globex\/c"/);
});

const askFor = (on: any) => beforeToolCall(on, { toolName: "read", args: {}, callId: "c" } as any);

test("an agent that names neither run nor session has one run id, and its held calls are found", async () => {
  const ids: string[] = [];
  const beforeToolCall = (_: string, __: unknown, ctx: any) => ids.push(ctx.runId) && { kind: "allow" };
  let wraps = 0;
  const counting = (tool: any) => (input: unknown, ctx: any) => {
    wraps += 1;
    return redact(tool)(input, ctx);
  };
  const wrapTool = (tool: any) => ({ ...tool, execute: counting(tool) });
  const state = new RunState([{ id: "a", beforeToolCall, wrapTool }] as any, effects, []);
  for (const requestId of ["one", "two"]) await askFor(runCall(state, context({ agentId: "x" }, "acme", requestId), false));
  assert.deepEqual(ids, ["agent:x", "agent:x"]);
  const late = runCall(state, context({ agentId: "x" }, "acme", "three"), false);
  await afterToolResult(late, { toolName: "read", result: "SECRET", callId: "c", success: true } as any);
  assert.equal(wraps, 2, "the waiting wrapper got the result");
});

test("data without a JSON form is the error of the plugin that returned it, and a block if a wrapper did", async () => {
  const odd = { id: "odd", afterToolCall: () => ({ content: "SECRET", data: { f: 1n } }) };
  const functions = { id: "functions", afterToolCall: (_: string, __: unknown, result: object) => ({ ...result, data: { f() {} } }) };
  const redactor = { id: "redactor", afterToolCall: (_: string, __: unknown, result: any) => ({ ...result, content: "[x]" }) };
  const run = runOf([odd, functions, redactor]);
  const reply = await run.after("read", "SECRET", "c");
  assert.deepEqual([reply.patch, reply.notices.length], [{ result: "[x]" }, 1]);
  assert.match(reply.notices[0].message, /plugin odd errored/);
  const wrapper = wrapping((tool) => ({ ...tool, execute: () => ({ content: "a", data: 1n }) }));
  assert.match(JSON.stringify(await runOf([wrapper]).after("read", "SECRET", "c")), /TOOL_FAILED/);
});

test("many failing plugins give no more notices than the gateway takes", async () => {
  const plugins = Array.from({ length: 40 }, (_, index) => ({
    id: `p${index}`,
    afterToolCall() {
      throw new Error("x".repeat(900));
    },
  }));
  const { notices } = await runOf(plugins).after("read", "a", "c");
  assert.ok(notices.length <= 16 && JSON.stringify(notices).length < 8192);
});

test("whatever goes wrong in a wrapper or a decision is a block", async () => {
  const odd = [Object.create(null), Object.assign(new Error(), { message: 5 }), { toString: null }];
  for (const thrown of odd) {
    const fails = () => {
      throw thrown;
    };
    assert.match(JSON.stringify(await runOf([{ id: "a", beforeToolCall: fails }]).before("read", {}, "c")), /TOOL_NOT_ALLOWED/);
    assert.match(JSON.stringify(await runOf([wrapping(fails)]).before("read", {}, "c")), /TOOL_NOT_ALLOWED/);
    const inside = wrapping((tool) => ({ ...tool, execute: fails }));
    assert.match(JSON.stringify(await runOf([inside]).before("read", {}, "c")), /TOOL_FAILED/);
  }
  const noResult = wrapping((tool) => ({ ...tool, execute: () => "not a result" }));
  assert.match(JSON.stringify(await runOf([noResult]).before("read", {}, "c")), /TOOL_FAILED.*returned no result/);
  const loop: { self?: object } = {};
  loop.self = loop;
  const oddInput = wrapping((tool) => ({ ...tool, execute: (_: unknown, ctx: unknown) => tool.execute(loop, ctx) }));
  assert.match(JSON.stringify(await runOf([oddInput]).before("read", {}, "c")), /TOOL_FAILED/);
});

test("a tenant with many runs pushes out its own, and not those of others", async () => {
  const runs = new Runs("run", async () => new RunState([], effects, []));
  const other = runs.of(context({ runId: "r" }, "globex"));
  for (let run = 0; run < 1500; run += 1) runs.of(context({ runId: `r${run}` }));
  assert.equal(runs.of(context({ runId: "r" }, "globex")), other);
  runs.endAll();
});

test("held calls of a tenant take no more than its share of the memory, and others keep theirs", async () => {
  let abandoned = 0;
  const wrapTool = (tool: any) => ({
    ...tool,
    execute: async (input: unknown, ctx: unknown) => {
      try {
        return await tool.execute(input, ctx);
      } catch (error) {
        abandoned += 1;
        throw error;
      }
    },
  });
  const { state } = runOf([{ id: "a", wrapTool }]);
  const ask = (tenant: string, callId: string, args: object) =>
    beforeToolCall(runCall(state, context({ runId: "r" }, tenant), true), { toolName: "read", args, callId } as any);
  await ask("globex", "g", {});
  for (let call = 0; call < 12; call += 1) await ask("acme", `c${call}`, { text: "x".repeat(1024 * 1024) });
  await new Promise(setImmediate);
  assert.ok(abandoned >= 4 && abandoned < 12, `${abandoned} were given up`);
  assert.ok(state.held.take(context({ runId: "r" }, "globex"), "g") !== undefined);
  const held = state.held.take(context({ runId: "r" }), "c11");
  assert.deepEqual(held?.kind === "waiting" && held.input, undefined, "no plugin gets the arguments with the result");
  state.end();
  await new Promise(setImmediate);
  assert.equal(abandoned, 11, "those of a run that ended wait no more");
});

test("a map of tenants is bounded: in entries, in bytes and in time", () => {
  let now = 0;
  const dropped: string[] = [];
  const limits = { maxSize: 4, maxIdleMs: 100, maxBytes: 100, maxTenantBytes: 60 };
  const map = new TenantMap<string>(
    limits,
    (value) => dropped.push(value),
    () => now,
  );
  map.set("b", "1", "b1");
  for (const key of ["1", "2", "3", "4"]) map.set("a", key, `a${key}`);
  assert.deepEqual([dropped.splice(0), map.size], [["a1"], 4], "the tenant with the most loses its oldest");
  map.get("a", "2");
  map.set("c", "1", "c1");
  assert.deepEqual(dropped.splice(0), ["a3"], "the one that was unused for the longest");
  map.clear();
  dropped.length = 0;
  map.set("a", "1", "a1", 40);
  map.set("a", "2", "a2", 40);
  assert.deepEqual(dropped.splice(0), ["a1"], "a tenant's share");
  map.set("b", "1", "b1", 30);
  map.set("c", "1", "c1", 50);
  assert.deepEqual(dropped.splice(0), ["c1"], "all bytes: of the tenant with the most");
  map.set("b", "2", "b2", 61);
  assert.deepEqual([dropped.splice(0), map.size], [["b2"], 2], "one that is too large pushes out none");
  now = 60;
  assert.equal(map.get("a", "2"), "a2");
  now = 110;
  map.dropIdle();
  assert.deepEqual([dropped.splice(0), map.take("a", "2"), map.size], [["b1"], "a2", 0], "what is taken isn't dropped");
  assert.ok(memoryOf({ a: ["xx"] }) > 64 && memoryOf(Array(1000).fill({})) > 64_000);
});
