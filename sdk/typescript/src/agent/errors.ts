/** Why an agent must not go on: a block, which is a decision, or the lack of a decision. */
import type { PointName } from "../point.js";
import type { AnswerFacts, Payload, PluginNotice, Step, StepReason } from "./types.js";

/** @internal What a block says. */
export interface BlockFacts extends AnswerFacts {
  readonly point: PointName;
  readonly code: string;
  readonly message: string;
  readonly scope: "step" | "run";
  readonly retryAfterMs: number | undefined;
  readonly plugin: string | undefined;
  readonly binding: string | undefined;
  readonly payload: Payload;
}

/** A plugin stopped the action. Never retry it. The `message` is for the user, or for the model as a tool error. */
export class Blocked extends Error implements AnswerFacts {
  /** The name of the class. */
  override readonly name = "Blocked";
  /** The point of the call. */
  readonly point: PointName;
  /** Machine-readable reason, such as `TOOL_NOT_ALLOWED`. */
  readonly code: string;
  /** `step`: this one action; tell the model and go on. `run`: end the whole run. */
  readonly scope: "step" | "run";
  /** When it makes sense to try again, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The plugin, if the gateway reveals it. */
  readonly plugin: string | undefined;
  /** The binding that put it into the chain, if the gateway reveals it. */
  readonly binding: string | undefined;
  /** The payload as the chain left it. */
  readonly payload: Payload;
  /** The plugins' notices, in the order of the chain. */
  readonly notices: readonly PluginNotice[];
  /** What happened at each step; empty if the gateway doesn't reveal it. */
  readonly steps: readonly Step[];
  /** Digest of the plan that ran: lower-case hex SHA-256. */
  readonly planDigest: string;
  /** Revision of the gateway's routing table. */
  readonly revision: number;
  /** The gateway's id of this invocation (UUIDv7). */
  readonly requestId: string;

  /** @internal */
  constructor(facts: BlockFacts) {
    super(facts.message);
    this.point = facts.point;
    this.code = facts.code;
    this.scope = facts.scope;
    this.retryAfterMs = facts.retryAfterMs;
    this.plugin = facts.plugin;
    this.binding = facts.binding;
    this.payload = facts.payload;
    this.notices = facts.notices;
    this.steps = facts.steps;
    this.planDigest = facts.planDigest;
    this.revision = facts.revision;
    this.requestId = facts.requestId;
  }
}

/**
 * What went wrong:
 *
 * - `error`: the gateway answered with an error, whose `code` says why.
 * - `unreachable`: the gateway gave no answer.
 * - `timeout`: it gave none in time.
 * - `malformed`: the answer isn't a gateway's, or contradicts itself.
 * - `token`: the token source failed, and nothing was sent.
 */
export type CallErrorKind = "error" | "unreachable" | "timeout" | "malformed" | "token";

/** What is wrong with a request. */
export interface Violation {
  /** JSON pointer to the member, such as `/payload/args`; empty for the whole request. */
  readonly field: string;
  /** One sentence. */
  readonly description: string;
}

/** @internal Why a call has no answer. */
export interface CallFailure {
  readonly kind: CallErrorKind;
  readonly detail: string;
  readonly code?: string | undefined;
  readonly retryAfterMs?: number | undefined;
  readonly violations?: readonly Violation[] | undefined;
  readonly plugin?: string | undefined;
  readonly binding?: string | undefined;
  readonly reason?: StepReason | undefined;
  readonly steps?: readonly Step[] | undefined;
  readonly omittedSteps?: number | undefined;
  readonly requestId?: string | undefined;
  readonly cause?: unknown;
}

/** Codes of errors that may be gone when the same call is made again. */
const TRANSIENT_CODES: ReadonlySet<string> = new Set([
  "OVERLOADED",
  "DRAINING",
  "STORE_UNAVAILABLE",
  "RECORD_UNAVAILABLE",
  "PLUGIN_UNAVAILABLE",
  "PLUGIN_TIMEOUT",
  "BUDGET_EXHAUSTED",
  "TENANT_LIMITED",
]);

/** A call has no answer. Calls at points throw its subclass {@link NoDecision}. */
export class CallError extends Error {
  /** The name of the class. */
  override readonly name: string = "CallError";
  /** What went wrong. */
  readonly kind: CallErrorKind;
  /** The gateway's error code, such as `PLUGIN_TIMEOUT` (docs/errors.md); `undefined` if the kind isn't `error`. */
  readonly code: string | undefined;
  /** What happened, in one sentence. */
  readonly detail: string;
  /** When to try again, in milliseconds, if the gateway says so. */
  readonly retryAfterMs: number | undefined;
  /** What is wrong with the request. */
  readonly violations: readonly Violation[];
  /** The plugin of the step that ended the chain, if the gateway reveals it. The same holds for the next members. */
  readonly plugin: string | undefined;
  /** The binding that put it into the chain. */
  readonly binding: string | undefined;
  /** Why that step failed, such as `timeout` or `breaker_open`. */
  readonly reason: StepReason | undefined;
  /** What happened at each step; the one that ended the chain is `failed`. */
  readonly steps: readonly Step[];
  /** How many steps of a long chain are omitted before the first of `steps`. */
  readonly omittedSteps: number;
  /** The gateway's id of the call, if it answered. */
  readonly requestId: string | undefined;

  /** @internal */
  constructor(what: string, failure: CallFailure) {
    const { kind, code, detail, cause } = failure;
    super(`${what}: ${code === undefined ? "" : `${code}: `}${detail}`, cause === undefined ? undefined : { cause });
    this.kind = kind;
    this.code = code;
    this.detail = detail;
    this.retryAfterMs = failure.retryAfterMs;
    this.violations = failure.violations ?? [];
    this.plugin = failure.plugin;
    this.binding = failure.binding;
    this.reason = failure.reason;
    this.steps = failure.steps ?? [];
    this.omittedSteps = failure.omittedSteps ?? 0;
    this.requestId = failure.requestId;
  }

  /** Whether the same call may succeed later. Trying again runs the plugins again. */
  get isTransient(): boolean {
    return this.code === undefined ? this.kind === "unreachable" || this.kind === "timeout" : TRANSIENT_CODES.has(this.code);
  }
}

/** No decision could be made at a point: stop. It is no block, and a block is never one. */
export class NoDecision extends CallError {
  /** The name of the class. */
  override readonly name = "NoDecision";
  /** The point of the call. */
  readonly point: PointName;

  /** @internal */
  constructor(point: PointName, failure: CallFailure) {
    super(`no decision at ${point}`, failure);
    this.point = point;
  }
}
