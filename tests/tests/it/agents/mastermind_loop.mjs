// A stand-in for Master Mind: its plugin loader, its registry of tools and its agent, with the drop-in as the only plugin. There are two
// forms. In the older one the registry asks plugins, and they decide. In the newer one the agent asks them while its library runs the tool.
// Standard input has the form, the plugin's options and the messages. Standard output gets what came of each message.
import { text } from "node:stream/consumers";
import hookgate from "./hookgate.ts";

const { form, options, messages } = JSON.parse(await text(process.stdin));

const registry = new Map();
const toolRegistry = {
  register: (tool) => registry.set(tool.name, tool),
  has: (name) => registry.has(name),
  getLLMTools: () => [...registry.values()].map(({ name, description, inputSchema }) => ({ name, description, input_schema: inputSchema })),
};

/** Runs a tool in the older form. The model gets the result. */
async function execute(hooks, name, input) {
  const left = await hooks.beforeToolExecute(name, input);
  if (left === null) return { content: `Tool execution blocked by plugin for tool: ${name}`, isError: true };
  const tool = registry.get(left.name);
  if (tool === undefined) return { content: `Unknown tool: ${left.name}`, isError: true };
  try {
    return await hooks.afterToolExecute(left.name, left.input, await tool.execute(left.input));
  } catch (error) {
    return { content: `Tool execution error: ${error.message}`, isError: true };
  }
}

/** Runs a tool in the newer form. What the plugin returns is shown, and the model gets the tool's own result. */
async function stream(hooks, toolName, args) {
  const running = registry.get(toolName).execute(args);
  await hooks.beforeToolCall({ toolName, toolCallId: "call-1", args });
  const { content, isError = false } = await running;
  await hooks.afterToolResult({ toolName, toolCallId: "call-1", result: { content, isError }, durationMs: 3 });
  return { content, isError };
}

async function handleMessage(hooks, { text, tools = [], answer }) {
  const outcome = { model: [], ran: [], shown: [] };
  for (const { name, result, error } of tools.filter((tool) => "result" in tool || "error" in tool)) {
    const run = async (input) => {
      outcome.ran.push({ name, input });
      if (error !== undefined) throw new Error(error);
      return result;
    };
    toolRegistry.register({ name, description: name, inputSchema: { type: "object" }, execute: run });
  }
  try {
    outcome.model.push(await hooks.beforeMessage(text));
  } catch (error) {
    return { ...outcome, thrown: error.message };
  }
  try {
    const runTool = form === "older" ? execute : stream;
    for (const { name, input } of tools) outcome.model.push(await runTool(hooks, name, input));
    outcome.shown.push(answer);
    await hooks.afterResponse({ content: answer, stopReason: "end_turn" });
  } catch (error) {
    outcome.shown.push({ error: error.message });
  }
  return outcome;
}

let hooks;
try {
  ({ hooks } = await hookgate(options));
  await hooks.onInit({ config: {}, ...(form === "older" && { toolRegistry }) });
  const outcomes = [];
  for (const message of messages) outcomes.push(await handleMessage(hooks, message));
  console.log(JSON.stringify({ outcomes }));
} catch (error) {
  console.log(JSON.stringify({ startFailed: error.message }));
}
await hooks?.onShutdown();
