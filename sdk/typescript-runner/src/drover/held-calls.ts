/** Calls between `before_tool_call` and `after_tool_result`, of all runs of all plugins in this process. */
import type { Context } from "@hookgate/sdk";
import { TenantMap, memoryOf } from "../bounded-map.js";
import type { TextResult } from "../tool-result.js";
import type { WrappedCall } from "./wrapped-call.js";

/** Most calls whose results are awaited. */
const MAX_CALLS = 20_000;
/** After this time, a result that didn't come isn't awaited any more. */
const MAX_IDLE_MS = 60 * 60 * 1000;
/** Most memory of all calls. */
const MAX_BYTES = 64 * 1024 * 1024;
/** Most memory of one tenant's calls. */
const MAX_TENANT_BYTES = 16 * 1024 * 1024;
/** What a call takes beside its values. */
const CALL_BYTES = 2048;

/** What is known of a call until its result comes. */
export type HeldCall =
  /** The wrapper waits for the result. The arguments, before it changed them, are kept only for plugins that get them at the result. */
  | { readonly kind: "waiting"; readonly input: unknown; readonly wrapped: WrappedCall }
  /** The wrapper answered instead of the tool. */
  | { readonly kind: "answered"; readonly input: unknown; readonly result: TextResult }
  /** The plugin's own tool ran here, with its wrappers. */
  | { readonly kind: "ran" };

interface Entry {
  readonly call: HeldCall;
  readonly forget: () => void;
}

const entries = new TenantMap<Entry>(
  { maxSize: MAX_CALLS, maxIdleMs: MAX_IDLE_MS, maxBytes: MAX_BYTES, maxTenantBytes: MAX_TENANT_BYTES },
  ({ call, forget }) => {
    forget();
    if (call.kind === "waiting") call.wrapped.abandon("the tool's result never came");
  },
);

let states = 0;

/** The held calls of one state of plugins. */
export class HeldCalls {
  readonly #id = ++states;
  /** The tenants of the keys in use. */
  readonly #keys = new Map<string, string>();

  /** @param wrapperInput What the wrapper itself holds. */
  set(ctx: Context, callId: string, call: HeldCall, wrapperInput?: unknown): void {
    const key = this.#key(ctx, callId);
    const bytes = CALL_BYTES + memoryOf(call) + memoryOf(wrapperInput);
    this.drop(ctx, callId);
    this.#keys.set(key, ctx.tenant);
    entries.set(ctx.tenant, key, { call, forget: () => this.#keys.delete(key) }, bytes);
  }

  take(ctx: Context, callId: string): HeldCall | undefined {
    const key = this.#key(ctx, callId);
    const entry = entries.take(ctx.tenant, key);
    this.#keys.delete(key);
    return entry?.call;
  }

  /** Ends the wait for a result. */
  drop(ctx: Context, callId: string): void {
    entries.drop(ctx.tenant, this.#key(ctx, callId));
  }

  clear(): void {
    for (const [key, tenant] of [...this.#keys]) entries.drop(tenant, key);
  }

  /** Agents choose ids, so that of a call means something only in its tenant and run. */
  #key(ctx: Context, callId: string): string {
    return JSON.stringify([this.#id, runKey(ctx, "run"), callId]);
  }
}

/** The run, or the session, of a call. Calls that name neither are one run of their agent: rules that count still count. */
export function runKey({ tenant, caller }: Context, first: "run" | "session"): string {
  const ids = { run: caller.runId, session: caller.sessionId };
  const second = first === "run" ? "session" : "run";
  const kind = [first, second].find((name) => ids[name as "run"] !== undefined) as "run" | "session" | undefined;
  return JSON.stringify(kind === undefined ? [tenant, "agent", caller.agentId ?? ""] : [tenant, kind, ids[kind]]);
}
