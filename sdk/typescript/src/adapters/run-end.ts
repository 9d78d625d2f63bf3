/** What ends a run, and how an outer run hears of it although an agent library catches it. */
import { AsyncLocalStorage } from "node:async_hooks";
import { Blocked, NoDecision } from "../agent/errors.js";

/** A plugin changed something that the agent library can't take. The action doesn't happen. */
export class PatchError extends Error {
  /** The name of the class. */
  override readonly name = "PatchError";

  /** @internal */
  constructor(message: string) {
    super(message);
    // Here, because adapters throw it in many places.
    noteRunEnd(this);
  }
}

/**
 * The block or the missing decision that ended a run. Agent libraries wrap errors in their own, so look for it with this.
 *
 * @param error What the library threw or reported.
 */
export function findGatewayError(error: unknown): Blocked | NoDecision | undefined {
  for (const cause of causesOf(error)) if (cause instanceof Blocked || cause instanceof NoDecision) return cause;
  return undefined;
}

/** Whether an error, or one that a library wrapped in it, must end the run. A block of one step doesn't. */
export function endsRun(error: unknown): boolean {
  for (const cause of causesOf(error)) {
    if (cause instanceof NoDecision || cause instanceof PatchError) return true;
    if (cause instanceof Blocked && cause.scope === "run") return true;
  }
  return false;
}

/** An error and those that led to it, the nearest first. */
function* causesOf(error: unknown): Iterable<object> {
  const seen = new Set<unknown>();
  for (const queue = [error]; queue.length > 0; ) {
    const current = queue.shift();
    if (typeof current !== "object" || current === null || seen.has(current)) continue;
    yield current;
    seen.add(current);
    const { cause, error: wrapped } = current as { cause?: unknown; error?: unknown };
    queue.push(cause, wrapped);
  }
}

/** A tool that is running, and what ended a run within it. */
interface ToolScope {
  readonly outer: ToolScope | undefined;
  end: Error | undefined;
}

const toolScope = new AsyncLocalStorage<ToolScope>();

/** Tells the tools around the current code of an error that is about to be thrown, if it must end the run. */
export function noteRunEnd(error: Error): void {
  if (!endsRun(error)) return;
  for (let scope = toolScope.getStore(); scope !== undefined; scope = scope.outer) scope.end ??= error;
}

/**
 * Runs a tool of a library that may make a result of what the tool throws.
 *
 * @throws What ended a run within the tool, whatever the library made of it.
 */
export async function throwNestedRunEnd<T>(run: () => T | Promise<T>): Promise<T> {
  const scope: ToolScope = { outer: toolScope.getStore(), end: undefined };
  let value: T;
  try {
    value = await toolScope.run(scope, run);
  } catch (error) {
    throw scope.end ?? error;
  }
  if (scope.end !== undefined) throw scope.end;
  return value;
}
