/** Tools of drover's plugins. They run here, so their wrappers can do everything. */
import { type Context, type Tool, ToolError } from "@hookgate/sdk";
import { Ajv } from "ajv";
import { messageOf } from "../entry.js";
import { cut } from "../notices.js";
import { plainNumbers } from "../numbers.js";
import { type TextResult, checkTextResult, ownToolResult } from "../tool-result.js";
import { toolDescription, toolInput } from "../tools.js";
import type { RunCall } from "./points.js";
import { toolContext } from "./run-context.js";
import type { ToolDef } from "./types.js";

// Schemas of TypeBox have keywords of their own.
const ajv = new Ajv({ strict: false, validateFormats: false, validateSchema: false, allErrors: true });

/** A tool as the SDK serves it. @param callOf Finds the run of a call, and the model's id of it. */
export function servedTool(plugin: string, tool: ToolDef, callOf: (ctx: Context) => Promise<RunCall & { callId: string }>): Tool {
  const { id, description, inputSchema, destructive } = tool;
  const input = toolInput(plugin, id, inputSchema, checkOf(inputSchema));
  const run = async (args: any, ctx: Context): Promise<TextResult> => {
    const { state, run, isShared, callId } = await callOf(ctx);
    const inRun = state.wrap(id) ?? state.ownTool(id);
    if (inRun === undefined) throw new Error(`the plugin's tool ${id} is missing in this run`);
    let returned: unknown;
    try {
      returned = await state.effects.run(await inRun.execute(plainNumbers(args), toolContext(run, ctx, callId, isShared)), ctx.signal);
    } catch (error) {
      throw new ToolError(cut(messageOf(error)));
    }
    return ownToolResult(checkTextResult(returned, `the tool ${id}`));
  };
  const annotations = destructive === undefined ? {} : { annotations: { destructiveHint: destructive } };
  return { name: id, description: toolDescription(id, description), input, run, ...annotations };
}

function checkOf(inputSchema: unknown): (value: object) => readonly string[] {
  if (inputSchema === null || typeof inputSchema !== "object" || "~standard" in inputSchema) return () => [];
  const validate = ajv.compile(JSON.parse(JSON.stringify(inputSchema)) as object);
  return (value) => {
    if (validate(value)) return [];
    return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath || "the object"} ${message}`);
  };
}
