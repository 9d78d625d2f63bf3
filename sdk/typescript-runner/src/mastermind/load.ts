/** Loads plugins of Master Mind, and lists of them. */
import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { JsonObject } from "@hookgate/sdk";
import { EntryError, type PluginEntry, messageOf } from "../entry.js";
import { loadModule } from "../module.js";
import { plainNumbers } from "../numbers.js";
import { whileLoading } from "../scope.js";
import { HOOK_NAMES, type MasterMindExport, type MasterMindPlugin, type PluginSpec } from "./types.js";

/** Hooks of the older and of the newer form that stand for the same point. */
const TWICE = [
  ["beforeToolExecute", "beforeToolCall"],
  ["afterToolExecute", "afterToolResult"],
] as const;

/** A module of a plugin, and what is said of it. */
export interface LoadedModule {
  readonly entry: PluginEntry;
  readonly exported: MasterMindExport;
  /** Whether its tools may replace those of earlier plugins. */
  readonly replace: boolean;
}

/**
 * Loads the modules of an entry: one, or those of its list in their order.
 *
 * @throws {EntryError} If a module can't be loaded, or exports something else.
 */
export async function loadModules(entry: PluginEntry): Promise<LoadedModule[]> {
  const exported = await importDefault(entry.module);
  const specs = specsOf(exported, entry.module);
  if (specs === undefined) return [{ entry, exported: checkExport(exported, entry.module), replace: false }];
  if (entry.name !== undefined)
    throw new EntryError(`${entry.module} is a list of plugins, which have their own names: leave \`name\` out`);
  const loaded: LoadedModule[] = [];
  for (const { path, options = {}, replace = false } of specs.filter(({ enabled }) => enabled !== false)) {
    const module = resolve(dirname(entry.module), path);
    const listed = { ...entry, module, options: { ...entry.options, ...(options as JsonObject) } };
    loaded.push({ entry: listed, exported: checkExport(await importDefault(module), module), replace });
  }
  return loaded;
}

/** Makes a plugin with these options, and checks it. A module that exports an object has one plugin for all options. */
export async function createPlugin({ entry, exported }: LoadedModule, options: object): Promise<MasterMindPlugin> {
  // A copy: the plugin may change it, and the runner compares the options later.
  const plugin = typeof exported === "function" ? await exported(plainNumbers(options as JsonObject) as object) : exported;
  const wrong = (what: string) => new EntryError(`the plugin of ${entry.module} ${what}`);
  if (typeof plugin?.name !== "string" || plugin.name === "") throw wrong("has no `name`, which must be a text");
  for (const name of HOOK_NAMES) {
    const type = typeof plugin.hooks?.[name];
    if (type !== "undefined" && type !== "function") throw wrong(`has a hook \`${name}\` that must be a function, and is ${type}`);
  }
  for (const [older, newer] of TWICE) {
    if (plugin.hooks?.[older] !== undefined && plugin.hooks[newer] !== undefined)
      throw wrong(`has the hooks \`${older}\` and \`${newer}\`, which mean the same: leave one of them out`);
  }
  return plugin;
}

async function importDefault(path: string): Promise<unknown> {
  if (!existsSync(path)) throw new EntryError(`the plugin ${path} doesn't exist`);
  try {
    return (await whileLoading(path, () => loadModule(path))).default;
  } catch (error) {
    throw new EntryError(`the plugin ${path} can't be loaded: ${messageOf(error)}`, { cause: error });
  }
}

function checkExport(exported: unknown, path: string): MasterMindExport {
  if (typeof exported === "function" || (exported !== null && typeof exported === "object")) return exported as MasterMindExport;
  throw new EntryError(`${path} must export a plugin or a function that returns one, as its default`);
}

/** The list that a module exports: an array, or an object with `plugins`. `undefined` if it is a plugin. */
function specsOf(exported: unknown, path: string): readonly PluginSpec[] | undefined {
  const list = Array.isArray(exported) ? exported : (exported as { plugins?: unknown; name?: unknown } | undefined)?.plugins;
  if (list === undefined || (exported as { name?: unknown }).name !== undefined) return undefined;
  if (!Array.isArray(list)) throw new EntryError(`${path}: \`plugins\` must be a list`);
  for (const [index, spec] of list.entries()) {
    if (typeof (spec as PluginSpec | undefined)?.path !== "string")
      throw new EntryError(`${path}: plugin ${index} has no \`path\`, which must be a text`);
  }
  return list as PluginSpec[];
}
