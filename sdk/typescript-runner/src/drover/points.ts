/** What drover's plugins do at the gateway's points. */
import { isDeepStrictEqual } from "node:util";
import {
  type AfterToolResultPayload,
  type BeforeToolCallPayload,
  type Context,
  type Reply,
  answer,
  cancel,
  proceed,
  writeJson,
} from "@hookgate/sdk";
import { messageOf } from "../entry.js";
import { type LooseNotice, boundedNotices, cut } from "../notices.js";
import { exactIntegers, plainNumbers } from "../numbers.js";
import { type TextResult, replyWithResult, textResultOf } from "../tool-result.js";
import { beforeDeadline } from "./deadline.js";
import type { HeldCall } from "./held-calls.js";
import { isAnswered, plainResult } from "./results.js";
import { qualifiedId, refuseToRead, runContext, toolContext } from "./run-context.js";
import type { RunState } from "./run-state.js";
import type { HarnessPlugin, RunContext, ToolDef } from "./types.js";
import { WrappedCall, type WrapperStep } from "./wrapped-call.js";

/** A call of one run. */
export interface RunCall {
  readonly state: RunState;
  readonly ctx: Context;
  readonly run: RunContext;
  /** Whether all runs share the plugins. */
  readonly isShared: boolean;
}

export function runCall(state: RunState, ctx: Context, isShared: boolean): RunCall {
  return { state, ctx, isShared, run: runContext(ctx, isShared) };
}

/** Notes that the plugin's own tool ran here for this call, in its wrappers: its result needs them no more. */
export function recordRun({ state, ctx }: RunCall, callId: string): void {
  state.held.set(ctx, callId, { kind: "ran" });
}

/** Asks all plugins in their order, and runs the wrappers up to the tool. */
export async function beforeToolCall(on: RunCall, call: BeforeToolCallPayload): Promise<Reply<any>> {
  // An agent that uses an id again has given up the call before it.
  if (call.callId !== undefined) on.state.held.drop(on.ctx, call.callId);
  for (const plugin of on.state.plugins) {
    const reason = await denialOf(on, plugin, call);
    if (reason !== undefined) return cancel("TOOL_NOT_ALLOWED", cut(reason));
  }
  // The wrappers of a plugin's own tool run with the tool. Where the agent's tool of that name runs instead, they get its result.
  if (on.state.ownTool(call.toolName) !== undefined) return proceed();
  let wrapped: ToolDef | undefined;
  try {
    wrapped = on.state.wrap(call.toolName, on.ctx.tenant);
  } catch (error) {
    return cancel("TOOL_NOT_ALLOWED", cut(`wrapTool errored: ${messageOf(error)}`));
  }
  if (wrapped === undefined) return proceed();
  try {
    return await runWrapper(on, wrapped, call);
  } catch (error) {
    return cancel("TOOL_FAILED", cut(messageOf(error)));
  }
}

/** Why the plugin denies the call; `undefined` if it allows it. Whatever isn't an allow is a deny. */
async function denialOf(on: RunCall, plugin: HarnessPlugin, call: BeforeToolCallPayload): Promise<string | undefined> {
  const { state, ctx, run } = on;
  if (plugin.beforeToolCall === undefined) return undefined;
  const { toolName, args, callId } = call;
  const late = new AbortController();
  const decide = async () => {
    const meta = metaOf(on, toolName, callId);
    return state.effects.run(await plugin.beforeToolCall?.(toolName, plainNumbers(args), run, meta), late.signal);
  };
  try {
    const decision = (await beforeDeadline(ctx, decide(), () => {
      late.abort();
      return { kind: "deny", reason: `plugin ${plugin.id} gave no decision in time` };
    })) as { kind?: unknown; reason?: unknown } | undefined;
    if (decision?.kind === "allow") return undefined;
    if (decision?.kind === "deny") return String(decision.reason ?? `plugin ${plugin.id} denied the call`);
    throw new TypeError('beforeToolCall returned neither { kind: "allow" } nor { kind: "deny", reason }');
  } catch (error) {
    return `plugin ${plugin.id} errored: ${messageOf(error)}`;
  }
}

/** The last argument of `beforeToolCall`. */
function metaOf({ state, ctx, isShared }: RunCall, toolName: string, callId: string | undefined): object {
  const meta = callId === undefined ? {} : { toolUseId: qualifiedId(ctx, callId, isShared) };
  const tool = state.ownTool(toolName);
  if (tool !== undefined) return { ...meta, tool };
  if (state.agentTools.some(({ id }) => id === toolName)) return { ...meta, tool: state.agentTool(toolName) };
  return refuseToRead(meta, "tool", `describe the tool \`${toolName}\` in \`agent_tools\` of the runner's file`);
}

