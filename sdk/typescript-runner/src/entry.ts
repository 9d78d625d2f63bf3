/** What the operator says of a plugin. */
import type { Capability, JsonObject } from "@hookgate/sdk";
import { anyText, attempt } from "./text.js";

/** The agent system that a plugin is written for. */
export type Dialect = "dexto" | "mastermind" | "drover";

export const DIALECTS: readonly Dialect[] = ["dexto", "mastermind", "drover"];

export const CAPABILITIES: readonly Capability[] = ["storage:read", "storage:write", "log", "emit"];

/** For whom a plugin of drover keeps its state. */
export type StateScope = "run" | "session" | "process";

export const STATE_SCOPES: readonly StateScope[] = ["run", "session", "process"];

/** A tool of the agent, for plugins that look at its definition. */
export interface AgentTool {
  /** The `toolName` of its calls. */
  readonly id: string;
  /** What the tool does. */
  readonly description?: string;
  /** Whether it may delete or overwrite. */
  readonly destructive?: boolean;
}

/** A plugin to serve. */
export interface PluginEntry {
  /** The system that it is written for. */
  readonly dialect: Dialect;
  /** The module, or for Master Mind also a list of plugins; an absolute path. */
  readonly module: string;
  /** The name at the gateway. By default the plugin's own, or for Dexto that of the file. */
  readonly name?: string;
  /** A semantic version. By default the plugin's own, or 0.0.0. */
  readonly version?: string;
  /** Configuration of the plugin. Members of the gateway's configuration go before it. */
  readonly options: JsonObject;
  /** What the plugin asks of the gateway. */
  readonly capabilities: readonly Capability[];
  /** What `${{dexto.agent_dir}}` stands for. */
  readonly agentDir: string;
  /** Globs of the tools' names, for tools that depend on the configuration. By default the names with `options`. */
  readonly toolNames?: readonly string[];
  /** Whether a plugin of Dexto gets the first of several images or files. By default such a call is refused. */
  readonly firstMediumOnly?: boolean;
  /** For whom a plugin of drover keeps state. By default `run` where the module exports a function, else `process`. */
  readonly state?: StateScope;
  /** The agent's tools, as drover would show them to a plugin. */
  readonly agentTools?: readonly AgentTool[];
}

/** A plugin can't be served as it is: a mistake of the operator or of its author. */
export class EntryError extends Error {
  /** The name of the class. */
  override name = "EntryError";
}

const NAME = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;
const VERSION = /^\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?$/;

/** @throws {EntryError} If the gateway wouldn't take the name. */
export function checkName(name: string): string {
  if (NAME.test(name)) return name;
  throw new EntryError(`\`name\`: ${JSON.stringify(name)} must begin with a letter, and have up to 64 letters, digits, \`_\` and \`-\``);
}

/** The first semantic version among those that somebody says. */
export function versionOf(entry: PluginEntry, own?: unknown): string {
  const { version } = entry;
  if (version !== undefined && !VERSION.test(version)) {
    throw new EntryError(`\`version\`: ${JSON.stringify(version)} isn't a semantic version such as 1.0.0`);
  }
  return version ?? (typeof own === "string" && VERSION.test(own) ? own : "0.0.0");
}

/** The message of anything that was thrown. Never throws itself. */
export function messageOf(error: unknown): string {
  const message = attempt<unknown>(
    () => (error as { message?: unknown } | null | undefined)?.message,
    () => undefined,
  );
  return typeof message === "string" ? message : anyText(error);
}

/** What was thrown, as an error that everybody can read. Plugins throw anything. */
export function asError(thrown: unknown): Error {
  const isReadable = attempt(
    () => thrown instanceof Error && typeof thrown.message === "string",
    () => false,
  );
  return isReadable ? (thrown as Error) : new Error(messageOf(thrown));
}
