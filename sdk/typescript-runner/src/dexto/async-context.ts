/** Dexto's own AsyncLocalStorage, which some plugins read instead of their context. */
import { type Context, stderrLogger } from "@hookgate/sdk";
import { loadPackage } from "../module.js";
import { messageOf } from "../entry.js";

/** Runs the plugin's code for a call. */
export type RunForCall = (ctx: Context, run: () => Promise<unknown>) => Promise<unknown>;

type RunWithContext = (context: { tenantId: string; userId?: string }, run: () => Promise<unknown>) => Promise<unknown>;

/** Uses the context of the `@dexto/core` that the plugin imports; nothing if its project doesn't have it. */
export async function dextoContext(modulePath: string, plugin: string): Promise<RunForCall> {
  const runWithContext = await loadRunWithContext(modulePath, plugin);
  if (runWithContext === undefined) return (_, run) => run();
  return (ctx, run) => {
    const { userId } = ctx.caller;
    return runWithContext({ tenantId: ctx.tenant, ...(userId === undefined ? {} : { userId }) }, run);
  };
}

async function loadRunWithContext(modulePath: string, plugin: string): Promise<RunWithContext | undefined> {
  try {
    const core = await loadPackage("@dexto/core", modulePath);
    return typeof core?.runWithContext === "function" ? (core.runWithContext as RunWithContext) : undefined;
  } catch (error) {
    stderrLogger.warn("@dexto/core can't be loaded, so its getContext() has no tenant", { plugin, error: messageOf(error) });
    return undefined;
  }
}
