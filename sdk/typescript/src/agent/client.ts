/// <reference lib="esnext.disposable" preserve="true" />
/**
 * An agent's calls, over any transport. It implements most of a caller's duties (docs/protocol.md, section 4): context,
 * token, deadline, trace, and what follows from an answer.
 */
import type { JsonObject } from "../json.js";
import type { PointName } from "../point.js";
import { type CallContext, currentContext, mergeContexts } from "./call-context.js";
import { Deadline } from "./deadline.js";
import { meaningOf } from "./decide.js";
import { CallError, type CallFailure, NoDecision } from "./errors.js";
import { authorization, callHeaders } from "./headers.js";
import type { RequestContext } from "./messages.js";
import * as methods from "./methods.js";
import type {
  AgentOptions,
  CallOptions,
  HookCallOptions,
  OnNoDecision,
  PointCallOptions,
  TokenSource,
  ToolCallOptions,
} from "./options.js";
import type { Outcome, Transport } from "./transport.js";
import type {
  AfterToolResultPayload,
  BeforeLlmRequestPayload,
  BeforeResponsePayload,
  BeforeToolCallPayload,
  Continue,
  HookAnswer,
  Payload,
  PayloadInput,
  ToolList,
  ToolResult,
} from "./types.js";

/** The gateway's default budget for an invocation, in milliseconds. By default, waiting longer is useless. */
const DEFAULT_TIMEOUT_MS = 15_000;
/** Longest time of a timer, in milliseconds. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;
const HOOK_NAME = /^[a-z][a-z0-9_]{0,63}$/;

/**
 * Calls a gateway at the extension points and the lifecycle hooks of an agent. What to do after a call at a point:
 *
 * - It returns: go on **with the returned payload**, not with your own. If a person must approve the action, show them
 *   this one.
 * - It throws {@link Blocked}: stop the action, and never retry it. Before a tool call: don't run the tool, give the model
 *   the message as a tool error, and don't call `afterToolResult`. After a tool result: the message replaces the result;
 *   the tool is not run again, and your own error still applies. Before the response: the message replaces the content.
 * - It throws {@link NoDecision}: stop. If an outage may be ignored at a point, say so with `onNoDecision`. The call then
 *   returns your own payload, with the reason in `noDecision`.
 * - It throws a TypeError or a JsonError: the request can't be sent, and the message names the member.
 * - It throws the reason of your own `signal`.
 *
 * Calls may be made at the same time. A call is never sent twice.
 */
export abstract class GatewayClient implements Disposable, AsyncDisposable {
  readonly #transport: Transport;
  readonly #options: AgentOptions;
  #closed = false;

  /** @internal */
  protected constructor(transport: Transport, options: AgentOptions) {
    checkOptions(options);
    this.#transport = transport;
    this.#options = options;
  }

  /**
   * Call it before a model is asked.
   *
   * @throws {Blocked} A plugin stopped the request.
   * @throws {NoDecision} No decision could be made.
   */
  async beforeLlmRequest(
    payload: PayloadInput<BeforeLlmRequestPayload>,
    options: PointCallOptions = {},
  ): Promise<Continue<BeforeLlmRequestPayload>> {
    return this.#continue(methods.POINTS.beforeLlmRequest, payload as BeforeLlmRequestPayload, options);
  }

  /**
   * Call it before a tool runs. With `takesResults` a plugin may give the tool's result: the `decision` is then `answer`.
   *
   * @throws {Blocked} A plugin stopped the call of the tool.
   * @throws {NoDecision} No decision could be made.
   */
  beforeToolCall(
    payload: PayloadInput<BeforeToolCallPayload>,
    options?: ToolCallOptions & { readonly takesResults?: false | undefined },
  ): Promise<Continue<BeforeToolCallPayload>>;
  beforeToolCall(
    payload: PayloadInput<BeforeToolCallPayload>,
    options: ToolCallOptions,
  ): Promise<Continue<BeforeToolCallPayload> | ToolResult>;
  async beforeToolCall(
    payload: PayloadInput<BeforeToolCallPayload>,
    options: ToolCallOptions = {},
  ): Promise<Continue<BeforeToolCallPayload> | ToolResult> {
    return this.#decide(methods.POINTS.beforeToolCall, payload as BeforeToolCallPayload, options);
  }