/** Runs the wrapper until it calls the tool. Without an id of the call it can't be found again, so it isn't kept. */
async function runWrapper(on: RunCall, tool: ToolDef, call: BeforeToolCallPayload): Promise<Reply<any>> {
  const { state, ctx } = on;
  const wrapped = new WrappedCall();
  const input = plainNumbers(call.args);
  const step = await beforeDeadline(
    ctx,
    wrapped.begin(() => execute(on, tool, call, structuredClone(input), wrapped)),
    (): WrapperStep => {
      wrapped.abandon("the call took too long");
      return { kind: "failure", error: new Error("the wrapper neither called the tool nor answered in time") };
    },
  );
  const keep = (held: HeldCall, wrapperInput?: unknown) => {
    if (call.callId !== undefined) state.held.set(ctx, call.callId, held, wrapperInput);
  };
  if (step.kind === "failure") return cancel("TOOL_FAILED", cut(messageOf(step.error)));
  if (step.kind === "answer") {
    const result = plainResult(step.result, "the wrapper");
    keep({ kind: "answered", input, result });
    return result.isError ? cancel("TOOL_FAILED", cut(result.content)) : answer(result, cut(result.content));
  }
  if (step.input === undefined) {
    wrapped.abandon("the call was refused");
    return cancel("TOOL_FAILED", "the wrapper called the tool without its input");
  }
  try {
    const reply = isDeepStrictEqual(step.input, input) ? proceed() : proceed({ args: writable(exactIntegers(step.input, call.args)) });
    keep({ kind: "waiting", input: state.keepsInput ? input : undefined, wrapped }, input);
    return reply;
  } catch (error) {
    wrapped.abandon("the call was refused");
    throw error;
  }
}

/** @throws If the SDK couldn't send it, which would be a failed step and not a block. */
function writable<T>(value: T): T {
  writeJson(value);
  return value;
}

async function execute(
  on: RunCall,
  tool: ToolDef,
  call: { callId: string | undefined },
  input: unknown,
  wrapped: WrappedCall,
): Promise<unknown> {
  const { state, ctx, run, isShared } = on;
  return state.effects.run(await tool.execute(input, toolContext(run, ctx, call.callId ?? ctx.requestId, isShared, wrapped)));
}

/** Runs the wrappers' second half, and then all plugins in their order. */
export async function afterToolResult(on: RunCall, call: AfterToolResultPayload): Promise<Reply<any>> {
  const { state } = on;
  const before = textResultOf(call);
  const held = call.callId === undefined ? undefined : state.held.take(on.ctx, call.callId);
  const input = (held !== undefined && held.kind !== "ran" ? held.input : undefined) ?? plainNumbers(call.args ?? {});
  let current: TextResult;
  try {
    current = plainResult(await resumeWrapper(on, call, held, { input, result: before }), "the wrapper");
  } catch (error) {
    return cancel("TOOL_FAILED", cut(messageOf(error)));
  }
  const notices: LooseNotice[] = [];
  for (const plugin of state.plugins) current = await rewriteResult(on, plugin, { call, input, current, notices });
  return replyWithResult(call, before, current, boundedNotices(notices));
}

/**
 * What the wrappers make of the result. One that isn't waiting runs again from its begin, with the result at hand: a result never passes a
 * wrapper that would have changed it. That is so if the agent sends no `call_id`, if another process saw the call before it ran, and if the
 * tool ran although the wrapper answered or refused the call, as where the gateway only takes the plugin's advice.
 */
async function resumeWrapper(
  on: RunCall,
  call: AfterToolResultPayload,
  held: HeldCall | undefined,
  { input, result }: { input: unknown; result: TextResult },
): Promise<unknown> {
  if (held?.kind === "ran") return result;
  if (held?.kind === "waiting") return held.wrapped.resume(result);
  if (held?.kind === "answered" && isAnswered(held.result, result, call)) return result;
  const tool = on.state.wrap(call.toolName, on.ctx.tenant);
  return tool === undefined ? result : execute(on, tool, call, structuredClone(input), new WrappedCall(result));
}

interface ResultStep {
  readonly call: AfterToolResultPayload;
  readonly input: unknown;
  readonly current: TextResult;
  readonly notices: LooseNotice[];
}

/** What the plugin makes of the result. After an error it stays as it was, as in drover, and the operator gets a notice. */
async function rewriteResult(
  { state, run }: RunCall,
  plugin: HarnessPlugin,
  { call, input, current, notices }: ResultStep,
): Promise<TextResult> {
  if (plugin.afterToolCall === undefined) return current;
  try {
    const returned = await state.effects.run(
      await plugin.afterToolCall(call.toolName, structuredClone(input), structuredClone(current), run),
    );
    return plainResult(returned, "afterToolCall");
  } catch (error) {
    notices.push({
      kind: "warn",
      code: "PLUGIN_ERRORED",
      message: cut(`plugin ${plugin.id} errored, and the result stays: ${messageOf(error)}`),
    });
    return current;
  }
}
