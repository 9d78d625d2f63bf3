/** What drover's plugins do at the gateway's points. */
import { isDeepStrictEqual } from "node:util";
import {
  type AfterToolResultPayload,
  type BeforeToolCallPayload,
  type Context,
  type Notice,
  type Reply,
  answer,
  cancel,
  proceed,
} from "@hookgate/sdk";
import { messageOf } from "../entry.js";
import { cut } from "../notices.js";
import { exactIntegers, plainNumbers } from "../numbers.js";
import { type TextResult, checkTextResult, replyWithResult, textResultOf } from "../tool-result.js";
import { beforeDeadline } from "./deadline.js";
import { refuseToRead, runContext, toolContext } from "./run-context.js";
import type { PendingCall, RunState } from "./run-state.js";
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

/** Asks all plugins in their order, and runs the wrappers up to the tool. */
export async function beforeToolCall(on: RunCall, call: BeforeToolCallPayload): Promise<Reply<any>> {
  for (const plugin of on.state.plugins) {
    const reason = await denialOf(on, plugin, call);
    if (reason !== undefined) return cancel("TOOL_NOT_ALLOWED", cut(reason));
  }
  // The wrappers of a plugin's own tool run with the tool.
  if (on.state.ownTool(call.toolName) !== undefined) return proceed();
  let wrapped: ToolDef | undefined;
  try {
    wrapped = on.state.wrap(call.toolName);
  } catch (error) {
    return cancel("TOOL_NOT_ALLOWED", cut(`wrapTool errored: ${messageOf(error)}`));
  }
  return wrapped === undefined ? proceed() : runWrapper(on, wrapped, call);
}

/** Why the plugin denies the call; `undefined` if it allows it. Whatever isn't an allow is a deny. */
async function denialOf({ state, ctx, run }: RunCall, plugin: HarnessPlugin, call: BeforeToolCallPayload): Promise<string | undefined> {
  if (plugin.beforeToolCall === undefined) return undefined;
  const { toolName, args, callId } = call;
  const late = new AbortController();
  const decide = async () => {
    const meta = metaOf(state, toolName, callId);
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
function metaOf(state: RunState, toolName: string, callId: string | undefined): object {
  const meta = callId === undefined ? {} : { toolUseId: callId };
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
  const keep = (pending: PendingCall) => {
    if (call.callId !== undefined) state.pending.set(pendingKey(on, call.callId), pending);
  };
  if (step.kind === "failure") return cancel("TOOL_FAILED", cut(messageOf(step.error)));
  if (step.kind === "answer") {
    const result = checkTextResult(step.result, "the wrapper");
    keep({ input, wrapped: undefined });
    return result.isError ? cancel("TOOL_FAILED", cut(result.content)) : answer(result, cut(result.content));
  }
  if (step.input === undefined) {
    wrapped.abandon("the call was refused");
    return cancel("TOOL_FAILED", "the wrapper called the tool without its input");
  }
  keep({ input, wrapped });
  return isDeepStrictEqual(step.input, input) ? proceed() : proceed({ args: exactIntegers(step.input, call.args) });
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
  const pending = call.callId === undefined ? undefined : state.pending.take(pendingKey(on, call.callId));
  const input = pending?.input ?? plainNumbers(call.args ?? {});
  let current: TextResult;
  try {
    current = checkTextResult(await resumeWrapper(on, call, pending, { input, result: before }), "the wrapper");
  } catch (error) {
    return cancel("TOOL_FAILED", cut(messageOf(error)));
  }
  const notices: Notice[] = [];
  for (const plugin of state.plugins) current = await rewriteResult(on, plugin, { call, input, current, notices });
  return replyWithResult(call, before, current, notices);
}

/**
 * What the wrappers make of the result. One that isn't waiting, because the agent sends no `call_id` or because another process saw the call
 * before it ran, runs again from its begin, with the result at hand: a result never passes a wrapper that would have changed it.
 */
async function resumeWrapper(
  on: RunCall,
  call: AfterToolResultPayload,
  pending: PendingCall | undefined,
  { input, result }: { input: unknown; result: TextResult },
): Promise<unknown> {
  if (pending !== undefined) return pending.wrapped === undefined ? result : pending.wrapped.resume(result);
  if (on.state.ownTool(call.toolName) !== undefined) return result;
  const tool = on.state.wrap(call.toolName);
  return tool === undefined ? result : execute(on, tool, call, structuredClone(input), new WrappedCall(result));
}

interface ResultStep {
  readonly call: AfterToolResultPayload;
  readonly input: unknown;
  readonly current: TextResult;
  readonly notices: Notice[];
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
    return checkTextResult(returned, "afterToolCall");
  } catch (error) {
    notices.push({
      kind: "warn",
      code: "PLUGIN_ERRORED",
      message: cut(`plugin ${plugin.id} errored, and the result stays: ${messageOf(error)}`),
    });
    return current;
  }
}

/** Agents choose ids, so that of a call means something only in its tenant and run. */
function pendingKey({ ctx, run }: RunCall, callId: string): string {
  return JSON.stringify([ctx.tenant, run.runId, callId]);
}
