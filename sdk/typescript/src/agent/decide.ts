/** What follows from a gateway's answer at a point: go on, a block, or no decision. Only looks at messages. */
import type { PointName } from "../point.js";
import { Blocked, type CallFailure } from "./errors.js";
import type { Block, PointAnswer } from "./messages.js";
import { malformed } from "./transport.js";
import type { BeforeToolCallPayload, Continue, Payload, ToolResult } from "./types.js";

/** What an answer means. */
export type Meaning<P> = { readonly goOn: Continue<P> | ToolResult } | { readonly blocked: Blocked } | { readonly failure: CallFailure };

/**
 * What an answer means. One that isn't exactly one decision is none.
 *
 * @param takesResults Whether the agent takes a tool's result from a plugin.
 */
export function meaningOf<P extends Payload>(point: PointName, answer: PointAnswer<P>, takesResults: boolean): Meaning<P> {
  const { decision, block, result, payload, modified, ...facts } = answer;
  const bad = (detail: string): Meaning<P> => ({ failure: malformed(detail, facts.requestId) });
  if (decision === "unknown") return bad("it has no decision that this version of the SDK knows");
  if ((decision === "block") !== (block !== undefined)) return bad("its decision and its block contradict each other");
  if ((decision === "answer") !== (result !== undefined)) return bad("its decision and its result contradict each other");
  if (block !== undefined) return { blocked: blocked(point, block, answer) };
  if (result === undefined) return { goOn: { decision: "continue", payload, modified, ...facts } };
  if (!takesResults) return bad("it is a result that was not asked for");
  // Only answers at `beforeToolCall` have a result.
  const called = payload as Payload as BeforeToolCallPayload;
  return { goOn: { decision: "answer", result, payload: called, modified, ...facts } };
}

function blocked(point: PointName, block: Block, answer: PointAnswer<Payload>): Blocked {
  const { payload, notices, steps, planDigest, revision, requestId } = answer;
  const { code, message, retryAfterMs, plugin, binding } = block;
  const scope = block.scope === "run" ? "run" : "step";
  const reason = { point, code, message, scope, retryAfterMs, plugin, binding } as const;
  return new Blocked({ ...reason, payload, notices, steps, planDigest, revision, requestId });
}
