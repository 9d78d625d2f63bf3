/** Loads the plugins of all dialects. */
import type { Plugin } from "@hookgate/sdk";
import { dextoPlugin } from "./dexto/plugin.js";
import { droverPlugin } from "./drover/plugin.js";
import type { PluginEntry } from "./entry.js";
import { masterMindPlugins } from "./mastermind/plugin.js";

/** Plugins that are ready to be served. */
export interface LoadedPlugins {
  /** Those of Dexto and drover in their order, then those of Master Mind. */
  readonly plugins: readonly Plugin<any, any>[];
  /** Ends what was started with the process. Call it when the server has stopped. */
  close(): Promise<void>;
}

/**
 * Loads the plugins of these entries, one after another.
 *
 * @throws {EntryError} If one of them can't be served. Then none is.
 */
export async function loadPlugins(entries: readonly PluginEntry[]): Promise<LoadedPlugins> {
  const plugins: Plugin<any, any>[] = [];
  for (const entry of entries) {
    if (entry.dialect === "dexto") plugins.push(await dextoPlugin(entry));
    if (entry.dialect === "drover") plugins.push(await droverPlugin(entry));
  }
  const masterMind = await masterMindPlugins(entries.filter(({ dialect }) => dialect === "mastermind"));
  return { plugins: [...plugins, ...masterMind.plugins], close: masterMind.close };
}
