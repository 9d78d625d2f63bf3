/** The template `${{dexto.agent_dir}}`. */
import { isAbsolute } from "node:path";
import type { JsonValue } from "@hookgate/sdk";
import { DextoError } from "./error.js";

const AGENT_DIR = /\$\{\{\s*dexto\.agent_dir\s*\}\}/g;

/** The value with the agent's folder in place of the template, in all its strings. */
export function expandAgentDir<T extends JsonValue>(value: T, agentDir: string): T {
  const expand = (part: JsonValue): JsonValue => {
    if (typeof part === "string") return part.replace(AGENT_DIR, () => agentDir);
    if (part === null || typeof part !== "object") return part;
    if (Array.isArray(part)) return part.map(expand);
    return Object.fromEntries(Object.entries(part).map(([name, member]) => [name, expand(member)]));
  };
  return expand(value) as T;
}

/**
 * The path of a module as a configuration names it.
 *
 * @throws {DextoError} If it isn't absolute.
 */
export function modulePath(module: string, agentDir: string): string {
  const path = expandAgentDir(module, agentDir);
  if (isAbsolute(path)) return path;
  const remedy = `write an absolute path, or \`\${{dexto.agent_dir}}/${path.replace(/^\.\//, "")}\``;
  throw new DextoError(
    "PLUGIN_CONFIGURATION_INVALID",
    `\`module\`: the path of a plugin must be absolute, and \`${path}\` isn't: ${remedy}`,
  );
}
