/** Tools of drover's plugins. They run here, so their wrappers can do everything. */
import { type Context, type Schema, type Tool, ToolError } from "@hookgate/sdk";
import { Ajv, type ValidateFunction } from "ajv";
import { EntryError, messageOf } from "../entry.js";
import { cut } from "../notices.js";
import { plainNumbers } from "../numbers.js";
import { type TextResult, ownToolResult } from "../tool-result.js";
import { toolDescription, toolInput } from "../tools.js";
import { type RunCall, recordRun } from "./points.js";
import { plainResult } from "./results.js";
import { toolContext } from "./run-context.js";
import type { ToolDef } from "./types.js";

// Schemas of TypeBox have keywords of their own. All errors of a large input would be larger than the input.
const AJV_OPTIONS = { strict: false, validateFormats: false, validateSchema: false, allErrors: false } as const;

/**
 * A tool as the SDK serves it.
 *
 * @param callOf Finds the run of a call, and the model's id of it.
 * @throws {EntryError} If its schema can't be used.
 */
export function servedTool(
  plugin: string,
  tool: ToolDef,
  callOf: (ctx: Context) => Promise<RunCall & { callId: string | undefined }>,
): Tool {
  const { id, description, inputSchema, destructive } = tool;
  const input = withPlainNumbers(toolInput(plugin, id, inputSchema, checkOf(plugin, id, inputSchema)));
  const runInItsRun = async (args: any, ctx: Context): Promise<TextResult> => {
    const on = await callOf(ctx);
    const { state, run, isShared, callId } = on;
    const inRun = state.wrap(id, ctx.tenant) ?? state.ownTool(id);
    if (inRun === undefined) throw new Error(`the plugin's tool ${id} is missing in this run`);
    if (callId !== undefined) recordRun(on, callId);
    const context = toolContext(run, ctx, callId ?? ctx.requestId, isShared);
    return plainResult(await state.effects.run(await inRun.execute(args, context), ctx.signal), `the tool ${id}`);
  };
  const run = async (args: any, ctx: Context): Promise<TextResult> => {
    let returned: TextResult;
    try {
      returned = await runInItsRun(args, ctx);
    } catch (error) {
      throw new ToolError(cut(messageOf(error)));
    }
    return ownToolResult(returned);
  };
  const annotations = destructive === undefined ? {} : { annotations: { destructiveHint: destructive } };
  return { name: id, description: toolDescription(id, description), input, run, ...annotations };
}

/** Integers beyond 2^53 come as BigInts, which no schema takes for an integer. */
function withPlainNumbers(schema: Schema<any, any>): Schema<any, any> {
  const standard = schema["~standard"];
  return { "~standard": { ...standard, validate: (value: unknown) => standard.validate(plainNumbers(value as never)) } } as Schema<
    any,
    any
  >;
}

function checkOf(plugin: string, tool: string, inputSchema: unknown): (value: object) => readonly string[] {
  if (inputSchema === null || typeof inputSchema !== "object" || "~standard" in inputSchema) return () => [];
  const validate = compile(plugin, tool, inputSchema);
  return (value) => {
    if (validate(value) === true) return [];
    return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath || "the object"} ${message}`);
  };
}

/** Each schema has a compiler of its own: one for all would keep the schemas, and refuse a second one with the same `$id`. */
function compile(plugin: string, tool: string, inputSchema: object): ValidateFunction {
  try {
    const validate = new Ajv(AJV_OPTIONS).compile(JSON.parse(JSON.stringify(inputSchema)) as object);
    if ("$async" in validate) throw new TypeError("`$async` isn't supported");
    return validate;
  } catch (error) {
    throw new EntryError(`plugin '${plugin}': \`inputSchema\` of the tool ${tool} can't be used: ${messageOf(error)}`, { cause: error });
  }
}
