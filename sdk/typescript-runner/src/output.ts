/**
 * Keeps plugins away from what belongs to the process: stdout, its end, and the handling of uncaught errors.
 *
 * A plugin of another system writes to stdout and stderr whenever it likes, and one that fails in a timer would end a process that other plugins
 * share.
 */
import { Console } from "node:console";
import { Writable } from "node:stream";
import { stderrLogger } from "@hookgate/sdk";
import { currentScope } from "./scope.js";
import { anyText, stackText } from "./text.js";

/** Longest text of a line. */
const MAX_LINE = 8192;

/** Turns a plugin's output into lines of the process's log, with the plugin's name. */
export function redirectOutput(): void {
  const toLog = (level: "info" | "error") => (chunk: unknown) => logOutput(level, chunk);
  globalThis.console = new Console({ stdout: lineStream(toLog("info")), stderr: lineStream(toLog("error")) }) as typeof console;
  process.stdout.write = writeFunction(toLog("info")) as typeof process.stdout.write;
  redirectStderr(toLog("error"));
}

/** Leaves stderr to the process's own log. A plugin that writes there directly could forge lines of other plugins. */
function redirectStderr(toLog: (chunk: unknown) => void): void {
  const writeLine = process.stderr.write.bind(process.stderr) as (chunk: unknown, ...more: unknown[]) => boolean;
  const writeText = writeFunction(toLog);
  let isOwnLine = false;
  for (const level of ["info", "warn", "error"] as const) {
    const log = stderrLogger[level].bind(stderrLogger);
    stderrLogger[level] = (message, attributes) => {
      const before = isOwnLine;
      isOwnLine = true;
      try {
        log(message, attributes);
      } finally {
        isOwnLine = before;
      }
    };
  }
  process.stderr.write = ((chunk: unknown, ...more: unknown[]) =>
    isOwnLine ? writeLine(chunk, ...more) : writeText(chunk, ...more)) as typeof process.stderr.write;
}

/** Logs errors that no plugin handles, and refuses to let a plugin end the process. Returns how to end it. */
export function guardProcess(): (code: number) => never {
  const exit = process.exit.bind(process) as (code: number) => never;
  process.exit = (() => {
    throw new Error("process.exit() isn't available here: the process serves other plugins and calls too");
  }) as typeof process.exit;
  process.on("unhandledRejection", (error) => logUncaught("a plugin left a rejected promise unhandled", error));
  process.on("uncaughtException", (error) => logUncaught("a plugin threw outside of a call", error));
  return exit;
}

function logUncaught(message: string, error: unknown): void {
  // As a text: what a plugin throws must not fail this handler.
  stderrLogger.error(message, { ...whose(), error: stackText(error) });
}

function logOutput(level: "info" | "error", chunk: unknown): void {
  const text = textOf(chunk).replace(/\n$/, "").toWellFormed();
  if (text !== "") stderrLogger[level](text.slice(0, MAX_LINE), whose());
}

/** Bytes are UTF-8. */
function textOf(chunk: unknown): string {
  if (!(chunk instanceof Uint8Array)) return anyText(chunk);
  return Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString();
}

function whose(): { plugin?: string; tenant?: string } {
  const { plugin, ctx } = currentScope() ?? {};
  return { ...(plugin === undefined ? {} : { plugin }), ...(ctx === undefined ? {} : { tenant: ctx.tenant }) };
}

function lineStream(write: (chunk: unknown) => void): Writable {
  return new Writable({
    decodeStrings: false,
    write(chunk, _, done) {
      write(chunk);
      done();
    },
  });
}

/** Like `Writable.write`, whose callback is its second or third argument. */
function writeFunction(write: (chunk: unknown) => void) {
  return (chunk: unknown, encoding?: unknown, done?: unknown): boolean => {
    write(chunk);
    const callback = typeof encoding === "function" ? encoding : done;
    if (typeof callback === "function") process.nextTick(callback as () => void);
    return true;
  };
}
