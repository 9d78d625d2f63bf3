/** The execution context of Dexto, made of a call's context. */
import type { Capability, Context } from "@hookgate/sdk";
import { type LogLevel, logLine } from "../host-logger.js";
import { unavailable } from "../unavailable.js";
import { database } from "./database.js";

/** The context that a plugin gets with a call. */
export function executionContext(ctx: Context, capabilities: readonly Capability[]): object {
  const { caller } = ctx;
  return {
    sessionId: caller.sessionId,
    userId: caller.userId,
    tenantId: ctx.tenant,
    llmConfig: { provider: caller.provider, model: caller.model },
    logger: logger(capabilities),
    // Made when it is read: most plugins never look at it.
    get abortSignal() {
      return ctx.signal;
    },
    agent: agent(capabilities),
  };
}

/** The services of the agent. Those of its process can't be reached. */
function agent(capabilities: readonly Capability[]): object {
  const store = database(capabilities);
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

function logger(capabilities: readonly Capability[]): object {
  const write = (level: LogLevel) => (message: unknown, details?: unknown) => logLine(level, message, details, capabilities);
  const child = () => logger(capabilities);
  return {
    silly: () => {},
    debug: write("debug"),
    info: write("info"),
    warn: write("warn"),
    error: write("error"),
    trackException: (error: unknown, details?: object) => logLine("error", String(error), { ...details, error }, capabilities),
    child,
    createChild: child,
    createFileOnlyChild: child,
    setLevel: () => {},
    getLevel: () => "debug",
    getLogFilePath: () => null,
    destroy: async () => {},
  };
}
