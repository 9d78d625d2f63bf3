/** Serves plugins of drover as a plugin of Hookgate. */
import { basename } from "node:path";
import {
  type Context,
  type HookPayload,
  type HookReply,
  type JsonObject,
  type Plugin,
  cancel,
  contribute,
  stderrLogger,
} from "@hookgate/sdk";
import { TenantMap } from "../bounded-map.js";
import { EntryError, type PluginEntry, type StateScope, checkName, messageOf, versionOf } from "../entry.js";
import { type PointHandler, instancePlugin } from "../instance-plugin.js";
import { cut } from "../notices.js";
import { plainNumbers } from "../numbers.js";
import { inScope } from "../scope.js";
import { checkCovered } from "../tools.js";
import { beforeDeadline } from "./deadline.js";
import { answerHook, hookOffers } from "./hooks.js";
import { type DroverModule, loadDrover } from "./load.js";
import { type RunCall, afterToolResult, beforeToolCall, runCall } from "./points.js";
import { RunState, Runs } from "./run-state.js";
import { servedTool } from "./tools.js";
import { type HarnessPlugin, METHODS, type Method } from "./types.js";

/** Most calls whose ids are kept from the question to the run of a plugin's own tool. */
const MAX_CALL_IDS = 1000;
/** Other plugins may ask a human in between. */
const CALL_ID_MS = 10 * 60_000;

/** Plugins with one configuration. */
interface DroverInstance {
  readonly plugins: readonly HarnessPlugin[];
  readonly runs: Runs;
  /** The model's ids of calls, by the gateway's id of the invocation. The SDK gives tools only the latter. */
  readonly callIds: TenantMap<string>;
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
  const callOf: CallOf = async (instance, ctx) => runCall(await instance.runs.of(ctx), ctx, scope === "process");
  const { onToolCall, onToolResult } = pointHandlers(name, callOf);
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
        afterToolResult: onToolResult,
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
            callId: instance.callIds.get(ctx.tenant, ctx.requestId),
          })),
        ),
    onHook: (instance, call, ctx) => onHook(callOf, scope, { instance, call, ctx }),
    shutdown: async (instance) => instance.runs.endAll(),
  });
}

/** Finds the run of a call. */
type CallOf = (instance: DroverInstance, ctx: Context) => Promise<RunCall>;

/** What fails is a block, also where the plugins of the run can't be made: another answer could let the call pass. */
function pointHandlers(
  name: string,
  callOf: CallOf,
): { onToolCall: PointHandler<DroverInstance>; onToolResult: PointHandler<DroverInstance> } {
  const errored = (error: unknown) => cut(`plugin ${name} errored: ${messageOf(error)}`);
  return {
    onToolCall: async (instance, call, ctx) => {
      if (call.callId !== undefined) instance.callIds.set(ctx.tenant, ctx.requestId, call.callId);
      try {
        return await beforeToolCall(await callOf(instance, ctx), call);
      } catch (error) {
        return cancel("TOOL_NOT_ALLOWED", errored(error));
      }
    },
    onToolResult: async (instance, call, ctx) => {
      try {
        return await afterToolResult(await callOf(instance, ctx), call);
      } catch (error) {
        return cancel("TOOL_FAILED", errored(error));
      }
    },
  };
}

/** Answers at a hook. A run that ends is forgotten, also if a plugin fails or hangs then. */
async function onHook(
  callOf: CallOf,
  scope: StateScope,
  { instance, call, ctx }: { instance: DroverInstance; call: HookPayload; ctx: Context },
): Promise<HookReply> {
  const answered = async () => answerHook(await callOf(instance, ctx), call);
  try {
    return contribute(await beforeDeadline(ctx, answered(), () => []));
  } finally {
    if (call.hook === (scope === "session" ? "session_end" : "run_end")) instance.runs.end(ctx);
  }
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
    return new RunState(own, module.effects, entry.agentTools ?? [], scope === "process");
  });
  return { plugins, runs, callIds: new TenantMap({ maxSize: MAX_CALL_IDS, maxIdleMs: CALL_ID_MS }) };
}

function methodsOf(plugins: readonly HarnessPlugin[]): Set<Method> {
  return new Set(METHODS.filter((method) => plugins.some((plugin) => plugin[method] !== undefined)));
}

function neverCalled(): never {
  throw new Error("the tool isn't served yet");
}
