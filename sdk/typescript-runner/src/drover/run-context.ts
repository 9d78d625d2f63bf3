/** The contexts of drover, made of a call's context. */
import type { Context } from "@hookgate/sdk";
import type { RunContext, ToolContext } from "./types.js";

/** Set in a tool's context, so that a wrapped tool finds its call. Spreading the context keeps it. */
export const CALL = Symbol("hookgate.call");

/**
 * The run of a call. Agents choose run ids, so two tenants may use the same one.
 *
 * @param isShared Whether the plugin serves several tenants. Then its ids begin with the tenant: plugins keep state by them.
 */
export function runContext(ctx: Context, isShared: boolean): RunContext {
  const { caller, tenant } = ctx;
  const qualify = (id: string) => (isShared ? `${encodeURIComponent(tenant)}/${id}` : id);
  const { runId = caller.sessionId ?? ctx.requestId, parentRunId, depth = 0, sessionId, agentId, projectId, userId } = caller;
  const known = { sessionId, agentId, projectId, userId };
  const run = {
    runId: qualify(runId),
    ...(parentRunId === undefined ? {} : { parentRunId: qualify(parentRunId) }),
    depth,
    meta: {
      ...caller.labels,
      ...Object.fromEntries(Object.entries(known).filter(([, value]) => value !== undefined)),
      tenant,
      operator: ctx.operator,
    },
    signal: ctx.signal,
  };
  return withAgentFolder(run, ctx);
}

/** What a tool sees. */
export function toolContext(run: RunContext, ctx: Context, callId: string, isShared: boolean, call?: object): ToolContext {
  const toolUseId = isShared ? `${encodeURIComponent(ctx.tenant)}/${callId}` : callId;
  const context = { runId: run.runId, toolUseId, signal: run.signal, run, ...(call === undefined ? {} : { [CALL]: call }) };
  return withAgentFolder(context, ctx);
}

/** Only the agent knows its folder and its environment. A guess could let a path pass that a rule forbids. */
function withAgentFolder<T extends object>(target: T, ctx: Context): T {
  const { cwd } = ctx.caller.labels;
  if (cwd !== undefined) Object.assign(target, { cwd });
  else refuseToRead(target, "cwd", "the agent may send its folder as the label `cwd`");
  return refuseToRead(target, "env", "the agent's environment stays with the agent");
}

/** Makes a member that throws when it is read. It isn't enumerable, so that the object can be copied. */
export function refuseToRead<T extends object>(target: T, member: string, remedy: string): T {
  return Object.defineProperty(target, member, {
    enumerable: false,
    get: () => {
      throw new Error(`\`${member}\` is unknown here: ${remedy}`);
    },
  });
}
