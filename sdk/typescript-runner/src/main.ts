#!/usr/bin/env node
/** `hookgate-runner`: serves plugins of other systems. */
import { serve, stderrLogger } from "@hookgate/sdk";
import { EntryError, UsageError, USAGE, parseRunnerOptions } from "./options.js";
import { guardProcess, redirectOutput } from "./output.js";
import { loadPlugins } from "./plugins.js";

async function main(args: readonly string[], exit: (code: number) => never): Promise<void> {
  const options = parseRunnerOptions(args);
  if (options === undefined) {
    process.stdout.write(USAGE);
    return;
  }
  // Before the first line of a plugin runs.
  redirectOutput();
  const { plugins, close } = await loadPlugins(options.entries);
  const server = await serve(plugins, options.listen, options.serve);
  await server.stopped;
  await close();
  exit(0);
}

const exit = guardProcess();
main(process.argv.slice(2), exit).catch((error: unknown) => {
  if (error instanceof UsageError) process.stderr.write(`hookgate-runner: ${error.message}\n\n${USAGE}`);
  else if (error instanceof EntryError) stderrLogger.error(error.message);
  else stderrLogger.error("the runner can't start", { error });
  exit(error instanceof UsageError ? 2 : 1);
});
