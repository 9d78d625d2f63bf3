/** Options of an agent and of its calls. */
import type { PointName } from "../point.js";
import type { CallContext } from "./call-context.js";

/**
 * Where bearer tokens come from: always the same one, or a function that is asked for each call. The function gets the
 * call's context, so that it can choose the token by `tenant`.
 */
export type TokenSource = string | ((context: CallContext) => string | Promise<string>);

/**
 * What to do at a point when no decision could be made: `fail` throws {@link NoDecision}, `go_on` continues with the
 * agent's own payload after an outage. An error that the request may have caused, and an answer that is malformed, always fail.
 */
export type OnNoDecision = "fail" | "go_on";

/** The call that a plugin is handling while it calls a gateway itself. The `Context` of a plugin is one. */
export interface Caller {
  /** Milliseconds until the gateway gives up that call. They limit calls made on its behalf. */
  readonly timeLeftMs?: number | undefined;
  /** W3C trace context of that call. An active OpenTelemetry span has precedence. */
  readonly traceparent?: string | undefined;
  /** W3C trace state of that call. */
  readonly tracestate?: string | undefined;
  /** Number of gateways that the call has passed. Gateways use it to detect loops. */
  readonly depth?: number | undefined;
}

/** What every call may say. */
export interface CallOptions {
  /** Added to the agent's own context and that of `withContext`. Its values have precedence. */
  readonly context?: CallContext | undefined;
  /**
   * Waits this long for an answer, in milliseconds, more than 0 and at most 2^31 - 1; the gateway is told. Getting the
   * token counts. The default is the agent's.
   */
  readonly timeoutMs?: number | undefined;
  /** Cancels the call. It then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** The call of a plugin on whose behalf this one is made: limits its time, and forwards trace and depth. */
  readonly caller?: Caller | undefined;
}

/** What a call at a hook may say. */
export interface HookCallOptions extends CallOptions {
  /** The `planDigest` of an earlier answer at the hook: if the plan has changed since, the call fails with PLAN_CHANGED. */
  readonly expectPlanDigest?: string | undefined;
}

/** What a call at a point may say. */
export interface PointCallOptions extends CallOptions {
  /** The `planDigest` of an earlier answer at the point: if the plan has changed since, the call fails with PLAN_CHANGED. */
  readonly expectPlanDigest?: string | undefined;
  /** Asks for `steps[].changes`. Meant for inspecting a chain; it makes answers larger. The default is the agent's. */
  readonly trace?: boolean | undefined;
  /** What to do when no decision could be made. The default is the agent's. */
  readonly onNoDecision?: OnNoDecision | undefined;
}

/** What a call at `beforeToolCall` may say. */
export interface ToolCallOptions extends PointCallOptions {
  /**
   * Whether the agent takes the tool's result from a plugin instead of running the tool. Without it, such a result is a
   * block with the code TOOL_ANSWERED.
   */
  readonly takesResults?: boolean | undefined;
}

/** What holds for every call of an agent. */
export interface AgentOptions {
  /** Without it, no token is sent, and the gateway answers TOKEN_MISSING. */
  readonly token?: TokenSource | undefined;
  /** Sent with each call. */
  readonly context?: CallContext | undefined;
  /** How long a call waits for an answer, in milliseconds, more than 0 and at most 2^31 - 1. The default is 15,000. */
  readonly timeoutMs?: number | undefined;
  /** Asks for `steps[].changes` at each point. */
  readonly trace?: boolean | undefined;
  /** What to do when no decision could be made, at every point or at those named. The default is `fail`. */
  readonly onNoDecision?: OnNoDecision | { readonly [Name in PointName]?: OnNoDecision | undefined } | undefined;
}
