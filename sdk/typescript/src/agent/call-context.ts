/** What the agent says about its calls, kept for everything that runs inside a function. */
import { AsyncLocalStorage } from "node:async_hooks";

/**
 * What the agent says about a call. Plugins see it, except for `tenant`. Hookgate doesn't verify it: the tenant and the
 * operator that plugins see come from the token. Each text has at most 256 bytes and no control characters.
 */
export interface CallContext {
  /** Whose token to use. Never sent: only the token source gets it. */
  readonly tenant?: string | undefined;
  /** Your own id of the call or of what it belongs to: 1 to 128 visible ASCII characters. Sent as `x-request-id`. */
  readonly correlationId?: string | undefined;
  /** Conversation. */
  readonly sessionId?: string | undefined;
  /** Run of the agent. */
  readonly runId?: string | undefined;
  /** The run that started this one. */
  readonly parentRunId?: string | undefined;
  /** How deep this run is nested among runs, 0 to 2^32 - 1. */
  readonly depth?: number | undefined;
  /** Agent. */
  readonly agentId?: string | undefined;
  /** Agent with its ancestors, in the agent's own notation. */
  readonly agentPath?: string | undefined;
  /** Project. */
  readonly projectId?: string | undefined;
  /** End user. Refused if the issuer of the token maps it from a claim. */
  readonly userId?: string | undefined;
  /** Provider of the model in use. */
  readonly provider?: string | undefined;
  /** Model in use. */
  readonly model?: string | undefined;
  /** At most 32; keys of 1 to 64 bytes that don't begin with `claim.`. */
  readonly labels?: { readonly [name: string]: string } | undefined;
}

const current = new AsyncLocalStorage<CallContext>();

/**
 * Runs a function whose calls all have this context, also those that it starts and doesn't wait for. A nested context adds
 * to the outer one: its values have precedence, and labels are merged by name. Runs at the same time don't mix.
 *
 * @returns What the function returns.
 */
export function withContext<T>(context: CallContext, run: () => T): T {
  // A caller that doesn't know its tenant must not act for another one.
  if ("tenant" in context && !context.tenant) throw new TypeError("`tenant` of the context is empty: leave it out, or name the tenant");
  return current.run(mergeContexts(current.getStore(), context), run);
}

/** The context of the innermost {@link withContext}, merged with the outer ones; empty outside of any. */
export function currentContext(): CallContext {
  return current.getStore() ?? {};
}

/** @internal Later contexts have precedence. A value that is undefined changes nothing. */
export function mergeContexts(...contexts: (CallContext | undefined)[]): CallContext {
  const merged: Record<string, unknown> = {};
  const labels: Record<string, string>[] = [];
  for (const context of contexts) {
    for (const [name, value] of Object.entries(context ?? {})) if (value !== undefined) merged[name] = value;
    if (context?.labels !== undefined) labels.push(context.labels);
  }
  return labels.length > 1 ? { ...merged, labels: Object.assign({}, ...labels) } : merged;
}
