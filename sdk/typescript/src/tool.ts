/** Tools that a plugin provides: functions from typed arguments to a JSON value (docs/protocol.md, section 10). */
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Context } from "./context.js";
import { PluginError } from "./errors.js";
import { type Cancel, Reply, cancel } from "./reply.js";
import { type Schema, SchemaError, check } from "./schema.js";
import type { JsonValue } from "./json.js";
import type { ToolAnnotations } from "./tool-annotations.js";

/** A tool. Made by {@link tool}. */
export interface Tool<Config = any, TenantConfig = any, State = any> {
  /** `[A-Za-z0-9_.-]{1,128}`. */
  readonly name: string;
  /** What the tool does, for the model; at most 4 KiB. */
  readonly description: string;
  /** What the arguments must be: an object. */
  readonly input: Schema;
  /** What to expect of it. */
  readonly annotations?: ToolAnnotations | undefined;
  /** Runs it with checked arguments. Its result is any JSON value. */
  run(args: any, ctx: Context<Config, TenantConfig, State>): unknown;
}

/**
 * A tool that the plugin runs when the agent's model calls it, after all other plugins have let the call pass. Arguments that don't fit
 * `input` are refused with a message that the model sees. `run` returns the result, any JSON value, or throws a {@link ToolError}.
 */
export function tool<S extends Schema, Config = any, TenantConfig = any, State = any>(definition: {
  name: string;
  description: string;
  input: S;
  annotations?: ToolAnnotations;
  run(args: StandardSchemaV1.InferOutput<S>, ctx: Context<Config, TenantConfig, State>): unknown;
}): Tool<Config, TenantConfig, State> {
  return definition;
}

/** The tool could not do what the arguments ask for. The agent gets a block, and shows the message to the model as the tool's error. */
export class ToolError extends Error {
  /** The name of the class. */
  override name = "ToolError";

  /** @param code Decides the HTTP status (docs/errors.md). */
  constructor(
    message: string,
    readonly code = "TOOL_FAILED",
  ) {
    super(message);
  }
}

/** @internal Runs the tool. The reply is what the gateway expects: a cancel with the result, or with the refusal. */
export async function runTool(called: Tool, args: JsonValue, ctx: Context): Promise<Reply<never>> {
  let checked: unknown;
  try {
    checked = await check(called.input, args);
  } catch (error) {
    if (!(error instanceof SchemaError)) throw error;
    return cancel("TOOL_ARGS_INVALID", `The arguments are wrong: ${error.message}`);
  }
  try {
    const result = (await called.run(checked, ctx)) ?? null;
    if (result instanceof Reply) {
      if (result.cancelled !== undefined) return result as Reply<never>;
      throw PluginError.internal(`the tool ${called.name} returned proceed(): return its result, or throw a ToolError`);
    }
    const cancelled: Cancel = { code: "", message: "", scope: "step", retryAfterMs: undefined, result };
    return new Reply<never>(cancelled, undefined, []);
  } catch (error) {
    if (error instanceof ToolError) return cancel(error.code, error.message);
    throw error;
  }
}
