import assert from "node:assert/strict";
import { test } from "node:test";
import { answerHook } from "../dist/drover/hooks.js";
import { Effects } from "../dist/drover/effects.js";
import { runCall } from "../dist/drover/points.js";
import { RunState } from "../dist/drover/run-state.js";
import { servedTool } from "../dist/drover/tools.js";
import { startRunner, temporaryFolder, write } from "./support/runner.js";

const effects = await Effects.forPlugin("/nowhere/plugin.mjs");

function context(tenant = "acme"): any {
  return { tenant, operator: "op", requestId: "r-1", caller: { labels: {}, runId: "r" }, signal: new AbortController().signal };
}

const numbers = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
const toolWith = (inputSchema: unknown, execute: (input: any) => unknown = () => ({ content: "" })): any => ({
  id: "t",
  inputSchema,
  execute,
});

/** The tool as the gateway calls it: its arguments are checked first. */
async function call(tool: any, args: unknown): Promise<any> {
  const plugins = [{ id: "p", tools: [tool] }] as any;
  const on = (ctx: any) => ({ ...runCall(new RunState(plugins, effects, []), ctx, false), callId: "c" });
  const served = servedTool("p", tool, async (ctx) => on(ctx)) as any;
  const { value, issues } = await served.input["~standard"].validate(args);
  return issues ?? served.run(value, context());
}

test("integers beyond 2^53 are integers for the schema of a tool, also for one that isn't JSON Schema", async () => {
  const standard = {
    "~standard": {
      version: 1,
      vendor: "test",
      validate: (value: any) => (typeof value.n === "number" ? { value } : { issues: [{ message: "no number" }] }),
      jsonSchema: { input: () => numbers, output: () => numbers },
    },
  };
  for (const schema of [numbers, standard]) {
    const tool = toolWith(schema, ({ n }) => ({ content: `${typeof n} ${n}` }));
    assert.equal((await call(tool, { n: 9007199254740993n })).content, "number 9007199254740992");
  }
});

test("a large wrong input is told one error", async () => {
  const items = toolWith({ type: "object", properties: { list: { type: "array", items: { type: "string" } } } });
  assert.equal((await call(items, { list: Array(100_000).fill(1) })).length, 1);
});

test("a schema with an `$id` can be used by several tools, and one that doesn't compile is named", async () => {
  const schema = { ...numbers, $id: "https://example.com/n" };
  for (let round = 0; round < 2; round += 1) assert.equal((await call(toolWith({ ...schema }), { n: 1 })).content, "");
  for (const wrong of [
    { type: "object", $ref: "#/nowhere" },
    { type: "object", $async: true },
  ]) {
    await assert.rejects(call(toolWith(wrong), {}), /plugin 'p': `inputSchema` of the tool t can't be used/);
  }
});

test("what a tool returns or throws instead of a result is its failure, with a text", async () => {
  const thrown = () => {
    throw Object.create(null);
  };
  for (const execute of [thrown, () => "text", () => ({ content: "a", data: 1n })]) {
    await assert.rejects(call(toolWith(numbers, execute), { n: 1 }), { name: "ToolError" });
  }
});

test("a tenant whose observers hang loses its own events only", async () => {
  const seen: string[] = [];
  const onEvent = (_: object, ctx: any) => {
    seen.push(ctx.meta.tenant);
    return ctx.meta.tenant === "acme" ? new Promise(() => {}) : undefined;
  };
  const state = new RunState([{ id: "p", onEvent }] as any, effects, []);
  const event = (tenant: string) => answerHook(runCall(state, context(tenant), true), { hook: "event", body: { kind: "k" } } as any);
  for (let count = 0; count < 150; count += 1) await event("acme");
  await event("globex");
  assert.deepEqual([seen.filter((tenant) => tenant === "acme").length, seen.at(-1)], [100, "globex"]);
});

test("a call is blocked if the plugins of its run can't be made, and a run ends also if a plugin hangs then", async (t) => {
  const source = `
    let made = 0;
    export default () => {
      if (++made === 4) throw Object.create(null);
      let calls = 0;
      return {
        id: "made",
        beforeToolCall: () => ({ kind: "deny", reason: String(++calls) }),
        afterToolCall: (name, input, result) => result,
        onRunEnd: () => new Promise(() => {}),
      };
    };`;
  const client = (await startRunner(t, ["--dialect", "drover", write(temporaryFolder(t), "made.mjs", source)])).client("made");
  await client.initialize();
  assert.equal((await client.toolCall("ls", {}, { run: "r" })).message, "1");
  assert.deepEqual(await client.hook("run_end", {}, { run: "r", timeoutMs: 1000 }), []);
  assert.equal((await client.toolCall("ls", {}, { run: "r" })).message, "1", "the run began again");
  const { verdict, code, message } = await client.toolCall("ls", {}, { run: "fails" });
  assert.deepEqual([verdict, code], ["cancel", "TOOL_NOT_ALLOWED"]);
  assert.match(message ?? "", /^plugin made errored: /);
});
