/** Loads plugins of drover: one, a list that is one agent's, or a function that makes either. */
import { EntryError, type PluginEntry, messageOf } from "../entry.js";
import { loadModule } from "../module.js";
import { whileLoading } from "../scope.js";
import { checkToolName } from "../tools.js";
import { Effects } from "./effects.js";
import { type HarnessPlugin, METHODS } from "./types.js";

/** A module that exports plugins. */
export interface DroverModule {
  /** Whether it exports a function, so that each run can have plugins of its own. */
  readonly isFactory: boolean;
  readonly effects: Effects;
  /** The plugins with these options, in the order of the list. @throws {EntryError} If they can't be used. */
  create(options: object): Promise<readonly HarnessPlugin[]>;
}

/** @throws {EntryError} If the module can't be loaded, or exports something else. */
export async function loadDrover({ module }: PluginEntry): Promise<DroverModule> {
  let exported: unknown;
  let effects: Effects;
  try {
    [exported, effects] = await whileLoading(module, async () => [(await loadModule(module)).default, await Effects.forPlugin(module)]);
  } catch (error) {
    throw new EntryError(`the plugin ${module} can't be loaded: ${messageOf(error)}`, { cause: error });
  }
  const isFactory = typeof exported === "function";
  const create = async (options: object) => {
    const made = isFactory ? await effects.run(await (exported as (options: object) => unknown)(options)) : exported;
    return checkPlugins([made].flat(), module);
  };
  return { isFactory, effects, create };
}

function checkPlugins(made: readonly unknown[], module: string): readonly HarnessPlugin[] {
  if (made.length === 0) throw new EntryError(`${module} exports an empty list: it must have plugins`);
  const plugins = made.map((value) => checkPlugin(value, module));
  const ids = plugins.map(({ id }) => id);
  const twice = ids.find((id, index) => ids.indexOf(id) !== index);
  if (twice !== undefined) throw new EntryError(`${module} has two plugins with the \`id\` '${twice}'`);
  return plugins;
}

/** Factories of drover's own plugins return the plugin beside its store. */
function checkPlugin(value: unknown, module: string): HarnessPlugin {
  const plugin = ((value as { plugin?: unknown } | null | undefined)?.plugin ?? value) as HarnessPlugin | null | undefined;
  if (typeof plugin?.id !== "string" || plugin.id === "") {
    throw new EntryError(`${module} must export a plugin with the text \`id\`, a list of plugins, or a function that returns either`);
  }
  for (const method of METHODS) {
    const type = typeof plugin[method];
    if (type === "undefined" || type === "function") continue;
    throw new EntryError(`plugin '${plugin.id}' has a member \`${method}\` that must be a function, and is ${type}`);
  }
  for (const tool of plugin.tools ?? []) checkToolName(plugin.id, tool?.id);
  return plugin;
}
