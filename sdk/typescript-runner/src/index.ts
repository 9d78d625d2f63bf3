/**
 * Serves plugins of Dexto, Master Mind and drover as plugins of Hookgate. The program `hookgate-runner` does the same.
 *
 * ```ts
 * const entry = { dialect: "dexto", module: "/agents/tenant-auth.ts", options: {}, capabilities: [], agentDir: "/agents" };
 * const { plugins } = await loadPlugins([entry]);
 * await serve(plugins, "unix:///tmp/tenant-auth.sock");
 * ```
 *
 * @module @hookgate/runner
 */
export { type AgentTool, type Dialect, EntryError, type PluginEntry, type StateScope } from "./entry.js";
export { readEntries } from "./file.js";
export { guardProcess, redirectOutput } from "./output.js";
export { type LoadedPlugins, loadPlugins } from "./plugins.js";
