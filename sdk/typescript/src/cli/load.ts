/** Loads plugins from a module, TypeScript included. */
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Plugin } from "../plugin.js";

/**
 * The plugins that a module exports by default: one or a list.
 *
 * @throws If the module can't be loaded, or exports something else.
 */
export async function loadPlugins(path: string): Promise<Plugin<any, any>[]> {
  if (/\.[mc]?tsx?$/.test(path)) await enableTypeScript();
  const loaded = (await import(pathToFileURL(resolve(path)).href)) as { default?: unknown };
  // CommonJS would load a second copy of the SDK.
  if ((loaded.default as { default?: unknown } | undefined)?.default !== undefined) {
    throw new Error(`${path} is CommonJS: run \`npm pkg set type=module\` in its project, or name it .mts`);
  }
  const plugins = [loaded.default].flat();
  if (plugins.length === 0 || !plugins.every((plugin) => plugin instanceof Plugin)) {
    throw new Error(`${path} doesn't export a plugin: write \`export default definePlugin({ ... })\`, or a list of plugins`);
  }
  return plugins as Plugin<any, any>[];
}

let tsx: Promise<void> | undefined;

/** How {@link enableTypeScript} loads TypeScript. */
export interface TypeScriptOptions {
  /** Use tsx on Node even if Node strips types itself: tsx also takes enums, and imports without extensions. */
  readonly preferTsx?: boolean;
}

/**
 * Makes `import()` take TypeScript. Bun and newer Node do so themselves; older Node needs tsx.
 *
 * @throws If this version of Node needs tsx, and it isn't installed.
 */
export async function enableTypeScript({ preferTsx = false }: TypeScriptOptions = {}): Promise<void> {
  const isBuiltIn = Boolean((process.features as { typescript?: unknown }).typescript);
  if (process.versions["bun"] !== undefined || (isBuiltIn && !preferTsx)) return;
  tsx ??= registerTsx();
  try {
    await tsx;
  } catch (error) {
    if (isBuiltIn) return;
    throw new Error("this version of Node loads TypeScript only with tsx: run `npm install tsx`, or use Node 22.18 or newer", {
      cause: error,
    });
  }
}

async function registerTsx(): Promise<void> {
  const [esm, cjs] = await Promise.all([import("tsx/esm/api"), import("tsx/cjs/api")]);
  cjs.register();
  esm.register();
}
