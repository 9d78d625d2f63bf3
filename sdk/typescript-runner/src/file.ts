/** The file that names several plugins. */
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Capability, JsonObject } from "@hookgate/sdk";
import { parseDocument } from "yaml";
import { modulePath } from "./dexto/agent-dir.js";
import {
  type AgentTool,
  CAPABILITIES,
  DIALECTS,
  type Dialect,
  EntryError,
  type PluginEntry,
  STATE_SCOPES,
  type StateScope,
  messageOf,
} from "./entry.js";

type Members = { readonly [name: string]: unknown };

/** What a member must be, in words for the error, and the check. */
interface Kind {
  readonly right: string;
  is(value: unknown): boolean;
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
const isObject = (value: unknown): value is Members => value !== null && typeof value === "object" && !Array.isArray(value);
const oneOf = (values: readonly string[]): Kind => ({
  right: `one of ${values.join(", ")}`,
  is: (value) => values.includes(value as string),
});
const listOf = ({ right, is }: Kind): Kind => ({
  right: `a list; each entry: ${right}`,
  is: (value) => Array.isArray(value) && value.every(is),
});

const TEXT: Kind = { right: "a text", is: isText };
const FLAG: Kind = { right: "true or false", is: (value) => typeof value === "boolean" };
const OBJECT: Kind = { right: "an object", is: isObject };
const AGENT_TOOL: Kind = {
  right: "an object with the text `id`, and perhaps `description`, a text, and `destructive`, true or false",
  is: (value) =>
    isObject(value) &&
    isText(value.id) &&
    ["string", "undefined"].includes(typeof value.description) &&
    ["boolean", "undefined"].includes(typeof value.destructive) &&
    Object.keys(value).every((name) => ["id", "description", "destructive"].includes(name)),
};

const FILE_MEMBERS: { readonly [name: string]: Kind } = { agent_dir: TEXT, plugins: listOf(OBJECT) };

const ENTRY_MEMBERS: { readonly [name: string]: Kind } = {
  dialect: oneOf(DIALECTS),
  module: TEXT,
  name: TEXT,
  version: TEXT,
  enabled: FLAG,
  options: OBJECT,
  capabilities: listOf(oneOf(CAPABILITIES)),
  tool_names: listOf(TEXT),
  first_medium_only: FLAG,
  state: oneOf(STATE_SCOPES),
  agent_tools: listOf(AGENT_TOOL),
};

/** Members that have a meaning for one dialect only. */
const MEMBERS_OF_ONE: { readonly [name: string]: readonly Dialect[] } = {
  first_medium_only: ["dexto"],
  state: ["drover"],
  agent_tools: ["drover"],
  tool_names: ["mastermind", "drover"],
};

/**
 * The enabled plugins of a file, in its order.
 *
 * @param agentDir What `${{dexto.agent_dir}}` stands for, unless the file says it.
 * @throws {EntryError} If something is wrong. The message names the file and the member.
 */
export function readEntries(path: string, agentDir?: string): PluginEntry[] {
  const file = readFile(path);
  checkMembers(file, FILE_MEMBERS, path);
  if (file.plugins === undefined) throw new EntryError(`${path}: \`plugins\` is missing: ${FILE_MEMBERS.plugins?.right}`);
  const folder = dirname(path);
  const agentFolder = resolve(folder, agentDir ?? (file.agent_dir as string | undefined) ?? ".");
  const entries = (file.plugins as Members[]).flatMap((members, index) => {
    const entry = readEntry(members, `${path}: \`plugins[${index}]\``, folder, agentFolder);
    return members.enabled === false ? [] : [entry];
  });
  if (entries.length === 0) throw new EntryError(`${path}: \`plugins\` has no enabled plugin`);
  return entries;
}

function readFile(path: string): Members {
  let document: ReturnType<typeof parseDocument>;
  try {
    document = parseDocument(readFileSync(path, "utf8"));
  } catch (error) {
    throw new EntryError(`${path} can't be read: ${messageOf(error)}`);
  }
  const [wrong] = document.errors;
  if (wrong !== undefined) throw new EntryError(`${path}: ${wrong.message}`);
  const file: unknown = document.toJS();
  if (!isObject(file)) throw new EntryError(`${path} must be an object with \`plugins\``);
  return file;
}

function readEntry(members: Members, where: string, folder: string, agentDir: string): PluginEntry {
  checkMembers(members, ENTRY_MEMBERS, where);
  for (const name of ["dialect", "module"]) {
    if (members[name] === undefined) throw new EntryError(`${where}: \`${name}\` is missing: ${ENTRY_MEMBERS[name]?.right}`);
  }
  const dialect = members.dialect as Dialect;
  for (const [name, dialects] of Object.entries(MEMBERS_OF_ONE)) {
    if (members[name] !== undefined && !dialects.includes(dialect))
      throw new EntryError(`${where}: \`${name}\` is only for ${dialects.join(" and ")}`);
  }
  const module = members.module as string;
  const optional = <T>(name: string, key: keyof PluginEntry) => (members[name] === undefined ? {} : { [key]: members[name] as T });
  return {
    dialect,
    module: dialect === "dexto" ? modulePath(module, agentDir) : resolve(folder, module),
    agentDir,
    options: (members.options ?? {}) as JsonObject,
    capabilities: (members.capabilities ?? []) as Capability[],
    ...optional<string>("name", "name"),
    ...optional<string>("version", "version"),
    ...optional<string[]>("tool_names", "toolNames"),
    ...optional<boolean>("first_medium_only", "firstMediumOnly"),
    ...optional<StateScope>("state", "state"),
    ...optional<AgentTool[]>("agent_tools", "agentTools"),
  };
}

function checkMembers(members: Members, kinds: { readonly [name: string]: Kind }, where: string): void {
  for (const [name, value] of Object.entries(members)) {
    const kind = Object.hasOwn(kinds, name) ? kinds[name] : undefined;
    if (kind === undefined) throw new EntryError(`${where}: \`${name}\` is unknown: there are ${Object.keys(kinds).join(", ")}`);
    if (!kind.is(value)) throw new EntryError(`${where}: \`${name}\` must be ${kind.right}`);
  }
}
