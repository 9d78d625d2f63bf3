// A stand-in for drover: how a run composes its tools and asks its plugins. The drop-in is a plugin of each run, in front of one that
// wraps tools too. Standard input has the gateway, the tokens and the runs, which are made at the same time. Standard output gets what came
// of each run.
import { text } from "node:stream/consumers";
import { Agent } from "@hookgate/sdk/agent";
import { Effect } from "effect";
import hookgate from "./hookgate.ts";

const { url, tokens, offersTools, events, timeoutMs, runs } = JSON.parse(await text(process.stdin));
const token = ({ tenant }) => tokens[tenant];
const gateway = new Agent(url, { token, timeoutMs, context: { agentId: "clerk" } });

/** A plugin that wraps tools outside of the drop-in. */
const wrapper = { id: "wrapper", wrapTool: (tool) => ({ ...tool, execute: (input, ctx) => tool.execute(input, ctx) }) };

/** The agent's own tool. A tool of drover fails with an error, returns one, or throws before it gives its effect. */
function ownTool({ id, result, fails, throws }, ran) {
  const execute = (input) => {
    if (throws !== undefined) {
      ran.push({ id, input });
      throw new Error(throws);
    }
    return Effect.suspend(() => {
      ran.push({ id, input });
      return fails === undefined ? Effect.succeed(result) : Effect.fail(new Error(fails));
    });
  };
  return { id, description: id, inputSchema: { type: "object" }, execute };
}

/** What the model gets of a call. */
async function call(tool, toolUseId, input, run) {
  if (tool === undefined) return { error: "no such tool" };
  const ctx = { runId: run.runId, toolUseId, cwd: run.cwd, env: {}, signal: run.signal, run };
  try {
    const { content, isError, data } = await Effect.runPromise(tool.execute(input, ctx));
    return isError ? { error: content } : { content, data };
  } catch (error) {
    return { error: error.message };
  }
}

async function runAgent({ tenant, calls, history, ...rest }) {
  const outcome = { ran: [], model: [] };
  const run = { cwd: "/srv/work", env: {}, signal: new AbortController().signal, meta: { tenant, userId: "ada" }, depth: 0, ...rest };
  const context = ({ meta }) => ({ tenant: meta.tenant });
  const plugins = [await hookgate(gateway, { context, events, ...(offersTools && { tools: { tenant } }) }), wrapper];
  let tools = [
    ...calls.filter(({ foreign }) => !foreign).map((one) => ownTool(one, outcome.ran)),
    ...plugins.flatMap(({ tools = [] }) => tools),
  ];
  for (const { wrapTool } of plugins) tools = tools.map((tool) => wrapTool(tool));
  const observe = (event) => {
    for (const { onEvent } of plugins) if (onEvent) Effect.runSync(onEvent({ ...event, runId: run.runId, ts: 1 }, run));
  };
  for (const { onRunStart } of plugins) if (onRunStart) await Effect.runPromise(onRunStart(run));
  for (const [index, { id, input }] of calls.entries()) {
    const seen = await call(
      tools.find((tool) => tool.id === id),
      `call-${index + 1}`,
      input,
      run,
    );
    outcome.model.push(seen);
    observe({ kind: "tool_call_end", toolName: id });
    observe({ kind: "usage", turn: 1 });
  }
  if (history !== undefined) outcome.history = await Effect.runPromise(plugins[0].beforeCompaction(history, run));
  for (const { onRunEnd } of plugins) if (onRunEnd) await Effect.runPromise(onRunEnd({ status: "success" }, run));
  return { ...outcome, tools: tools.map(({ id }) => id) };
}

try {
  console.log(JSON.stringify(await Promise.all(runs.map(runAgent))));
} catch (error) {
  console.log(JSON.stringify({ startFailed: error.message }));
}
gateway.close();
