/** Tools of the AI SDK behind the gateway, and how a run ends although the SDK catches what tools throw. */
import { type ToolSet, asSchema } from "ai";
import { currentContext } from "../agent/call-context.js";
import type { GatewayClient } from "../agent/client.js";
import type { PromptMessage } from "./ai-prompt.js";
import { type ToolOutput, guardToolRun } from "./guard.js";
import { fromJson, isRecord, messageOf, toText } from "../values.js";

/**
 * The tools behind the gateway: `before_tool_call` before each runs, `after_tool_result` on success and on failure. The
 * tools themselves stay as they are.
 *
 * - A plugin may change the arguments, which then have to fit the tool's schema, and the tool's name, to another of `tools`.
 * - A plugin may give the result instead of the tool, or change it.
 * - After a block the model gets its message as the tool's error, whose `cause` is the `Blocked`.
 * - A block with the scope `run`, and a missing decision, end the run: the next call of a model with `guard` throws them,
 *   because the SDK gives whatever a tool throws to the model. A `prepareStep` that removes the tool's result, or puts a message after
 *   it, prevents that.
 * - If one of these, or a `PatchError`, ends a run within a tool, such as that of an agent, it also ends this run, whatever the
 *   tool makes of it.
 * - A tool that yields several results gives only the last one. The others are not judged.
 *
 * @throws {TypeError} If a tool has no `execute`. The provider or the user's browser runs it, where no gateway is asked.
 */
export function guardTools<Tools extends ToolSet>(gateway: GatewayClient, tools: Tools): Tools {
  const guarded = Object.entries(tools).map(([name, tool]) => [name, guardTool(gateway, name, tool, tools)]);
  return Object.fromEntries(guarded) as Tools;
}

type Tool = ToolSet[string];

interface ExecuteOptions {
  readonly toolCallId: string;
  readonly abortSignal?: AbortSignal | undefined;
}

type Execute = (input: unknown, options: ExecuteOptions) => unknown;

function guardTool(gateway: GatewayClient, name: string, tool: Tool, tools: ToolSet): Tool {
  if (typeof tool.execute !== "function") {
    throw new TypeError(`the tool ${name} has no execute, so that the gateway can't guard it: leave it out of guardTools`);
  }
  const execute: Execute = async (input, options) => {
    const { toolCallId, abortSignal } = options;
    const call = { toolName: name, args: input, callId: toolCallId, signal: abortSignal };
    const run = async (toolName: string, args: unknown): Promise<ToolOutput<unknown>> => {
      const value = await executeTool(
        toolName,
        toolName === name ? tool : ownTool(tools, toolName),
        args,
        args !== input || toolName !== name,
        options,
      );
      return { value, result: value, success: true };
    };
    const outcome = await guardToolRun(gateway, call, run).catch((error: unknown) => {
      if (!abortSignal?.aborted) endRun(gateway, toolCallId, error);
      throw toolError(error);
    });
    if (outcome.kind === "own") return outcome.value;
    if (outcome.kind === "failed") throw outcome.error;
    if (outcome.kind === "blocked") throw toolError(outcome.blocked);
    if (outcome.success) return fromJson(outcome.result);
    throw new Error(toText(outcome.result));
  };
  return { ...tool, execute } as Tool;
}

/** What the SDK keeps in its steps. A block has the payload that it stopped, so it is only the cause, which isn't written as JSON. */
function toolError(error: unknown): Error {
  return new Error(messageOf(error), { cause: error });
}

function ownTool(tools: ToolSet, name: string): Tool | undefined {
  return Object.hasOwn(tools, name) ? tools[name] : undefined;
}

/** @param isChanged Whether the arguments or the tool aren't those that the SDK has checked. */
async function executeTool(
  name: string,
  tool: Tool | undefined,
  args: unknown,
  isChanged: boolean,
  options: ExecuteOptions,
): Promise<unknown> {
  if (typeof tool?.execute !== "function") throw new Error(`a plugin changed the call to one of ${name}, which is none of the tools`);
  const input = isChanged ? await validate(name, tool, args) : args;
  const output: unknown = await (tool.execute as Execute)(input, options);
  if (!isAsyncIterable(output)) return output;
  let last: unknown;
  for await (const result of output) last = result;
  return last;
}

async function validate(name: string, tool: Tool, args: unknown): Promise<unknown> {
  const input = fromJson(args as Parameters<typeof fromJson>[0]);
  const result = await asSchema(tool.inputSchema).validate?.(input);
  if (result === undefined) return input;
  if (result.success) return result.value;
  throw new Error(`a plugin changed the arguments of ${name}, and they don't fit: ${messageOf(result.error)}`, { cause: result.error });
}

function isAsyncIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}

/** Why a run ended, and whose it was. */
interface RunEnd {
  readonly gateway: GatewayClient;
  readonly tenant: string | undefined;
  readonly error: unknown;
}

/**
 * What ended runs, newest last. Entries stay: another run may have the same call id and text, and the model may be asked again. A stale
 * one ends a run too often, never too seldom.
 */
const endedRuns = new Map<string, readonly RunEnd[]>();
const MAX_ENDED_RUNS = 16_384;
/** Most runs of others that are kept apart although they have the same call id and text. */
const MAX_OWNERS = 16;

function endRun(gateway: GatewayClient, toolCallId: string, error: unknown): void {
  const end = { gateway, tenant: currentContext().tenant, error };
  // Version 7 of the SDK gives the model the error as text, those before its message.
  for (const text of new Set([messageOf(error), String(toolError(error))])) {
    const key = runKey(toolCallId, text);
    const others = (endedRuns.get(key) ?? []).filter((other) => other.gateway !== gateway || other.tenant !== end.tenant);
    endedRuns.delete(key);
    endedRuns.set(key, [...others, end].slice(-MAX_OWNERS));
  }
  for (const key of endedRuns.keys()) {
    if (endedRuns.size <= MAX_ENDED_RUNS) break;
    endedRuns.delete(key);
  }
}

/** All that the SDK tells a model of a tool that threw: which call it was, and what the error says. */
function runKey(toolCallId: unknown, text: unknown): string {
  return JSON.stringify([toolCallId, text]);
}

/**
 * Throws what ended the run, if one of the tools whose results the model is about to get ended it.
 *
 * @throws {Blocked} With the scope `run`.
 * @throws {NoDecision} No decision could be made.
 * @throws {Error} What ended another tenant's run may have ended this one too. It says nothing of the other run.
 */
export function throwIfEnded(gateway: GatewayClient, prompt: readonly PromptMessage[]): void {
  const last = prompt.findLastIndex(({ role }) => role !== "tool");
  for (const { content } of prompt.slice(last + 1)) {
    for (const { type, toolCallId, output } of typeof content === "string" ? [] : content) {
      if (type !== "tool-result" || !isRecord(output) || output["type"] !== "error-text") continue;
      const ends = endedRuns.get(runKey(toolCallId, output["value"]));
      if (ends !== undefined) throw ownEnd(gateway, ends);
    }
  }
}

/** A block has the payload of its call, which is the tenant's own. */
function ownEnd(gateway: GatewayClient, ends: readonly RunEnd[]): unknown {
  const { tenant } = currentContext();
  const isOwn = (end: RunEnd) => (tenant === undefined || end.tenant === undefined ? end.gateway === gateway : end.tenant === tenant);
  const own = ends.findLast((end) => end.tenant === tenant && isOwn(end)) ?? ends.findLast(isOwn);
  return own === undefined ? new Error("the gateway ended a run at a call of a tool with the same id and message") : own.error;
}
