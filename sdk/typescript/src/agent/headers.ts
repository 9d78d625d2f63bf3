/** The headers of a call: token, correlation, trace and depth. They are the same over every transport. */
import { context, propagation } from "@opentelemetry/api";
import type { Caller } from "./options.js";

/** The headers of a trace (W3C Trace Context). Propagators may write others, which are not for the gateway. */
const TRACE_HEADERS = ["traceparent", "tracestate"] as const;

const VISIBLE_ASCII = /^[!-~]+$/;

/** The gateway's limit for a token. */
const MAX_TOKEN_LENGTH = 8192;

/** The gateway's limit for `x-request-id`. */
const MAX_CORRELATION_ID = 128;

/**
 * The headers of what accompanies a call, apart from its token.
 *
 * @throws {TypeError} If a header can't carry the correlation id.
 */
export function callHeaders(correlationId: string | undefined, caller: Caller | undefined): Record<string, string> {
  const headers: Record<string, string> = { ...traceHeaders(caller) };
  if (correlationId !== undefined) {
    if (!VISIBLE_ASCII.test(correlationId) || correlationId.length > MAX_CORRELATION_ID) {
      throw new TypeError(`context.correlationId must have 1 to ${MAX_CORRELATION_ID} visible ASCII characters`);
    }
    headers["x-request-id"] = correlationId;
  }
  if (caller?.depth !== undefined && caller.depth > 0) headers["hookgate-depth"] = String(caller.depth);
  return headers;
}

/** Those of the active span if there is one, otherwise those of the caller. */
function traceHeaders(caller: Caller = {}): Record<string, string> {
  const active: Caller & Record<string, string> = {};
  propagation.inject(context.active(), active);
  const source: Caller = active.traceparent === undefined ? caller : active;
  return Object.fromEntries(TRACE_HEADERS.flatMap((name) => (source[name] === undefined ? [] : [[name, source[name]]])));
}

/**
 * The header of a token.
 *
 * @throws {TypeError} If a header can't carry the token, or if it is so long that a gateway would end the connection, which other calls
 * share. The message doesn't contain it.
 */
export function authorization(token: string): string {
  if (typeof token !== "string" || !VISIBLE_ASCII.test(token)) throw new TypeError("the token must be a text of visible ASCII characters");
  if (token.length <= MAX_TOKEN_LENGTH) return `Bearer ${token}`;
  throw new TypeError(`the token has ${token.length} characters; at most ${MAX_TOKEN_LENGTH} are allowed`);
}
