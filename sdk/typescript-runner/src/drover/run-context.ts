/** The contexts of drover, made of a call's context. */
import type { Context } from "@hookgate/sdk";
import type { RunContext, ToolContext } from "./types.js";

/** Set in a tool's context, so that a wrapped tool finds its call. Spreading the context keeps it. */
export const CALL = Symbol("hookgate.call");

/** Members that only the gateway says. A label with such a name could pass for one that isn't known. */
const KNOWN_MEMBERS: ReadonlySet<string> = new Set([
  ...["sessionId", "agentId", "projectId", "userId", "tenant", "operator"],
  ...["runId", "parentRunId", "depth", "toolUseId", "signal"],
]);

/** An id as the plugin sees it. Agents choose ids, so two tenants may use the same one: in a shared plugin they begin with the tenant. */
export function qualifiedId({ tenant }: Context, id: string, isShared: boolean): string {
  return isShared ? `${encodeURIComponent(tenant)}/${id}` : id;
}

/**
 * The run of a call. Calls that name neither run nor session are one run of their agent, as their state is.
 *
 * @param isShared Whether the plugin serves several tenants.
 */
export function runContext(ctx: Context, isShared: boolean): RunContext {
  const { caller, tenant } = ctx;
  const qualify = (id: string) => qualifiedId(ctx, id, isShared);
  const { parentRunId, depth = 0, sessionId, agentId, projectId, userId } = caller;
  const runId = caller.runId ?? sessionId ?? `agent:${agentId ?? ""}`;
  const ids = Object.entries({ sessionId, agentId, projectId, userId });
  const run = {
    runId: qualify(runId),
    ...(parentRunId === undefined ? {} : { parentRunId: qualify(parentRunId) }),
    depth,
    meta: {
      ...Object.fromEntries(Object.entries(caller.labels).filter(([name]) => !KNOWN_MEMBERS.has(name))),
      ...Object.fromEntries(ids.flatMap(([name, id]) => (id === undefined ? [] : [[name, qualify(id)]]))),
      tenant,
      operator: ctx.operator,
    },
    signal: ctx.signal,
  };
  return withAgentFolder(run, ctx);
}

/** What a tool sees. */
export function toolContext(run: RunContext, ctx: Context, callId: string, isShared: boolean, call?: object): ToolContext {
  const toolUseId = qualifiedId(ctx, callId, isShared);
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
