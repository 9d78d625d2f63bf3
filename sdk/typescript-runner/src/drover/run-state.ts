/** The plugins of one run, with their state, and the runs that there are. */
import type { Context } from "@hookgate/sdk";
import { TenantMap } from "../bounded-map.js";
import type { AgentTool, StateScope } from "../entry.js";
import type { Effects } from "./effects.js";
import { HeldCalls, runKey } from "./held-calls.js";
import { CALL, refuseToRead } from "./run-context.js";
import type { HarnessPlugin, ToolContext, ToolDef } from "./types.js";
import type { WrappedCall } from "./wrapped-call.js";

/** Most runs of a configuration that have state at a time. The tenant with the most loses the one that had no call for the longest. */
const MAX_RUNS = 1000;
/** After this time without a call, a run is forgotten. */
const MAX_IDLE_MS = 60 * 60 * 1000;
/** Most tools of a run, and of all tenants that share plugins, whose wrappers are kept. */
const MAX_TOOLS = 256;
const MAX_SHARED_TOOLS = 16_384;

type InnerContext = ToolContext & { [CALL]?: WrappedCall };

/** The plugins of one run. */
export class RunState {
  readonly held = new HeldCalls();
  /** Whether a plugin gets the arguments with the result. */
  readonly keepsInput: boolean;
  readonly #tools: TenantMap<{ readonly wrapped: ToolDef | undefined }>;

  constructor(
    readonly plugins: readonly HarnessPlugin[],
    readonly effects: Effects,
    readonly agentTools: readonly AgentTool[],
    isShared = false,
  ) {
    this.#tools = new TenantMap({ maxSize: isShared ? MAX_SHARED_TOOLS : MAX_TOOLS, maxIdleMs: Infinity });
    this.keepsInput = plugins.some(({ afterToolCall }) => afterToolCall !== undefined);
  }

  /** A plugin's own tool, without wrappers. */
  ownTool(name: string): ToolDef | undefined {
    return this.plugins.flatMap(({ tools = [] }) => tools).find(({ id }) => id === name);
  }

  /** A tool as the agent would define it. What the operator doesn't say of it can't be read. */
  agentTool(name: string): ToolDef {
    const known = this.agentTools.find(({ id }) => id === name);
    const execute = (input: unknown, ctx: InnerContext) => {
      const call = ctx?.[CALL];
      if (call === undefined) throw new Error("a wrapper must pass its context to the tool's `execute`");
      return this.effects.lazy(() => call.runTool(input));
    };
    return refuseUnknown({ id: name, ...known, execute });
  }

  /** The tool in its wrappers, the last plugin's outermost; `undefined` if no plugin wraps it. @throws If a wrapper returns no tool. */
  wrap(name: string, tenant: string): ToolDef | undefined {
    // A wrapper may keep state in its closure, so each tool is wrapped once, for each tenant.
    const known = this.#tools.get(tenant, name);
    if (known !== undefined) return known.wrapped;
    const own = this.ownTool(name);
    const bare = own === undefined ? this.agentTool(name) : this.#ownOrAgentTool(own);
    const outermost = this.plugins.reduce((tool, plugin) => wrapOnce(plugin, tool, own === undefined), bare);
    const wrapped = outermost === bare ? undefined : outermost;
    this.#tools.set(tenant, name, { wrapped });
    return wrapped;
  }

  /** The agent may have a tool with the name of the plugin's: a call that came through the gateway's points is the agent's. */
  #ownOrAgentTool(own: ToolDef): ToolDef {
    const execute = (input: unknown, ctx: InnerContext) => {
      const call = ctx?.[CALL];
      return call === undefined ? own.execute(input, ctx) : this.effects.lazy(() => call.runTool(input));
    };
    return copyOf(own, execute);
  }

  end(): void {
    this.held.clear();
  }
}

/** What the plugin makes of the tool. It gets a copy, so that a wrapper that changes it in place is seen too. */
function wrapOnce(plugin: HarnessPlugin, tool: ToolDef, isAgents: boolean): ToolDef {
  if (plugin.wrapTool === undefined) return tool;
  const given = copyOf(tool, (input, ctx) => tool.execute(input, ctx));
  const { execute } = given;
  const returned = plugin.wrapTool(isAgents ? refuseUnknown(given) : given) as ToolDef | null | undefined;
  if (typeof returned?.execute !== "function") {
    throw new TypeError(`wrapTool of ${plugin.id} returned no tool with the function \`execute\``);
  }
  return returned.execute === execute ? tool : returned;
}

/** A shallow copy. Members that refuse to be read stay so. */
function copyOf(tool: ToolDef, execute: ToolDef["execute"]): ToolDef {
  const members = Object.getOwnPropertyDescriptors(tool);
  const writable = { value: execute, writable: true, enumerable: true, configurable: true };
  return Object.create(Object.getPrototypeOf(tool), { ...members, execute: writable }) as ToolDef;
}

function refuseUnknown(tool: ToolDef): ToolDef {
  for (const member of ["description", "destructive", "inputSchema"]) {
    if (member in tool) continue;
    refuseToRead(tool, member, `describe the tool \`${tool.id}\` in \`agent_tools\` of the runner's file`);
  }
  return tool;
}

/** The runs of one configuration. */
export class Runs {
  readonly #states: TenantMap<Promise<RunState>>;

  constructor(
    readonly scope: StateScope,
    readonly create: () => Promise<RunState>,
  ) {
    this.#states = new TenantMap({ maxSize: MAX_RUNS, maxIdleMs: scope === "process" ? Infinity : MAX_IDLE_MS }, endLater);
  }

  /** The state for a call. */
  of(ctx: Context): Promise<RunState> {
    const [tenant, key] = keyOf(ctx, this.scope);
    const known = this.#states.get(tenant, key);
    if (known !== undefined) return known;
    const created = this.create();
    this.#states.set(tenant, key, created);
    created.catch(() => this.#states.take(tenant, key));
    return created;
  }

  /** Forgets the state of a run that ended. */
  end(ctx: Context): void {
    if (this.scope === "process") return;
    const state = this.#states.take(...keyOf(ctx, this.scope));
    if (state !== undefined) endLater(state);
  }

  endAll(): void {
    this.#states.clear();
  }
}

function endLater(state: Promise<RunState>): void {
  state.then(
    (created) => created.end(),
    () => {},
  );
}

/** The tenant and the key of a call's state. */
function keyOf(ctx: Context, scope: StateScope): [tenant: string, key: string] {
  return scope === "process" ? ["", ""] : [ctx.tenant, runKey(ctx, scope)];
}
