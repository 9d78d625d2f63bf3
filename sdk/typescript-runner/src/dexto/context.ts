/** The execution context of Dexto, made of a call's context. */
import type { Capability, Context } from "@hookgate/sdk";
import { type LogLevel, logLine } from "../host-logger.js";
import type { Scope } from "../scope.js";
import { anyText, attempt } from "../text.js";
import { unavailable } from "../unavailable.js";
import { database } from "./database.js";

/** The scope of a call. */
export type CallScope = Scope & { readonly ctx: Context };

/** The context that a plugin gets with a call. All that it gives stays that of this call. */
export function executionContext(call: CallScope, capabilities: readonly Capability[]): object {
  const { ctx } = call;
  const { caller } = ctx;
  return {
    sessionId: caller.sessionId,
    userId: caller.userId,
    tenantId: ctx.tenant,
    llmConfig: { provider: caller.provider, model: caller.model },
    logger: logger(call, capabilities),
    // Made when it is read: most plugins never look at it.
    get abortSignal() {
      return ctx.signal;
    },
    agent: agent(call, capabilities),
  };
}

/** The services of the agent. Those of its process can't be reached. */
function agent(call: CallScope, capabilities: readonly Capability[]): object {
  const store = database(call, capabilities);
  const others = { cache: unavailable("agent.storage.cache", STORE), blobStore: unavailable("agent.storage.blobStore", STORE) };
  const storageManager = {
    getDatabase: () => store,
    getCache: () => others.cache,
    getBlobStore: () => others.blobStore,
    isConnected: () => true,
  };
  const names = ["sessionManager", "mcpManager", "toolManager", "stateManager", "agentEventBus", "eventBus"];
  const managers = Object.fromEntries(names.map((name) => [name, unavailable(`agent.${name}`)]));
  return { ...managers, storage: { database: store, ...others }, storageManager };
}

const STORE = "use `agent.storage.database`";

function logger(call: CallScope, capabilities: readonly Capability[]): object {
  const write = (level: LogLevel) => (message: unknown, details?: unknown) => logLine(level, message, details, capabilities, call);
  const child = () => logger(call, capabilities);
  return {
    silly: () => {},
    debug: write("debug"),
    info: write("info"),
    warn: write("warn"),
    error: write("error"),
    trackException: (error: unknown, details?: unknown) => logLine("error", anyText(error), withError(error, details), capabilities, call),
    child,
    createChild: child,
    createFileOnlyChild: child,
    setLevel: () => {},
    getLevel: () => "debug",
    getLogFilePath: () => null,
    destroy: async () => {},
  };
}

/** The details with the error. One of their getters may throw. */
function withError(error: unknown, details: unknown): object {
  const members = attempt<object>(
    () => ({ ...(details as object) }),
    () => ({}),
  );
  return { ...members, error };
}
