/** Loads the modules of plugins, TypeScript included, and packages from a plugin's own project. */
import { readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { enableTypeScript } from "@hookgate/sdk/cli";

/** Imports a module. Its members are those of a CommonJS module's exports where that is what it is. */
export async function loadModule(path: string): Promise<{ readonly default?: unknown }> {
  // The systems of these plugins take enums, and imports without extensions.
  if (/\.[mc]?tsx?$/.test(path)) await enableTypeScript({ preferTsx: true });
  const loaded = (await import(pathToFileURL(path).href)) as { default?: unknown };
  const inner = loaded.default as { __esModule?: unknown; default?: unknown } | undefined;
  // TypeScript that was compiled to CommonJS has its default export inside of that of Node.
  return inner?.__esModule === true ? { default: inner.default } : loaded;
}

/**
 * Imports a package as a plugin itself would, so that both share one copy.
 *
 * @returns `undefined` if no folder above the plugin has it.
 */
export async function loadPackage(name: string, plugin: string): Promise<Record<string, unknown> | undefined> {
  for (let folder = dirname(plugin), above = ""; folder !== above; above = folder, folder = dirname(folder)) {
    const root = join(folder, "node_modules", name);
    if (!statSync(join(root, "package.json"), { throwIfNoEntry: false })?.isFile()) continue;
    const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as PackageManifest;
    return (await import(pathToFileURL(join(root, entryOf(manifest))).href)) as Record<string, unknown>;
  }
  return undefined;
}

type Target = string | { readonly [condition: string]: Target | null };

interface PackageManifest {
  readonly exports?: Target | { readonly ".": Target };
  readonly module?: string;
  readonly main?: string;
}

function entryOf({ exports, module, main }: PackageManifest): string {
  const root = typeof exports === "object" && "." in exports ? exports["."] : (exports as Target | undefined);
  return targetOf(root) ?? module ?? main ?? "index.js";
}

/** The file under the first condition that an `import` in Node or Bun fulfils. */
function targetOf(target: Target | null | undefined): string | undefined {
  if (typeof target === "string") return target;
  for (const [condition, nested] of Object.entries(target ?? {})) {
    if (!["import", "node", "module-sync", "default"].includes(condition)) continue;
    const found = targetOf(nested);
    if (found !== undefined) return found;
  }
  return undefined;
}
