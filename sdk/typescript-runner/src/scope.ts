/** Which plugin runs, and for which call: known in everything that a plugin awaits, so that calls of several tenants don't mix. */
import { AsyncLocalStorage } from "node:async_hooks";
import type { Context, Host } from "@hookgate/sdk";

/** Where the code that runs belongs. */
export interface Scope {
  /** The plugin's name. */
  readonly plugin: string;
  /** The gateway's services outside of calls; `undefined` while the module is loaded. */
  readonly host?: Host;
  /** The call; `undefined` outside of calls. */
  readonly ctx?: Context;
}

const scopes = new AsyncLocalStorage<Scope>();

/** The plugin whose module is loaded. Node evaluates modules outside of the scope that imports them. */
let loading: Scope | undefined;

/** Runs a plugin's code, and all that it awaits, in a scope. */
export function inScope<T>(scope: Scope, run: () => T): T {
  return scopes.run(scope, run);
}

/** Loads a plugin. Plugins are loaded one after another, before the first call. */
export async function whileLoading<T>(plugin: string, load: () => Promise<T>): Promise<T> {
  loading = { plugin };
  try {
    return await inScope(loading, load);
  } finally {
    loading = undefined;
  }
}

/** The scope of the code that runs; `undefined` in the runner's own code. */
export function currentScope(): Scope | undefined {
  return scopes.getStore() ?? loading;
}
