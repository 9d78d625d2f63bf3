/** What drover's plugins do at the gateway's lifecycle hooks. */
import { isDeepStrictEqual } from "node:util";
import { type HookContribution, type HookOffer, type HookPayload, type JsonObject, stderrLogger } from "@hookgate/sdk";
import type { StateScope } from "../entry.js";
import { logLine } from "../host-logger.js";
import { exactIntegers, plainNumbers } from "../numbers.js";
import { currentScope } from "../scope.js";
import type { RunCall } from "./points.js";
import type { HarnessPlugin } from "./types.js";

/** The hooks at which the plugins want to be asked. Where runs have state of their own, their end frees it. */
export function hookOffers(plugins: readonly HarnessPlugin[], scope: StateScope): { [hook: string]: HookOffer } {
  const has = (method: keyof HarnessPlugin) => plugins.some((plugin) => plugin[method] !== undefined);
  return {
    ...(has("onEvent") && { event: {} }),
    ...(has("onRunStart") && { run_start: {} }),
    ...((has("onRunEnd") || scope === "run") && { run_end: {} }),
    ...(scope === "session" && { session_end: {} }),
    ...(has("beforeCompaction") && { before_compact: {} }),
  };
}

/** Answers at a hook. No failure of a plugin reaches the agent. */
export async function answerHook(on: RunCall, { hook, body }: HookPayload): Promise<HookContribution[]> {
  const { state, run } = on;
  const plain = plainNumbers(body) as JsonObject;
  switch (hook) {
    case "event":
      // The agent doesn't wait for observers.
      observe(on.ctx.tenant, () =>
        forEach(on, async (plugin) => state.effects.run(await plugin.onEvent?.(eventOf(plain, run.runId), run)), "onEvent"),
      );
      return [];
    case "run_start":
      await forEach(on, async (plugin) => state.effects.run(await plugin.onRunStart?.(run)), "onRunStart");
      return [];
    case "run_end": {
      const result = { ...plain, runId: run.runId, status: plain.outcome ?? "success" };
      await forEach(on, async (plugin) => state.effects.run(await plugin.onRunEnd?.(result, run)), "onRunEnd");
      return [];
    }
    case "before_compact":
      return compact(on, body);
    default:
      return [];
  }
}

/** Most events of a tenant, and of all, that observers are at work on. Further ones are left out. */
const MAX_EVENTS_OF_TENANT = 100;
const MAX_EVENTS = 1000;
/** After this time, an observer that hangs takes no place any more. */
const EVENT_MS = 60_000;

const observed = new Map<string, number>();
let observedInAll = 0;

/** Gives an event to the observers, unless too many of its tenant's are still with them. */
function observe(tenant: string, observers: () => Promise<void>): void {
  const ofTenant = observed.get(tenant) ?? 0;
  if (ofTenant >= MAX_EVENTS_OF_TENANT || observedInAll >= MAX_EVENTS) {
    logLine("debug", "an event was left out: the observers are too slow", {}, []);
    return;
  }
  observed.set(tenant, ofTenant + 1);
  observedInAll += 1;
  let isDone = false;
  const done = () => {
    if (isDone) return;
    isDone = true;
    clearTimeout(timer);
    observedInAll -= 1;
    const left = (observed.get(tenant) ?? 1) - 1;
    if (left === 0) observed.delete(tenant);
    else observed.set(tenant, left);
  };
  const timer = setTimeout(done, EVENT_MS);
  timer.unref();
  void observers().finally(done);
}

function eventOf({ kind, data }: JsonObject, runId: string): object {
  const members = data !== null && typeof data === "object" && !Array.isArray(data) ? data : { data };
  return { ts: Date.now(), ...members, kind, runId };
}

async function compact(on: RunCall, body: JsonObject): Promise<HookContribution[]> {
  const messages = (body.messages ?? []) as JsonObject[];
  const original = plainNumbers(messages) as unknown[];
  let history = original;
  await forEach(
    on,
    async (plugin) => {
      if (plugin.beforeCompaction === undefined) return;
      const returned = await on.state.effects.run(await plugin.beforeCompaction(structuredClone(history), on.run));
      if (!Array.isArray(returned)) throw new TypeError("beforeCompaction returned no list of messages");
      history = returned;
    },
    "beforeCompaction",
  );
  if (history.length === 0 || isDeepStrictEqual(history, original)) return [];
  return [{ kind: "messages", value: exactIntegers(history, messages) }];
}

async function forEach({ state }: RunCall, ask: (plugin: HarnessPlugin) => Promise<unknown>, method: string): Promise<void> {
  for (const plugin of state.plugins) {
    try {
      await ask(plugin);
    } catch (error) {
      // Observers fail all the time, and drover logs that at debug.
      if (method === "onEvent") logLine("debug", `${method} of ${plugin.id} failed`, { error }, []);
      else stderrLogger.warn(`${method} of ${plugin.id} failed`, { plugin: currentScope()?.plugin, error });
    }
  }
}
