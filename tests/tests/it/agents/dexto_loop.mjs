// A stand-in for Dexto: its plugin manager, its tool manager and a session, with the drop-in as the only plugin. Standard input has the
// plugin's entry in agent.yml and the turns, which run at the same time. Standard output gets what came of each turn.
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import Plugin from "./hookgate.ts";

const PLUGIN_MS = 5000;

/** A blocking plugin cancelled. */
class BlockedExecution extends Error {}

const { entry, turns } = JSON.parse(await text(process.stdin));
const plugin = new Plugin();

/** Asks the plugin. The payload is as it left it. */
async function executePlugins(point, payload, context) {
  let result;
  try {
    const late = sleep(PLUGIN_MS, undefined, { ref: false }).then(() => Promise.reject(new Error(`timed out after ${PLUGIN_MS}ms`)));
    result = await Promise.race([plugin[point]({ ...payload }, context), late]);
  } catch (error) {
    if (entry.blocking) throw new Error(`Plugin 'hookgate' failed: ${error.message}`);
    return payload;
  }
  context.notices.push(...(result.notices ?? []).map(({ code }) => code));
  const modified = result.ok && result.modify ? { ...payload, ...result.modify } : payload;
  if (result.cancel && entry.blocking) throw new BlockedExecution(result.message || "Operation blocked by plugin");
  return modified;
}

/** What the model gets for a call of a tool. Of what a plugin changes, Dexto uses the arguments and the result. */
async function executeTool({ name: toolName, args, result: own, error, callId }, context, ran) {
  const { args: left } = await executePlugins("beforeToolCall", { toolName, args, callId }, context);
  ran.push({ toolName, args: left });
  const after = (result, success) => executePlugins("afterToolResult", { toolName, result, success, callId }, context);
  if (error === undefined) return (await after(own, true)).result;
  await after(error, false);
  throw new Error(error);
}

async function stream({ text, imageData, fileData, tools = [], answer, reasoning, ...context }) {
  const { sessionId } = context;
  const outcome = { model: [], ran: [], notices: [] };
  context.notices = outcome.notices;
  try {
    // Only the text counts: the images and files that the model gets are the session's own.
    const request = await executePlugins("beforeLLMRequest", { text, imageData, fileData, sessionId }, context);
    outcome.model.push(request.text);
    for (const tool of tools) {
      // The model gets an error of a tool, and goes on.
      outcome.model.push(await executeTool(tool, context, outcome.ran).catch(({ message }) => ({ error: message })));
    }
    const { provider, model } = context.llmConfig;
    const response = { content: answer, reasoning, provider, model, sessionId };
    return { ...outcome, shown: (await executePlugins("beforeResponse", response, context)).content };
  } catch (error) {
    if (error instanceof BlockedExecution) return { ...outcome, shown: error.message };
    return { ...outcome, failed: error.message };
  }
}

try {
  await plugin.initialize(entry.config);
  console.log(JSON.stringify(await Promise.all(turns.map(stream))));
} catch (error) {
  console.log(JSON.stringify({ startFailed: error.message }));
}
await plugin.cleanup();
