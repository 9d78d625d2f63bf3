/** How calls reach a gateway. */
import type { CallFailure } from "./errors.js";
import type { Method } from "./methods.js";

/** What a call came to: an answer, or none. */
export type Outcome<Answer> = { readonly answer: Answer } | { readonly failure: CallFailure };

/** What accompanies a call's message. */
export interface CallHead {
  /** Headers, by their names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds until the caller stops waiting, more than 0. */
  readonly timeoutMs: number;
  /** Aborted when the caller stops waiting. */
  readonly signal: AbortSignal;
}

/** A connection to a gateway. */
export interface Transport {
  /**
   * Encodes a call. The function that it returns sends it, once, and throws nothing.
   *
   * @throws {TypeError | JsonError} If the request can't be encoded.
   */
  prepare<Request, Answer>(method: Method<Request, Answer>, request: Request): (head: CallHead) => Promise<Outcome<Answer>>;
  /** Closes the connection. Calls in flight finish. */
  close(): void;
}

/** The answer as its reader gives it. One that can't be read is malformed. */
export function readAnswer<Answer>(read: () => Answer, requestId: string | undefined): Outcome<Answer> {
  try {
    return { answer: read() };
  } catch (cause) {
    return { failure: malformed(cause instanceof Error ? cause.message : String(cause), requestId, cause) };
  }
}

/** The failure of a call whose answer can't be trusted. */
export function malformed(detail: string, requestId?: string, cause?: unknown): CallFailure {
  return { kind: "malformed", detail: `the gateway's answer is malformed: ${detail}`, requestId, cause };
}
