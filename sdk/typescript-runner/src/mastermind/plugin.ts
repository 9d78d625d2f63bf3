/** Serves plugins of Master Mind as plugins of Hookgate. */
import { isDeepStrictEqual } from "node:util";
import { type JsonObject, type Plugin, type PointName, contribute, stderrLogger } from "@hookgate/sdk";
import { EntryError, type PluginEntry, checkName, messageOf, versionOf } from "../entry.js";
import { instancePlugin } from "../instance-plugin.js";
import { plainNumbers } from "../numbers.js";
import { currentScope, inScope } from "../scope.js";
import { checkCovered } from "../tools.js";
import { unavailable } from "../unavailable.js";
import { type LoadedModule, createPlugin, loadModules } from "./load.js";
import { pointHandlers, turnEnd } from "./points.js";
import { ShutdownOrder } from "./shutdown-order.js";
import { ToolRegistry, servedTool, toolsOf } from "./tools.js";
import type { MasterMindPlugin, OwnTool } from "./types.js";

/** A plugin with one configuration. */
interface MasterMindInstance {
  readonly plugin: MasterMindPlugin;
  readonly options: JsonObject;
  readonly tools: Map<string, OwnTool>;
  /** How many configurations share it: several, if the module exports an object. */
  uses: number;
}

/** Plugins that share a process, as in Master Mind. */
class MasterMindProcess {
  readonly registry = new ToolRegistry();
  readonly shutdowns = new ShutdownOrder();
  readonly served: ServedModule[] = [];
}

/** A module that is being served. */
class ServedModule {
  readonly name: string;
  /** Started with the process, in the order of the list. The first configuration that equals the options takes it. */
  #first: MasterMindInstance | undefined;
  /** The instance of a module that exports an object, while a configuration uses it. */
  #shared: MasterMindInstance | undefined;

  constructor(
    readonly module: LoadedModule,
    readonly process: MasterMindProcess,
    readonly order: number,
    first: MasterMindInstance,
  ) {
    this.name = checkName(module.entry.name ?? first.plugin.name);
    this.#first = first;
  }

  get first(): MasterMindInstance {
    return this.#first as MasterMindInstance;
  }

  /** Asks `onInit`, which may register tools. */
  async init({ plugin, tools }: MasterMindInstance): Promise<void> {
    let isOver = false;
    const register = (tool: OwnTool) => {
      if (isOver) throw new EntryError(`plugin '${this.name}' registers a tool after \`onInit\`: the agent would never see it`);
      tools.set(tool.name, tool);
      this.process.registry.add(this.name, [tool], true);
    };
    const context = {
      config: unavailable("config", "the agent's configuration is unknown here"),
      toolRegistry: this.process.registry.view(register),
    };
    try {
      await plugin.hooks?.onInit?.(context);
    } catch (error) {
      throw new EntryError(`plugin '${this.name}' failed in \`onInit\`: ${messageOf(error)}`, { cause: error });
    } finally {
      isOver = true;
    }
  }

  /** The instance for the gateway's configuration. */
  async start(config: JsonObject): Promise<MasterMindInstance> {
    const first = this.#first;
    this.#first = undefined;
    const isObject = typeof this.module.exported !== "function";
    const options = isObject ? {} : optionsOf(this.module.entry, config);
    if (isObject && Object.keys(config).length > 0) {
      stderrLogger.warn("the plugin takes no configuration: its module exports an object, and not a function", { plugin: this.name });
    }
    const known = isObject ? (this.#shared ?? first) : isDeepStrictEqual(first?.options, options) ? first : undefined;
    const instance = known ?? (await this.#createOr(options, first));
    if (isObject) this.#shared = instance;
    // Nobody waits: an `onShutdown` that never returns must not keep this configuration from starting.
    else if (first !== undefined && first !== instance) void this.shutDown(first);
    instance.uses += 1;
    return instance;
  }

  /** Makes an instance. If that fails, `first` is still there for another configuration, or to be shut down. */
  async #createOr(options: JsonObject, first: MasterMindInstance | undefined): Promise<MasterMindInstance> {
    try {
      return await this.#create(options);
    } catch (error) {
      this.#first ??= first;
      throw error;
    }
  }

  async #create(options: JsonObject): Promise<MasterMindInstance> {
    const plugin = await createPlugin(this.module, options);
    const instance = { plugin, options, tools: toolsOf(plugin), uses: 0 };
    await this.init(instance);
    return instance;
  }

