/** What both entries of the agent's client export. */
export { JsonError, type JsonObject, type JsonValue } from "../json.js";
export type { PointName } from "../point.js";
export { fromJson, toJson } from "../values.js";
export { type CallContext, currentContext, withContext } from "./call-context.js";
export { GatewayClient } from "./client.js";
export { Blocked, CallError, type CallErrorKind, NoDecision, type Violation } from "./errors.js";
export type {
  AgentOptions,
  CallOptions,
  Caller,
  HookCallOptions,
  OnNoDecision,
  PointCallOptions,
  TokenSource,
  ToolCallOptions,
} from "./options.js";
export type * from "./types.js";
