/** The plugins of one run, with their state, and the runs that there are. */
import type { Context } from "@hookgate/sdk";
import { BoundedMap } from "../bounded-map.js";
import type { AgentTool, StateScope } from "../entry.js";
import type { Effects } from "./effects.js";
import { CALL, refuseToRead } from "./run-context.js";
import type { HarnessPlugin, ToolContext, ToolDef } from "./types.js";
import type { WrappedCall } from "./wrapped-call.js";

/** Most runs that have state at a time. The one that had no call for the longest is forgotten. */
const MAX_RUNS = 1000;
/** After this time without a call, a run is forgotten. */
const MAX_IDLE_MS = 60 * 60 * 1000;
/** Most tool calls of a run, or of all runs that share a plugin, whose results are awaited. */
const MAX_PENDING = 1000;
/** Most tools whose wrappers are kept. */
const MAX_TOOLS = 256;

/** A call between `before_tool_call` and `after_tool_result`. */
export interface PendingCall {
  /** The arguments before any wrapper changed them. */
  readonly input: unknown;
  /** `undefined` if the wrapper answered instead of the tool. */
  readonly wrapped: WrappedCall | undefined;
}

/** The plugins of one run. */
export class RunState {
  readonly pending = new BoundedMap<string, PendingCall>(MAX_PENDING, MAX_IDLE_MS, ({ wrapped }) =>
    wrapped?.abandon("the tool's result never came"),
  );
  readonly #tools = new BoundedMap<string, ToolDef>(MAX_TOOLS, Infinity);

  constructor(
    readonly plugins: readonly HarnessPlugin[],
    readonly effects: Effects,
    readonly agentTools: readonly AgentTool[],
  ) {}

  /** A plugin's own tool, without wrappers. */
  ownTool(name: string): ToolDef | undefined {
    return this.plugins.flatMap(({ tools = [] }) => tools).find(({ id }) => id === name);
  }

  /** A tool as the agent would define it. What the operator doesn't say of it can't be read. */
  agentTool(name: string): ToolDef {
    const execute = (input: unknown, ctx: ToolContext & { [CALL]?: WrappedCall }) => {
      const call = ctx?.[CALL];
      if (call === undefined) throw new Error("a wrapper must pass its context to the tool's `execute`");
      return this.effects.lazy(() => call.runTool(input));
    };
    const known = this.agentTools.find(({ id }) => id === name);
    const tool: ToolDef = { id: name, ...known, execute };
    for (const member of ["description", "destructive", "inputSchema"]) {
      if (!(member in tool)) refuseToRead(tool, member, `describe the tool \`${name}\` in \`agent_tools\` of the runner's file`);
    }
    return tool;
  }

  /** The tool in its wrappers, the last plugin's outermost; `undefined` if no plugin wraps it. */
  wrap(name: string): ToolDef | undefined {
    const bare = this.ownTool(name) ?? this.agentTool(name);
    let wrapped = this.#tools.get(name);
    if (wrapped === undefined) {
      wrapped = this.plugins.reduce((tool, plugin) => plugin.wrapTool?.(tool) ?? tool, bare);
      if (wrapped === bare) return undefined;
      // A wrapper may keep state in its closure, so each tool is wrapped once.
      this.#tools.set(name, wrapped);
    }
    return wrapped;
  }

  end(): void {
    this.pending.clear();
  }
}

/** The runs of one configuration. */
export class Runs {
  readonly #states = new BoundedMap<string, Promise<RunState>>(MAX_RUNS, MAX_IDLE_MS, endLater);

  constructor(
    readonly scope: StateScope,
    readonly create: () => Promise<RunState>,
  ) {}

  /** The state for a call. */
  of(ctx: Context): Promise<RunState> {
    const key = keyOf(ctx, this.scope);
    const known = this.#states.get(key);
    if (known !== undefined) return known;
    const created = this.create();
    this.#states.set(key, created);
    created.catch(() => this.#states.take(key));
    return created;
  }

  /** Forgets the state of a run that ended. */
  end(ctx: Context): void {
    if (this.scope === "process") return;
    const state = this.#states.take(keyOf(ctx, this.scope));
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

/** Calls of an agent that names neither run nor session share state per tenant and agent: rules that count still count. */
function keyOf({ tenant, caller }: Context, scope: StateScope): string {
  if (scope === "process") return "";
  const { runId, sessionId, agentId } = caller;
  const [first, second] =
    scope === "run"
      ? [
          ["run", runId],
          ["session", sessionId],
        ]
      : [
          ["session", sessionId],
          ["run", runId],
        ];
  const [kind, id] = [first, second].find((part) => part?.[1] !== undefined) ?? ["agent", agentId];
  return JSON.stringify([tenant, kind, id ?? ""]);
}
