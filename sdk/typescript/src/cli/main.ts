#!/usr/bin/env node
/** `hookgate run`: serves the plugins of modules. */
import { spawn } from "node:child_process";
import { stderrLogger } from "../logger.js";
import { serve } from "../server/server.js";
import { loadPlugins } from "./load.js";
import { USAGE, UsageError, parseRunOptions } from "./options.js";

/** Set in a process that another `hookgate run --watch` has started. */
const WATCHED = "HOOKGATE_WATCHED";

async function main(args: readonly string[]): Promise<void> {
  const options = parseRunOptions(args);
  if (options === undefined) {
    process.stdout.write(USAGE);
    return;
  }
  if (options.watch && process.env[WATCHED] === undefined) return watch(args);
  // Otherwise one forgotten `await` would end the process, and with it the plugins of all tenants.
  process.on("unhandledRejection", (error) => stderrLogger.error("a promise of a plugin failed, and nothing waits for it", { error }));
  const plugins = (await Promise.all(options.modules.map(loadPlugins))).flat();
  const server = await serve(plugins, options.listen, options.serve);
  await server.stopped;
  process.exit(0);
}

/** Runs this program again under the runtime's own watcher, which knows what the plugin imports. */
async function watch(args: readonly string[]): Promise<void> {
  const child = spawn(process.execPath, ["--watch", process.argv[1] ?? "", ...args], {
    stdio: "inherit",
    env: { ...process.env, [WATCHED]: "1" },
  });
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => child.kill(signal));
  process.exitCode = await new Promise((resolve) => child.once("exit", (code) => resolve(code ?? 1)));
}

main(process.argv.slice(2)).catch((error: unknown) => {
  if (error instanceof UsageError) process.stderr.write(`hookgate: ${error.message}\n\n${USAGE}`);
  else stderrLogger.error(error instanceof Error ? error.message : String(error));
  process.exit(error instanceof UsageError ? 2 : 1);
});