  /**
   * Call it after a tool ran, on success and on failure; not for a tool whose call was blocked.
   *
   * @throws {Blocked} A plugin stopped the result.
   * @throws {NoDecision} No decision could be made.
   */
  async afterToolResult(
    payload: PayloadInput<AfterToolResultPayload>,
    options: PointCallOptions = {},
  ): Promise<Continue<AfterToolResultPayload>> {
    return this.#continue(methods.POINTS.afterToolResult, payload as AfterToolResultPayload, options);
  }

  /**
   * Call it before the answer is shown.
   *
   * @throws {Blocked} A plugin stopped the answer.
   * @throws {NoDecision} No decision could be made.
   */
  async beforeResponse(
    payload: PayloadInput<BeforeResponsePayload>,
    options: PointCallOptions = {},
  ): Promise<Continue<BeforeResponsePayload>> {
    return this.#continue(methods.POINTS.beforeResponse, payload as BeforeResponsePayload, options);
  }

  /**
   * Tells the tenant's plugins that something happened in the agent's life, such as `session_start`, and gathers what they
   * contribute. A hook decides nothing: an agent that may go on without contributions goes on after an error as if nobody
   * had contributed. If the error names a plugin, an operator requires that plugin (`on_error: fail`).
   *
   * @param hook `[a-z][a-z0-9_]{0,63}`.
   * @param body What happened; docs/protocol.md, section 9, has the form for known hooks.
   * @throws {CallError} The gateway doesn't answer, or answers with an error.
   */
  async runHook(hook: string, body: object, options: HookCallOptions = {}): Promise<HookAnswer> {
    if (!HOOK_NAME.test(hook)) throw new TypeError(`the hook's name must match ${HOOK_NAME.source}`);
    const { expectPlanDigest } = options;
    const request = (context: RequestContext) => ({ context, hook, body: body as JsonObject, expectPlanDigest });
    return answerOf(`no answer at the hook ${hook}`, await this.#call(methods.runHook, request, options));
  }

  /**
   * The tools that the tenant's plugins provide. Offer them to the model beside your own, and pass a call of one to
   * {@link beforeToolCall} with `takesResults`, which has the plugin run it.
   *
   * @throws {CallError} The gateway doesn't answer, or answers with an error.
   */
  async listTools(options: CallOptions = {}): Promise<ToolList> {
    return answerOf("no list of tools", await this.#call(methods.listTools, () => ({}), options));
  }

  /** Closes the connection. Calls in flight finish; later ones throw. */
  close(): void {
    if (!this.#closed) this.#transport.close();
    this.#closed = true;
  }

  /** The same as {@link close}, for `using`. */
  [Symbol.dispose](): void {
    this.close();
  }

  /** The same as {@link close}, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /** Calls a point where no plugin can give a result. */
  async #continue<P extends Payload>(method: methods.PointMethod<P>, payload: P, options: PointCallOptions): Promise<Continue<P>> {
    return (await this.#decide(method, payload, { ...options, takesResults: undefined })) as Continue<P>;
  }

  /** Calls a point. Without `takesResults`, the answer is never a result. */
  async #decide<P extends Payload>(
    method: methods.PointMethod<P>,
    payload: P,
    options: ToolCallOptions,
  ): Promise<Continue<P> | ToolResult> {
    const { expectPlanDigest, trace = this.#options.trace, takesResults } = options;
    const request = (context: RequestContext) => ({ context, payload, expectPlanDigest, trace, takesResults });
    const outcome = await this.#call(method, request, options);
    const meaning = "failure" in outcome ? outcome : meaningOf(method.name, outcome.answer, takesResults === true);
    if ("blocked" in meaning) throw meaning.blocked;
    if ("goOn" in meaning) return meaning.goOn;
    const noDecision = new NoDecision(method.name, meaning.failure);
    // An error that the request can cause stops: who ignores an outage must not be brought to ignore a rule.
    if (!noDecision.isTransient || this.#onNoDecision(method.name, options) !== "go_on") throw noDecision;
    return withoutDecision(payload, noDecision);
  }

  #onNoDecision(point: PointName, options: PointCallOptions): OnNoDecision | undefined {
    const ofAgent = this.#options.onNoDecision;
    return options.onNoDecision ?? (typeof ofAgent === "object" ? ofAgent[point] : ofAgent);
  }

  /** Makes one call, and sends it once. */
  async #call<Request, Answer>(
    method: methods.Method<Request, Answer>,
    request: (context: RequestContext) => Request,
    options: CallOptions,
  ): Promise<Outcome<Answer>> {
    if (this.#closed) throw new Error("the agent is closed");
    const { signal, caller } = options;
    signal?.throwIfAborted();
    const context = mergeContexts(this.#options.context, currentContext(), options.context);
    const { tenant: _, correlationId, ...sent } = context;
    const headers = callHeaders(correlationId, caller);
    const send = this.#transport.prepare(method, request(sent));
    const ownTimeoutMs = timeoutOf({ timeoutMs: options.timeoutMs ?? this.#options.timeoutMs });
    const timeoutMs = Math.min(ownTimeoutMs, caller?.timeLeftMs ?? Infinity);
    if (timeoutMs <= 0) return { failure: overdue(timeoutMs) };

    const deadline = new Deadline(timeoutMs, signal);
    try {
      const authorized = await withToken(headers, this.#options.token, context, deadline);
      const head = { timeoutMs: deadline.leftMs, signal: deadline.signal };
      const outcome = "failure" in authorized ? authorized : await send({ ...authorized, ...head });
      // Even an answer is of no use to a caller who has given up.
      signal?.throwIfAborted();
      return isOverdue(outcome, deadline) ? { failure: overdue(timeoutMs, outcome.failure.cause) } : outcome;
    } finally {
      deadline.close();
    }
  }
}

/** A mistake in an option shows when the agent is made, and not only with the first outage. */
function checkOptions({ token, timeoutMs, onNoDecision }: AgentOptions): void {
  if (token !== undefined && typeof token !== "function") authorization(token);
  timeoutOf({ timeoutMs });
  const byPoint = typeof onNoDecision === "object" ? onNoDecision : {};
  if (typeof onNoDecision !== "object") checkOnNoDecision("onNoDecision", onNoDecision);
  for (const [point, then] of Object.entries(byPoint)) {
    if (!Object.hasOwn(methods.POINTS, point)) throw new TypeError(`onNoDecision.${point} is not a point`);
    checkOnNoDecision(`onNoDecision.${point}`, then);
  }
}

function checkOnNoDecision(name: string, then: OnNoDecision | undefined): void {
  if (then !== undefined && then !== "fail" && then !== "go_on") throw new TypeError(`${name} must be fail or go_on`);
}

function timeoutOf({ timeoutMs = DEFAULT_TIMEOUT_MS }: Pick<AgentOptions, "timeoutMs">): number {
  if (timeoutMs > 0 && timeoutMs <= MAX_TIMEOUT_MS) return timeoutMs;
  throw new TypeError(`timeoutMs must be more than 0 and at most ${MAX_TIMEOUT_MS}, is ${timeoutMs}`);
}

/** The headers with the token. */
async function withToken(
  headers: Record<string, string>,
  source: TokenSource | undefined,
  context: CallContext,
  deadline: Deadline,
): Promise<{ headers: Record<string, string> } | { failure: CallFailure }> {
  if (source === undefined) return { headers };
  try {
    const token = typeof source === "string" ? source : await deadline.race((async () => source(context))());
    return { headers: { ...headers, authorization: authorization(token) } };
  } catch (cause) {
    const detail = cause instanceof Error ? cause.message : String(cause);
    return { failure: { kind: "token", detail: `the token source failed: ${detail}`, cause } };
  }
}

function isOverdue(outcome: Outcome<unknown>, deadline: Deadline): outcome is { failure: CallFailure } {
  if (!("failure" in outcome)) return false;
  const { kind } = outcome.failure;
  return kind === "timeout" || (deadline.signal.aborted && (kind === "unreachable" || kind === "token"));
}

function overdue(timeoutMs: number, cause?: unknown): CallFailure {
  return { kind: "timeout", detail: `no answer from the gateway within ${Math.round(timeoutMs)} ms`, cause };
}

function answerOf<Answer>(what: string, outcome: Outcome<Answer>): Answer {
  if ("failure" in outcome) throw new CallError(what, outcome.failure);
  return outcome.answer;
}

function withoutDecision<P>(payload: P, noDecision: NoDecision): Continue<P> {
  const facts = { notices: [], steps: [], planDigest: "", revision: 0, requestId: "" };
  return { decision: "continue", payload, modified: false, ...facts, noDecision };
}
