/** Serves a plugin of Dexto as a plugin of Hookgate. */
import { basename } from "node:path";
import { type Context, type Host, type JsonObject, type Plugin, type PointName, type Reply, definePlugin } from "@hookgate/sdk";
import { type PluginEntry, asError, checkName, messageOf, versionOf } from "../entry.js";
import { plainNumbers } from "../numbers.js";
import { anyObject } from "../schemas.js";
import { inScope, whileLoading } from "../scope.js";
import { expandAgentDir } from "./agent-dir.js";
import { type RunForCall, dextoContext } from "./async-context.js";
import { executionContext } from "./context.js";
import { DextoError } from "./error.js";
import { type DextoClass, type DextoPlugin, type DextoPoint, loadDexto } from "./load.js";
import { patchFromDexto, payloadToDexto } from "./payload.js";
import { replyFromDexto, resultOf } from "./reply.js";

/** A plugin with one configuration. */
interface DextoInstance {
  readonly plugin: DextoPlugin;
  readonly host: Host;
}

/** A plugin that is being served. */
interface ServedPlugin {
  readonly name: string;
  readonly entry: PluginEntry;
  readonly pluginClass: DextoClass;
  readonly runForCall: RunForCall;
}

const POINT_NAMES: { readonly [Point in DextoPoint]: PointName } = {
  beforeLLMRequest: "beforeLlmRequest",
  beforeToolCall: "beforeToolCall",
  afterToolResult: "afterToolResult",
  beforeResponse: "beforeResponse",
};

/**
 * Loads the plugin of an entry.
 *
 * @throws {DextoError} If Dexto wouldn't start with it.
 */
export async function dextoPlugin(entry: PluginEntry): Promise<Plugin<any, any>> {
  const name = checkName(entry.name ?? basename(entry.module).replace(/\.[^.]*$/, ""));
  const { pluginClass, points } = await whileLoading(name, () => loadDexto(entry.module, name));
  const runForCall = await whileLoading(name, () => dextoContext(entry.module, name));
  const served: ServedPlugin = { name, entry, pluginClass, runForCall };
  const handlers = Object.fromEntries(points.map((point) => [POINT_NAMES[point], handler(served, point)]));
  return definePlugin({
    name,
    version: versionOf(entry),
    config: anyObject,
    capabilities: entry.capabilities,
    ...handlers,
    initialize: (config: JsonObject, host: Host) => start(served, config, host),
    shutdown: (state: DextoInstance) => inScope({ plugin: name, host: state.host }, () => state.plugin.cleanup?.()) as Promise<void>,
  } as never);
}

async function start({ name, entry, pluginClass }: ServedPlugin, config: JsonObject, host: Host): Promise<DextoInstance> {
  const merged = expandAgentDir({ ...entry.options, ...config }, entry.agentDir);
  return inScope({ plugin: name, host }, async () => {
    const plugin = new pluginClass();
    try {
      await plugin.initialize?.(plainNumbers(merged) as object);
    } catch (error) {
      const message = `plugin '${name}' failed at its initialization: ${messageOf(error)}`;
      throw new DextoError("PLUGIN_INITIALIZATION_FAILED", message, { cause: error });
    }
    return { plugin, host };
  });
}

function handler({ name, entry, runForCall }: ServedPlugin, point: DextoPoint) {
  const firstMediumOnly = entry.firstMediumOnly ?? false;
  return async (call: { extra: JsonObject | undefined }, ctx: Context<unknown, unknown, DextoInstance>): Promise<Reply<any>> => {
    const { plugin, host } = ctx.state;
    const before = payloadToDexto(point, call, ctx, firstMediumOnly);
    const payload = structuredClone(before);
    const scope = { plugin: name, ctx, host };
    const context = executionContext(scope, entry.capabilities);
    return inScope(scope, async () => {
      try {
        const result = resultOf(await runForCall(ctx, async () => plugin[point]?.(payload, context)), point);
        return replyFromDexto(name, result, () => patchFromDexto(point, call, before, { ...payload, ...result.modify }));
      } catch (error) {
        throw asError(error);
      }
    });
  };
}
