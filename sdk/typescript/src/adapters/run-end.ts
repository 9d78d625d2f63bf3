/** What ends a run, and how an outer run hears of it although an agent library catches it. */
import { AsyncLocalStorage } from "node:async_hooks";
import { type CallContext, currentContext } from "../agent/call-context.js";
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
  readonly context: CallContext;
  end: Error | undefined;
  isClosed: boolean;
}

const toolScope = new AsyncLocalStorage<ToolScope>();

/**
 * Whether code with this context works for the tool. A worker that the tool started has its scope too, but may outlive the tool,
 * and work for other runs.
 */
function isWithin({ context: own, isClosed }: ToolScope, { tenant, sessionId, runId, parentRunId }: CallContext): boolean {
  if (isClosed || own.tenant !== tenant || own.sessionId !== sessionId) return false;
  return own.runId === runId || (own.runId !== undefined && own.runId === parentRunId);
}

/**
 * Tells the tools around the current code of an error that is about to be thrown, if it must end the run.
 *
 * These are the tools that are still running, and whose context has the same tenant, session and run. A run with another id must
 * name that of the tool as its `parentRunId`.
 */
export function noteRunEnd(error: Error): void {
  if (!endsRun(error)) return;
  const context = currentContext();
  for (let scope = toolScope.getStore(); scope !== undefined; scope = scope.outer) {
    if (isWithin(scope, context)) scope.end ??= error;
  }
}

/**
 * Runs a tool of a library that may make a result of what the tool throws.
 *
 * What happens in a worker that was started outside of the tool isn't noticed. One that was started within the tool and also works
 * for others must give each its own context (`withContext`): without ids, what ends the run of another one ends this one too.
 *
 * @throws What ended a run within the tool, whatever the library made of it.
 */
export async function throwNestedRunEnd<T>(run: () => Promise<T>): Promise<T> {
  const scope: ToolScope = { outer: toolScope.getStore(), context: currentContext(), end: undefined, isClosed: false };
  try {
    const value = await toolScope.run(scope, run);
    if (scope.end === undefined) return value;
  } catch (error) {
    if (scope.end === undefined) throw error;
  } finally {
    scope.isClosed = true;
  }
  // For tools around that are of the parent run of this one.
  noteRunEnd(scope.end);
  throw scope.end;
}
