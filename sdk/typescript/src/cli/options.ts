/** The options of `hookgate run`. */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import type { ServeOptions } from "../server/server.js";

/** The options of every program that serves plugins, besides `--listen`. */
export const SERVE_USAGE = `  --tls-cert FILE           certificate of an https:// address, in PEM
  --tls-key FILE            its key, in PEM
  --tls-client-ca FILE      accept only clients with a certificate of these authorities
  --drain SECONDS           how long calls in flight may take to finish after SIGTERM (default: 25)
  --register URL            register the plugins with the gateway whose host port this is
  --register-token FILE     the token for it; read again for each attempt
  --register-endpoint URL   the address at which gateways reach this process (default: that of --listen)
`;

export const USAGE = `Serves Hookgate plugins.

Usage: hookgate run PLUGIN... --listen ADDRESS [OPTIONS]

  PLUGIN                    a module, such as ./plugin.ts, whose default export is a plugin or a list of plugins

  --listen ADDRESS          unix:///path, http://host:port or https://host:port
  --watch                   start again when a file changes
${SERVE_USAGE}  --help                    print this
`;

/** A mistake on the command line. */
export class UsageError extends Error {}

/** What to run. */
export interface RunOptions {
  /** Paths of the modules that export the plugins. */
  readonly modules: readonly string[];
  /** `unix:///path`, `http://host:port` or `https://host:port`. */
  readonly listen: string;
  /** Whether to start again when a file changes. */
  readonly watch: boolean;
  /** How to serve them. */
  readonly serve: ServeOptions;
}

/**
 * Parses the arguments; `undefined` if they ask for help.
 *
 * @throws {UsageError} If they are wrong. The message names the option.
 */
export function parseRunOptions(args: readonly string[]): RunOptions | undefined {
  const { values, positionals } = parse(args);
  if (values.help || args.length === 0) return undefined;
  const [command, ...modules] = positionals;
  if (command !== "run") throw new UsageError(`unknown command \`${command ?? ""}\`: there is only \`run\``);
  if (modules.length === 0) throw new UsageError("PLUGIN is missing: a module such as ./plugin.ts");
  if (values.listen === undefined) throw new UsageError("--listen is missing: an address such as unix:///tmp/plugin.sock");
  const drain = Number(values.drain ?? "25");
  if (!(drain >= 0 && drain <= 3600)) throw new UsageError("--drain must be between 0 and 3600 seconds");
  return {
    modules,
    listen: values.listen,
    watch: values.watch ?? false,
    serve: { drainMs: drain * 1000, ...tls(values), ...registration(values) },
  };
}

type Values = ReturnType<typeof parse>["values"];

function parse(args: readonly string[]) {
  const text = { type: "string" } as const;
  const options = {
    listen: text,
    watch: { type: "boolean" },
    "tls-cert": text,
    "tls-key": text,
    "tls-client-ca": text,
    drain: text,
    register: text,
    "register-token": text,
    "register-endpoint": text,
    help: { type: "boolean", short: "h" },
  } as const;
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true });
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function tls({ "tls-cert": cert, "tls-key": key, "tls-client-ca": clientCa }: Values): Pick<ServeOptions, "tls"> {
  if (cert === undefined && key === undefined && clientCa === undefined) return {};
  if (cert === undefined || key === undefined) throw new UsageError("--tls-cert and --tls-key need each other");
  const files = { cert: readFileSync(cert), key: readFileSync(key) };
  return { tls: clientCa === undefined ? files : { ...files, clientCa: readFileSync(clientCa) } };
}

function registration({
  register,
  "register-token": tokenFile,
  "register-endpoint": endpoint,
}: Values): Pick<ServeOptions, "registration"> {
  if (register === undefined) {
    if (tokenFile !== undefined || endpoint !== undefined) throw new UsageError("--register-token and --register-endpoint need --register");
    return {};
  }
  if (tokenFile === undefined) throw new UsageError("--register needs --register-token");
  return { registration: { gateway: register, token: { file: tokenFile }, ...(endpoint === undefined ? {} : { endpoint }) } };
}
