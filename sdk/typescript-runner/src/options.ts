/** The command line. Options for serving are the SDK's: this takes out the runner's own. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { type Capability, type JsonObject, type ServeOptions, parseJson } from "@hookgate/sdk";
import { SERVE_USAGE, UsageError, parseRunOptions } from "@hookgate/sdk/cli";
import { expandAgentDir } from "./dexto/agent-dir.js";
import { CAPABILITIES, DIALECTS, type Dialect, EntryError, type PluginEntry, messageOf } from "./entry.js";
import { readEntries } from "./file.js";

export { UsageError };

export const USAGE = `Serves plugins of Dexto, Master Mind and drover as plugins of Hookgate.

Usage: hookgate-runner --dialect DIALECT MODULE... --listen ADDRESS [OPTIONS]
       hookgate-runner FILE --listen ADDRESS [OPTIONS]

  MODULE                    a plugin of the dialect; for mastermind also a list of plugins, by default $MASTER_MIND_PLUGIN_CONFIG
                            or ./master-mind.plugins.ts
  FILE                      plugins with their settings, in YAML or JSON

  --dialect DIALECT         dexto, mastermind or drover
  --name NAME               the plugin's name at the gateway (default: its own)
  --plugin-version VERSION  its semantic version (default: its own, or 0.0.0)
  --options JSON|FILE       its options; the gateway's \`config\` goes before them
  --capabilities LIST       what it asks of the gateway: storage:read, storage:write, log
  --agent-dir DIR           what \${{dexto.agent_dir}} stands for (default: the current folder, or that of FILE)
  --listen ADDRESS          unix:///path, http://host:port or https://host:port
${SERVE_USAGE}  --help                    print this
`;

/** What to serve, and how. */
export interface RunnerOptions {
  readonly entries: readonly PluginEntry[];
  readonly listen: string;
  readonly serve: ServeOptions;
}

const text = { type: "string" } as const;
const OWN_OPTIONS = {
  dialect: text,
  name: text,
  "plugin-version": text,
  options: text,
  capabilities: text,
  "agent-dir": text,
  help: { type: "boolean", short: "h" },
} as const;
const DEFAULT_LIST = "./master-mind.plugins.ts";

type OwnValues = { [Name in Exclude<keyof typeof OWN_OPTIONS, "help">]?: string };

/**
 * Parses the arguments; `undefined` if they ask for help.
 *
 * @throws {UsageError} If they are wrong. The message names the option.
 * @throws {EntryError} If the file that they name is wrong.
 */
export function parseRunnerOptions(args: readonly string[], environment: NodeJS.ProcessEnv = process.env): RunnerOptions | undefined {
  const { own, rest, help } = splitOptions(args);
  if (help || args.length === 0) return undefined;
  const dialect = dialectOf(own.dialect);
  const listFile = dialect === "mastermind" ? environment.MASTER_MIND_PLUGIN_CONFIG || DEFAULT_LIST : undefined;
  const served = parseServed(rest, listFile);
  const entries = dialect === undefined ? fileEntries(served.modules, own) : moduleEntries(served.modules, dialect, own);
  return { entries, listen: served.listen, serve: served.serve };
}

/** Separates the runner's options from those of the SDK, which has its own checks. */
function splitOptions(args: readonly string[]): { own: OwnValues; rest: string[]; help: boolean } {
  const { values, tokens } = parseArgs({ args: [...args], options: OWN_OPTIONS, strict: false, allowPositionals: true, tokens: true });
  const taken = new Set<number>();
  for (const token of tokens) {
    if (token.kind !== "option" || !Object.hasOwn(OWN_OPTIONS, token.name)) continue;
    if (token.name !== "help" && token.value === undefined) throw new UsageError(`${token.rawName} needs a value`);
    taken.add(token.index);
    if (token.value !== undefined && !token.inlineValue) taken.add(token.index + 1);
  }
  return { own: values as OwnValues, rest: args.filter((_, index) => !taken.has(index)), help: values.help === true };
}

function parseServed(
  rest: readonly string[],
  fallback: string | undefined,
): { modules: readonly string[]; listen: string; serve: ServeOptions } {
  if (rest.some((argument) => argument.startsWith("--watch"))) throw new UsageError("--watch isn't available: start the runner again");
  // The SDK knows which options have values, and so which arguments are modules.
  const hasModule = (parseRunOptions(["run", ...rest, "FALLBACK"])?.modules.length ?? 0) > 1;
  if (!hasModule && fallback === undefined)
    throw new UsageError("MODULE is missing: a plugin such as ./tenant-auth.ts, or a file with plugins");
  const parsed = parseRunOptions(["run", ...rest, ...(hasModule ? [] : [fallback as string])]);
  if (parsed === undefined) throw new UsageError("--listen is missing: an address such as unix:///tmp/plugin.sock");
  return parsed;
}

function dialectOf(dialect: string | undefined): Dialect | undefined {
  if (dialect === undefined || (DIALECTS as readonly string[]).includes(dialect)) return dialect as Dialect | undefined;
  throw new UsageError(`--dialect ${dialect}: must be ${DIALECTS.join(", ")}`);
}

/** Entries of a file. What the command line could say of one plugin is said there. */
function fileEntries(files: readonly string[], own: OwnValues): PluginEntry[] {
  const [file = "", ...others] = files;
  if (!/\.(?:ya?ml|json)$/.test(file)) throw new UsageError(`--dialect is missing: ${DIALECTS.join(", ")}; or name a file in YAML or JSON`);
  if (others.length > 0) throw new UsageError(`only one file is possible: ${others.join(", ")} is too much`);
  for (const name of ["name", "plugin-version", "options", "capabilities"] as const) {
    if (own[name] !== undefined) throw new UsageError(`--${name} is for a plugin of the command line: write it in ${file}`);
  }
  return readEntries(resolve(file), own["agent-dir"]);
}

function moduleEntries(modules: readonly string[], dialect: Dialect, own: OwnValues): PluginEntry[] {
  if (own.name !== undefined && modules.length > 1)
    throw new UsageError("--name is for one plugin: several have their own names, or a file names them");
  const agentDir = resolve(own["agent-dir"] ?? ".");
  const common = {
    dialect,
    agentDir,
    options: optionsOf(own.options),
    capabilities: capabilitiesOf(own.capabilities),
    ...(own.name === undefined ? {} : { name: own.name }),
    ...(own["plugin-version"] === undefined ? {} : { version: own["plugin-version"] }),
  };
  return modules.map((module) => ({ ...common, module: resolve(expandAgentDir(module, agentDir)) }));
}

function optionsOf(given: string | undefined): JsonObject {
  if (given === undefined) return {};
  try {
    const options = parseJson(given.trimStart().startsWith("{") ? given : readFileSync(given, "utf8"));
    if (options !== null && typeof options === "object" && !Array.isArray(options)) return options;
  } catch (error) {
    throw new UsageError(`--options must be a JSON object or a file with one: ${messageOf(error)}`);
  }
  throw new UsageError("--options must be a JSON object");
}

function capabilitiesOf(list: string | undefined): Capability[] {
  const names = (list ?? "")
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
  const unknown = names.find((name) => !(CAPABILITIES as readonly string[]).includes(name));
  if (unknown !== undefined) throw new UsageError(`--capabilities: \`${unknown}\` must be one of ${CAPABILITIES.join(", ")}`);
  return names as Capability[];
}

export { EntryError };
