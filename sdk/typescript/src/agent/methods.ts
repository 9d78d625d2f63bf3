/** The methods that an agent calls, the same over every transport. */
import type { PointName } from "../point.js";
import type { Reader, Writer } from "./codec.js";
import * as messages from "./messages.js";
import type { HookAnswer, ToolList } from "./types.js";

/** One method of the gateway. Over gRPC it has the same name. */
export interface Method<Request, Answer> {
  readonly name: PointName | "runHook" | "listTools";
  /** Whether its answers hold a decision. */
  readonly decides: boolean;
  /** The HTTP method. */
  readonly verb: "GET" | "POST";
  /** The path over HTTP. */
  path(request: Request): string;
  readonly request: Writer<Request>;
  readonly answer: Reader<Answer>;
}

/** The method of a point. */
export interface PointMethod<P> extends Method<messages.PointRequest<P>, messages.PointAnswer<P>> {
  readonly name: PointName;
}

function pointMethod<P>(name: PointName, path: string, { request, answer }: messages.PointMessages<P>): PointMethod<P> {
  return { name, decides: true, verb: "POST", path: () => path, request, answer };
}

/** The methods of the points. */
export const POINTS = {
  beforeLlmRequest: pointMethod("beforeLlmRequest", "/v1/before-llm-request", messages.beforeLlmRequest),
  beforeToolCall: pointMethod("beforeToolCall", "/v1/before-tool-call", messages.beforeToolCall),
  afterToolResult: pointMethod("afterToolResult", "/v1/after-tool-result", messages.afterToolResult),
  beforeResponse: pointMethod("beforeResponse", "/v1/before-response", messages.beforeResponse),
} as const;

export const runHook: Method<messages.HookRequest, HookAnswer> = {
  name: "runHook",
  decides: false,
  verb: "POST",
  path: ({ hook }) => `/v1/hooks/${hook}`,
  ...messages.runHook,
};

export const listTools: Method<Record<never, never>, ToolList> = {
  name: "listTools",
  decides: false,
  verb: "GET",
  path: () => "/v1/tools",
  ...messages.listTools,
};
