/** Loads a plugin of Dexto: a module whose default export is a class. */
import { loadModule } from "../module.js";
import { messageOf } from "../entry.js";
import { DextoError } from "./error.js";

/** The methods that Dexto calls. */
export const DEXTO_POINTS = ["beforeLLMRequest", "beforeToolCall", "afterToolResult", "beforeResponse"] as const;

export type DextoPoint = (typeof DEXTO_POINTS)[number];

/** An object of a plugin's class. */
export interface DextoPlugin extends Partial<Record<DextoPoint, (payload: object, context: object) => unknown>> {
  initialize?(config: object): unknown;
  cleanup?(): unknown;
}

export type DextoClass = new () => DextoPlugin;

/** A class, and the points that its objects have. */
export interface DextoModule {
  readonly pluginClass: DextoClass;
  readonly points: readonly DextoPoint[];
}

/**
 * Loads a class, and makes one object of it to see what it has, as Dexto does.
 *
 * @throws {DextoError} If Dexto wouldn't start with it.
 */
export async function loadDexto(path: string, name: string): Promise<DextoModule> {
  const exported = await importDefault(path, name);
  const invalid = (message: string) => new DextoError("PLUGIN_INVALID_SHAPE", `plugin '${name}' ${message}`);
  if (!exported) throw invalid(`at '${path}' has no default export: write \`export default class\``);
  if (typeof exported !== "function") throw invalid(`must export a class by default, not ${typeof exported}`);
  const pluginClass = exported as DextoClass;
  const plugin = instantiate(pluginClass, name);
  const points = DEXTO_POINTS.filter((point) => typeof plugin[point] === "function");
  if (points.length === 0) throw invalid(`needs a method for at least one point: ${DEXTO_POINTS.join(", ")}`);
  for (const member of ["initialize", "cleanup"] as const) {
    const type = typeof plugin[member];
    if (type !== "undefined" && type !== "function") throw invalid(`has a member \`${member}\` that must be a method, and is ${type}`);
  }
  return { pluginClass, points };
}

async function importDefault(path: string, name: string): Promise<unknown> {
  try {
    return (await loadModule(path)).default;
  } catch (error) {
    throw new DextoError("PLUGIN_LOAD_FAILED", `plugin '${name}' can't be loaded from '${path}': ${messageOf(error)}`, { cause: error });
  }
}

function instantiate(pluginClass: DextoClass, name: string): DextoPlugin {
  try {
    return new pluginClass();
  } catch (error) {
    throw new DextoError("PLUGIN_INSTANTIATION_FAILED", `plugin '${name}' can't be constructed: ${messageOf(error)}`, { cause: error });
  }
}
