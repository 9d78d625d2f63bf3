/** Serves plugins of drover as a plugin of Hookgate. */
import { basename } from "node:path";
import { type Context, type JsonObject, type Plugin, contribute, stderrLogger } from "@hookgate/sdk";
import { BoundedMap } from "../bounded-map.js";
import { EntryError, type PluginEntry, type StateScope, checkName, messageOf, versionOf } from "../entry.js";
import { type PointHandler, instancePlugin } from "../instance-plugin.js";
import { plainNumbers } from "../numbers.js";
import { inScope } from "../scope.js";
import { checkCovered } from "../tools.js";
import { answerHook, hookOffers } from "./hooks.js";
import { type DroverModule, loadDrover } from "./load.js";
import { afterToolResult, beforeToolCall, runCall } from "./points.js";
import { RunState, Runs } from "./run-state.js";
import { servedTool } from "./tools.js";
import { type HarnessPlugin, METHODS, type Method } from "./types.js";

/** Most calls whose ids are kept from the question to the run of a plugin's own tool. */
const MAX_CALL_IDS = 1000;
const CALL_ID_MS = 60_000;

/** Plugins with one configuration. */
interface DroverInstance {
  readonly plugins: readonly HarnessPlugin[];
  readonly runs: Runs;
  /** The model's ids of calls, by the gateway's id of the invocation. The SDK gives tools only the latter. */
  readonly callIds: BoundedMap<string, string>;
}

/** A module that is being served. */
interface ServedDrover {
  readonly name: string;
  readonly entry: PluginEntry;
  readonly module: DroverModule;
  readonly scope: StateScope;
}

/**
 * Loads the plugins of an entry, which are one agent's.
 *
 * @throws {EntryError} If they can't be served.
 */
export async function droverPlugin(entry: PluginEntry): Promise<Plugin<any, any>> {
  const module = await loadDrover(entry);
  const plugins = await createFirst(entry, module);
  const [first] = plugins;
  const name = checkName(entry.name ?? (plugins.length === 1 && first ? first.id : basename(entry.module).replace(/\.[^.]*$/, "")));
  const served: ServedDrover = { name, entry, module, scope: scopeOf(name, entry, module) };
  return define(served, plugins);
}

async function createFirst({ module: path, options }: PluginEntry, module: DroverModule): Promise<readonly HarnessPlugin[]> {
  try {
    return await inScope({ plugin: path }, () => module.create(plainNumbers(options) as object));
  } catch (error) {
    if (error instanceof EntryError) throw error;
    throw new EntryError(`the plugin ${path} can't be made with the runner's \`options\`: ${messageOf(error)}`, { cause: error });
  }
}

function scopeOf(plugin: string, { state }: PluginEntry, { isFactory }: DroverModule): StateScope {
  if (!isFactory && state !== undefined && state !== "process") {
    throw new EntryError(
      `\`state: ${state}\` of '${plugin}' needs a module that exports a function, so that each ${state} can have a plugin of its own`,
    );
  }
  if (!isFactory) {
    stderrLogger.warn("the module exports an object, so all runs and tenants share its state: export a function to keep them apart", {
      plugin,
    });
  }
  return state ?? (isFactory ? "run" : "process");
}

function define(served: ServedDrover, plugins: readonly HarnessPlugin[]): Plugin<any, any> {
  const { name, entry, scope } = served;
  const methods = methodsOf(plugins);
  const tools = plugins.flatMap(({ tools = [] }) => tools);
  const toolNames = entry.toolNames ?? tools.map(({ id }) => id);
  const isWrapping = methods.has("wrapTool");
  const callOf = async (instance: DroverInstance, ctx: Context) => runCall(await instance.runs.of(ctx), ctx, scope === "process");
  const onToolCall: PointHandler<DroverInstance> = async (instance, call, ctx) => {
    if (call.callId !== undefined) instance.callIds.set(ctx.requestId, call.callId);
    return beforeToolCall(await callOf(instance, ctx), call);
  };
  const hooks = hookOffers(plugins, scope);
  const hasPoint = isWrapping || methods.has("beforeToolCall") || methods.has("afterToolCall");
  if (
    !hasPoint &&
    toolNames.length === 0 &&
    !["onEvent", "onRunStart", "onRunEnd", "beforeCompaction"].some((method) => methods.has(method as Method))
  ) {
    throw new EntryError(`plugin '${name}' has no tools, and no method that a gateway calls: it would do nothing`);
  }
  for (const tool of tools) servedTool(name, tool, neverCalled);
  return instancePlugin<DroverInstance>({
    name,
    version: versionOf(entry),
    capabilities: entry.capabilities,
    points: {
      ...((isWrapping || methods.has("beforeToolCall")) && { beforeToolCall: onToolCall }),
      ...((isWrapping || methods.has("afterToolCall")) && {
        afterToolResult: async (instance, call, ctx) => afterToolResult(await callOf(instance, ctx), call),
      }),
    },
    hooks,
    toolNames,
    start: (config) => start(served, config, methods, toolNames),
    tools: (instance) =>
      instance.plugins
        .flatMap(({ tools = [] }) => tools)
        .map((tool) =>
          servedTool(name, tool, async (ctx) => ({
            ...(await callOf(instance, ctx)),
            callId: instance.callIds.get(ctx.requestId) ?? ctx.requestId,
          })),
        ),
    onHook: async (instance, call, ctx) => {
      const contributions = await answerHook(await callOf(instance, ctx), call);
      if (call.hook === (scope === "session" ? "session_end" : "run_end")) instance.runs.end(ctx);
      return contribute(contributions);
    },
    shutdown: async (instance) => instance.runs.endAll(),
  });
}

async function start(
  { name, entry, module, scope }: ServedDrover,
  config: JsonObject,
  methods: ReadonlySet<Method>,
  toolNames: readonly string[],
): Promise<DroverInstance> {
  if (!module.isFactory && Object.keys(config).length > 0) {
    stderrLogger.warn("the plugin takes no configuration: its module exports an object, and not a function", { plugin: name });
  }
  const options = plainNumbers({ ...entry.options, ...config }) as object;
  const plugins = await module.create(structuredClone(options));
  const added = [...methodsOf(plugins)].find((method) => !methods.has(method));
  if (added !== undefined) {
    throw new EntryError(
      `plugin '${name}' has \`${added}\` only with the gateway's configuration: put what decides that into the runner's \`options\``,
    );
  }
  checkCovered(
    name,
    plugins.flatMap(({ tools = [] }) => tools.map(({ id }) => id)),
    toolNames,
  );
  // The first run takes the plugins that were made to check the configuration.
  let spare: readonly HarnessPlugin[] | undefined = plugins;
  const runs = new Runs(scope, async () => {
    const own = spare ?? (await module.create(structuredClone(options)));
    spare = undefined;
    return new RunState(own, module.effects, entry.agentTools ?? []);
  });
  return { plugins, runs, callIds: new BoundedMap(MAX_CALL_IDS, CALL_ID_MS) };
}

function methodsOf(plugins: readonly HarnessPlugin[]): Set<Method> {
  return new Set(METHODS.filter((method) => plugins.some((plugin) => plugin[method] !== undefined)));
}

function neverCalled(): never {
  throw new Error("the tool isn't served yet");
}
