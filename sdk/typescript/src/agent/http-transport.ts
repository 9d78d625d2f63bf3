/** Calls over the HTTP/JSON API with `fetch`. Uses nothing of Node, so that it runs wherever `fetch` does. */
import { type JsonObject, type JsonValue, parseJson } from "../json.js";
import type { CallFailure, Violation } from "./errors.js";
import { stepReason, steps as stepsReader } from "./messages.js";
import type { Method } from "./methods.js";
import { type CallHead, type Outcome, type Transport, malformed, readAnswer } from "./transport.js";

/** The largest value of `hookgate-timeout-ms`. */
const MAX_ANNOUNCED_TIMEOUT_MS = 60_000;
/** Statuses with which proxies say that they got no answer from the gateway. gRPC calls all of them UNAVAILABLE. */
const PROXY_STATUSES: readonly number[] = [429, 502, 503, 504];
const ERROR_TYPE_PREFIX = "urn:hookgate:error:";

/** An answer whose body has arrived. */
interface HttpAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly requestId: string | undefined;
  /** `undefined` if it isn't a JSON object. */
  readonly body: JsonObject | undefined;
}

/** Calls a gateway at `http://host:port` or `https://host:port`. The runtime keeps the connections. */
export class HttpTransport implements Transport {
  readonly #base: string;
  readonly #fetch: typeof fetch;

  constructor(base: string, fetch: typeof globalThis.fetch) {
    this.#base = base;
    this.#fetch = fetch;
  }

  prepare<Request, Answer>(method: Method<Request, Answer>, request: Request): (head: CallHead) => Promise<Outcome<Answer>> {
    const url = this.#base + method.path(request);
    const body = method.request.toJson(request, "");
    return (head) => this.#send(method, url, method.verb === "POST" ? body : undefined, head);
  }

  close(): void {}

  async #send<Answer>(method: Method<never, Answer>, url: string, body: string | undefined, head: CallHead): Promise<Outcome<Answer>> {
    const announced = Math.min(Math.max(1, Math.floor(head.timeoutMs)), MAX_ANNOUNCED_TIMEOUT_MS);
    const headers = {
      ...head.headers,
      "hookgate-timeout-ms": String(announced),
      ...(body === undefined ? {} : { "content-type": "application/json" }),
    };
    // A redirect is no answer: the token is for this gateway only.
    const init = { method: method.verb, headers, redirect: "manual", signal: head.signal } as const;
    const fetch = this.#fetch;
    try {
      const response = await fetch(url, body === undefined ? init : { ...init, body });
      return outcomeOf(method, await readResponse(response));
    } catch (cause) {
      return { failure: { kind: "unreachable", detail: describe(cause), cause } };
    }
  }
}

/** `fetch` tells why it failed only in the cause of its error. */
function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error && error.cause.message !== "" ? `${error.message}: ${error.cause.message}` : error.message;
}

async function readResponse(response: Response): Promise<HttpAnswer> {
  const { status, headers } = response;
  const bytes = new Uint8Array(await response.arrayBuffer());
  return { status, headers, requestId: headers.get("x-request-id") ?? undefined, body: parseObject(bytes) };
}

function parseObject(bytes: Uint8Array): JsonObject | undefined {
  try {
    const value = parseJson(bytes);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function outcomeOf<Answer>(method: Method<never, Answer>, answer: HttpAnswer): Outcome<Answer> {
  const { status, headers, body, requestId } = answer;
  const decision = headers.get("hookgate-decision");
  if (method.decides ? decision === null : status !== 200) return { failure: errorOf(answer) };
  if (body === undefined) return { failure: malformed(`its body isn't a JSON object (HTTP ${status})`, requestId) };
  const contradiction = decision === null ? undefined : contradictionOf(decision, status, body);
  if (contradiction !== undefined) return { failure: malformed(contradiction, requestId) };
  return readAnswer(() => method.answer.fromJson(body, ""), requestId);
}

/** The header, the status and the body of a decision agree, unless a proxy has changed the answer. */
function contradictionOf(decision: string, status: number, body: JsonObject): string | undefined {
  if (body["decision"] !== decision) return "its header Hookgate-Decision contradicts its body";
  const agrees = decision === "block" ? status >= 400 && status < 500 : status === 200;
  return agrees ? undefined : `its decision contradicts its status, HTTP ${status}`;
}

/** Why there is no decision: the gateway's error, or something that isn't a gateway's answer. */
function errorOf({ status, headers, body, requestId }: HttpAnswer): CallFailure {
  const code = textIn(body, "code");
  const isError = status >= 400 && body?.["decision"] === undefined && textIn(body, "type")?.startsWith(ERROR_TYPE_PREFIX);
  if (body === undefined || code === undefined || !isError) {
    if (PROXY_STATUSES.includes(status)) return { kind: "unreachable", detail: `a proxy answered HTTP ${status}`, requestId };
    const expected = status === 200 ? "it has no header Hookgate-Decision" : "it is no problem of a gateway";
    return malformed(`${expected} (HTTP ${status})`, requestId);
  }
  const retryAfter = headers.get("retry-after") ?? "";
  return {
    kind: "error",
    code,
    detail: textIn(body, "detail") ?? "",
    retryAfterMs: /^\d+$/.test(retryAfter) ? Number(retryAfter) * 1000 : undefined,
    violations: violationsOf(body["errors"]),
    plugin: textIn(body, "plugin"),
    binding: textIn(body, "binding"),
    reason: stepReason.fromJson(textIn(body, "reason"), "reason"),
    steps: stepsOf(body["steps"]),
    requestId: textIn(body, "request_id") ?? requestId,
  };
}

function violationsOf(errors: JsonValue | undefined): Violation[] {
  if (!Array.isArray(errors)) return [];
  return errors.map((error) => ({
    field: (isObject(error) && textIn(error, "pointer")) || "",
    description: (isObject(error) && textIn(error, "message")) || "",
  }));
}

/** The steps until the error. Those that can't be read are left out: the error is as good without them. */
function stepsOf(steps: JsonValue | undefined): CallFailure["steps"] {
  try {
    return steps === undefined ? undefined : stepsReader.fromJson(steps, "steps");
  } catch {
    return undefined;
  }
}

function textIn(object: JsonObject | undefined, name: string): string | undefined {
  const value = object?.[name];
  return typeof value === "string" ? value : undefined;
}

function isObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
