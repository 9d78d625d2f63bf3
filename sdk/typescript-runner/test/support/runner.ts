/** Runs the program as a process. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { PluginClient } from "./client.js";

const PACKAGE = fileURLToPath(new URL("../..", import.meta.url));
const PROGRAM = `${PACKAGE}dist/main.js`;
const BUN = fileURLToPath(new URL("../../../typescript/node_modules/.bin/bun", import.meta.url));
const MAX_START_MS = 20_000;

export const FIXTURES = `${PACKAGE}test/fixtures`;

/** A folder that the test removes. */
export function temporaryFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "hookgate-runner-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Writes a file of a test, such as a plugin, and returns its path. */
export function write(folder: string, name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

/** A runner that serves. */
export interface Runner {
  readonly address: string;
  readonly child: ChildProcess;
  /** What it wrote to stderr so far, line by line. */
  lines(): { [name: string]: any }[];
  stdout(): string;
  /** The lines, once one of them matches. */
  line(pattern: RegExp): Promise<{ [name: string]: any }>;
  client(plugin: string): PluginClient;
  /** Ends it with SIGTERM and returns the exit code. */
  end(): Promise<number | null>;
}

export interface RunOptions {
  readonly bun?: boolean;
  readonly env?: { readonly [name: string]: string };
  readonly cwd?: string;
}

/** Starts it, and waits until it listens. */
export async function startRunner(t: TestContext, args: readonly string[], options: RunOptions = {}): Promise<Runner> {
  const address = `unix://${temporaryFolder(t)}/s`;
  const child = spawn(options.bun ? BUN : process.execPath, [PROGRAM, ...args, "--listen", address, "--drain", "1"], {
    stdio: ["ignore", "pipe", "pipe"],
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
  });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk) => (stdout += chunk));
  child.stderr.on("data", (chunk) => (stderr += chunk));
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const clients: PluginClient[] = [];
  t.after(() => {
    for (const client of clients) client.close();
    child.kill("SIGKILL");
  });
  const lines = () =>
    stderr
      .split("\n")
      .filter((line) => line.startsWith("{"))
      .map((line) => JSON.parse(line));
  const runner: Runner = {
    address,
    child,
    lines,
    stdout: () => stdout,
    line: (pattern) =>
      until(
        () => lines().find((line) => pattern.test(JSON.stringify(line))),
        () => `${pattern} in ${stderr}`,
      ),
    client(plugin) {
      const client = new PluginClient(address, plugin);
      clients.push(client);
      return client;
    },
    end() {
      child.kill("SIGTERM");
      return ended;
    },
  };
  await until(
    () => lines().some(({ message }) => message === "plugin listens") || undefined,
    () => `a start: ${stderr}`,
    child,
  );
  return runner;
}

/** Runs it where it can't start. */
export function runnerFailure(
  args: readonly string[],
  options: RunOptions = {},
): { status: number | null; message: string; stderr: string; stdout: string } {
  const { status, stderr, stdout } = spawnSync(options.bun ? BUN : process.execPath, [PROGRAM, ...args], {
    encoding: "utf8",
    timeout: MAX_START_MS,
    cwd: options.cwd,
    env: { ...process.env, ...options.env },
  });
  const line = stderr.split("\n").find((candidate) => candidate.startsWith("{") && candidate.includes('"level":"error"')) ?? "{}";
  return { status, stderr, stdout, message: (JSON.parse(line) as { message?: string }).message ?? stderr.split("\n")[0] ?? "" };
}

async function until<T>(read: () => T | undefined, what: () => string, child?: ChildProcess): Promise<T> {
  for (const begin = Date.now(); Date.now() - begin < MAX_START_MS; await sleep(10)) {
    const value = read();
    if (value !== undefined) return value;
    if (child?.exitCode != null) break;
  }
  throw new Error(`waited in vain for ${what()}`);
}