  shutDown(instance: MasterMindInstance): Promise<void> {
    instance.uses -= 1;
    if (instance.uses > 0) return Promise.resolve();
    this.#shared = undefined;
    const scope = currentScope() ?? { plugin: this.name };
    const run = async () => {
      try {
        await instance.plugin.hooks?.onShutdown?.();
      } catch (error) {
        stderrLogger.warn("the plugin failed in `onShutdown`", { plugin: this.name, error });
      }
    };
    // Whoever comes first runs the others too, in its own scope.
    return this.process.shutdowns.shutDown(this.order, this.name, () => inScope(scope, run));
  }

  /** Shuts down what no gateway ever used. */
  async close(): Promise<void> {
    const first = this.#first;
    if (first !== undefined) await inScope({ plugin: this.name }, () => this.shutDown(first));
  }

  /** The tools that it provides with an instance. */
  toolsOf({ tools }: MasterMindInstance): OwnTool[] {
    return [...tools.values()].filter(({ name }) => !this.process.registry.isReplaced(this.name, name));
  }
}

/** Plugins that are ready to be served. */
export interface MasterMindPlugins {
  readonly plugins: readonly Plugin<any, any>[];
  /** Shuts down plugins that no gateway used. */
  close(): Promise<void>;
}

/**
 * Loads the plugins of these entries, and initialises them in their order.
 *
 * @throws {EntryError} If one of them fails. Then none is served.
 */
export async function masterMindPlugins(entries: readonly PluginEntry[]): Promise<MasterMindPlugins> {
  const process = new MasterMindProcess();
  const { served, registry } = process;
  for (const entry of entries) {
    for (const module of await loadModules(entry)) {
      const options = optionsOf(module.entry, {});
      const plugin = await inScope({ plugin: module.entry.module }, () => createPlugin(module, options));
      const first = { plugin, options, tools: toolsOf(plugin), uses: 0 };
      const added = new ServedModule(module, process, served.length, first);
      if (served.some(({ name }) => name === added.name))
        throw new EntryError(`two plugins have the name '${added.name}': give one of them another`);
      registry.add(added.name, first.tools.values(), module.replace);
      served.push(added);
    }
  }
  for (const added of served) await inScope({ plugin: added.name }, () => added.init(added.first));
  const plugins = served.map(define);
  return { plugins, close: async () => void (await Promise.all(served.map((added) => added.close()))) };
}

function optionsOf({ options }: PluginEntry, config: JsonObject): JsonObject {
  return plainNumbers({ ...options, ...config }) as JsonObject;
}

function define(served: ServedModule): Plugin<any, any> {
  const {
    name,
    module: { entry },
  } = served;
  const { plugin } = served.first;
  const handlers = pointHandlers(plugin.hooks ?? {});
  const ownTools = served.toolsOf(served.first);
  // Checks the schemas before a gateway asks.
  for (const tool of ownTools) servedTool(plugin, tool);
  const toolNames = entry.toolNames ?? ownTools.map((tool) => tool.name);
  if (Object.keys(handlers).length === 0 && toolNames.length === 0) {
    throw new EntryError(`plugin '${name}' has neither tools nor a hook that a gateway calls: it would do nothing`);
  }
  return instancePlugin<MasterMindInstance>({
    name,
    version: versionOf(entry, plugin.version),
    capabilities: entry.capabilities,
    points: Object.fromEntries(
      Object.entries(handlers).map(([point, handle]) => [
        point,
        (instance: MasterMindInstance, call: unknown, ctx: never) => handle(instance.plugin.hooks ?? {}, call, ctx),
      ]),
    ),
    offers: handlers.beforeResponse === undefined ? {} : { beforeResponse: { access: "read" } },
    hooks: plugin.hooks?.afterResponse === undefined ? {} : { turn_end: {} },
    toolNames,
    start: async (config) => {
      const instance = await served.start(config);
      try {
        checkSameHooks(name, Object.keys(handlers) as PointName[], instance);
        const names = served.toolsOf(instance).map((tool) => tool.name);
        checkCovered(name, names, toolNames);
      } catch (error) {
        void served.shutDown(instance);
        throw error;
      }
      return instance;
    },
    tools: (instance) => served.toolsOf(instance).map((tool) => servedTool(instance.plugin, tool)),
    onHook: async (instance, call) => {
      await turnEnd(instance.plugin.hooks ?? {}, call);
      return contribute();
    },
    shutdown: (instance) => served.shutDown(instance),
  });
}

/** The gateway asks only at the points of the manifest, which was made without its configuration. */
function checkSameHooks(name: string, points: readonly PointName[], { plugin }: MasterMindInstance): void {
  const added = Object.keys(pointHandlers(plugin.hooks ?? {})).find((point) => !points.includes(point as PointName));
  if (added === undefined) return;
  throw new EntryError(
    `plugin '${name}' answers at ${added} only with the gateway's configuration: put what decides that into the runner's \`options\``,
  );
}
