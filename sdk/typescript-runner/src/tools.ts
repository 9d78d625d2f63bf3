/** Tools of plugins as the gateway takes them. */
import type { Schema } from "@hookgate/sdk";
import { EntryError } from "./entry.js";
import { schemaOf } from "./schemas.js";

const MAX_DESCRIPTION_BYTES = 4096;
const TOOL_NAME = /^[A-Za-z0-9_.-]{1,128}$/;

/** @throws {EntryError} If the gateway wouldn't take the tool. */
export function checkToolName(plugin: string, name: unknown): string {
  if (typeof name === "string" && TOOL_NAME.test(name)) return name;
  throw new EntryError(
    `plugin '${plugin}': the tool's name ${JSON.stringify(name)} must have 1 to 128 letters, digits, \`_\`, \`.\` and \`-\``,
  );
}

/**
 * The schema of a tool's arguments: a JSON Schema, or a schema of a library that knows its own.
 *
 * @throws {EntryError} If it is neither.
 */
export function toolInput(
  plugin: string,
  tool: string,
  inputSchema: unknown,
  check: (value: object) => readonly string[] = () => [],
): Schema<any, any> {
  const wrong = (right: string) => new EntryError(`plugin '${plugin}': \`inputSchema\` of the tool ${tool} must be ${right}`);
  if (inputSchema === null || typeof inputSchema !== "object") throw wrong("a JSON Schema");
  if ("~standard" in inputSchema) {
    const { jsonSchema } = inputSchema["~standard"] as { jsonSchema?: unknown };
    if (jsonSchema === undefined) throw wrong("of a library that tells its JSON Schema, such as zod 4.2 or newer");
    return inputSchema as Schema;
  }
  if ((inputSchema as { type?: unknown }).type !== "object") throw wrong("a JSON Schema with the type `object`");
  return schemaOf(inputSchema, check);
}

/**
 * Checks the tools that a configuration adds: the gateway knows only the names that the manifest says.
 *
 * @throws {EntryError} If a name isn't covered.
 */
export function checkCovered(plugin: string, names: readonly string[], globs: readonly string[]): void {
  const patterns = globs.map(globPattern);
  const uncovered = names.find((name) => !patterns.some((pattern) => pattern.test(name)));
  if (uncovered === undefined) return;
  throw new EntryError(
    `plugin '${plugin}' has the tool ${uncovered} only with the gateway's configuration: list it in the runner's \`tool_names\``,
  );
}

function globPattern(glob: string): RegExp {
  const pattern = glob
    .replace(/[\\^$.|+(){}]/g, "\\$&")
    .replace(/\*/g, ".*")
    .replace(/\?/g, ".")
    .replace(/\[!/g, "[^");
  return new RegExp(`^${pattern}$`, "s");
}

/** A tool's description as the gateway takes it: 1 byte to 4 KiB. */
export function toolDescription(name: string, description: unknown): string {
  const text = typeof description === "string" && description !== "" ? description.toWellFormed() : name;
  const bytes = Buffer.from(text);
  if (bytes.length <= MAX_DESCRIPTION_BYTES) return text;
  return `${bytes
    .subarray(0, MAX_DESCRIPTION_BYTES - 3)
    .toString()
    .replace(/\ufffd+$/, "")}…`;
}
