/** What an agent sends to a gateway, and what it gets back. Names are those of the protos, in camelCase. */
import type { JsonObject, JsonValue } from "../json.js";
import type { Media } from "../media.js";
import type { TokenUsage } from "../token-usage.js";
import type { ToolAnnotations } from "../tool-annotations.js";
import type { NoDecision } from "./errors.js";

export type { Media, MediaData, MediaUrl } from "../media.js";
export type { TokenUsage } from "../token-usage.js";
export type { ToolAnnotations } from "../tool-annotations.js";

/** What the agent is about to send to a model. */
export interface BeforeLlmRequestPayload {
  /** The user's text. May be empty. */
  readonly text: string;
  /** Images beside the text. */
  readonly images?: readonly Media[] | undefined;
  /** Files beside the text. */
  readonly files?: readonly Media[] | undefined;
  /** The system prompt. */
  readonly systemPrompt?: string | undefined;
  /** The conversation in the agent's own format. */
  readonly messages?: JsonValue[] | undefined;
  /** The tools offered to the model, in the agent's own format. */
  readonly tools?: JsonValue[] | undefined;
  /** Additional data for plugins. */
  readonly extra?: JsonObject | undefined;
}

/** A tool call that the agent is about to make. */
export interface BeforeToolCallPayload {
  /** Name of the tool, 1 to 256 bytes. */
  readonly toolName: string;
  /** The arguments, any JSON value. */
  readonly args: JsonValue;
  /** The model's id of this call. */
  readonly callId?: string | undefined;
  /** Additional data for plugins. */
  readonly extra?: JsonObject | undefined;
}

/** What a tool returned, on success and on failure. */
export interface AfterToolResultPayload {
  /** Name of the tool that ran, 1 to 256 bytes. */
  readonly toolName: string;
  /** The tool's result or its error, any JSON value. */
  readonly result: JsonValue;
  /** Whether the tool succeeded. */
  readonly success: boolean;
  /** The arguments as executed. */
  readonly args?: JsonValue | undefined;
  /** The model's id of this call. */
  readonly callId?: string | undefined;
  /** How long the tool ran, in milliseconds. It is sent in whole milliseconds. */
  readonly durationMs?: number | undefined;
  /** Additional data for plugins. */
  readonly extra?: JsonObject | undefined;
}

/** The answer that the agent is about to show to the user. */
export interface BeforeResponsePayload {
  /** The answer's text. May be empty. Of several texts that a reader sees apart, pass each in a call of its own. */
  readonly content: string;
  /** The model's reasoning, if it is shown. Of several thoughts, pass each in a call of its own. */
  readonly reasoning?: string | undefined;
  /** Provider of the model that answered. */
  readonly provider?: string | undefined;
  /** Model that answered. */
  readonly model?: string | undefined;
  /** Router that chose the model. */
  readonly router?: string | undefined;
  /** Tokens used. Pass them in only one call about an answer: plugins add them up. */
  readonly tokenUsage?: TokenUsage | undefined;
  /** Why the model stopped, in the provider's words. */
  readonly stopReason?: string | undefined;
  /** Additional data for plugins. */
  readonly extra?: JsonObject | undefined;
}

/** A payload of any point. */
export type Payload = BeforeLlmRequestPayload | BeforeToolCallPayload | AfterToolResultPayload | BeforeResponsePayload;

/** A payload as an agent passes it in: JSON values may be of any type that `writeJson` can write. */
export type PayloadInput<P> = { readonly [Name in keyof P]: InputValue<P[Name]> };

/** A member of a {@link PayloadInput}: any value with a JSON form where the payload has JSON. */
export type InputValue<Value> = [JsonValue] extends [Value]
  ? unknown
  : Value extends JsonValue[]
    ? readonly unknown[]
    : Value extends JsonObject
      ? object
      : Value;

/** How one step of the chain ended. `unknown` is an outcome that this version of the SDK doesn't know. */
export type StepOutcome =
  | "continued"
  | "modified"
  | "cancelled"
  | "would_block"
  | "failed"
  | "failed_open"
  | "skipped_condition"
  | "skipped_budget"
  | "observed"
  | "cancelled_by_caller"
  | "answered"
  | "contributed"
  | "unknown";

/** Why a step failed or was skipped. `unknown` is a reason that this version of the SDK doesn't know. */
export type StepReason =
  | "timeout"
  | "budget"
  | "unreachable"
  | "breaker_open"
  | "bulkhead_full"
  | "not_ready"
  | "rpc_error"
  | "bad_reply"
  | "forbidden_patch"
  | "too_large"
  | "point_not_offered"
  | "unknown_plugin"
  | "condition_error"
  | "unknown";

/** One step of the chain. */
export interface Step {
  /** The plugin. */
  readonly plugin: string;
  /** The binding that put it into the chain. */
  readonly binding: string;
  /** How it ended. */
  readonly outcome: StepOutcome;
  /** Why it failed, or was skipped for lack of time. */
  readonly reason?: StepReason | undefined;
  /** Time spent in it, in microseconds; 0 for observers and steps that were not called. */
  readonly durationUs: number;
  /** The members of the payload that it changed, with their new values and named as over HTTP; only with `trace`. */
  readonly changes?: JsonObject | undefined;
  /** The code with which the plugin would have blocked; only with the outcome `would_block`. */
  readonly code?: string | undefined;
}

/** A notice with the plugin that gave it. */
export interface PluginNotice {
  /** The plugin, if the gateway reveals it. */
  readonly plugin?: string | undefined;
  /** Severity. `unknown` is one that this version of the SDK doesn't know. */
  readonly kind: "allow" | "block" | "warn" | "info" | "unknown";
  /** For programs. */
  readonly code?: string | undefined;
  /** For people. */
  readonly message: string;
  /** Facts. */
  readonly details?: JsonObject | undefined;
}

/** Facts about an answer, for logs and for `expectPlanDigest`. */
export interface AnswerFacts {
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
}

/** Go on, with this payload. */
export interface Continue<P> extends AnswerFacts {
  /** The chain lets the action pass. */
  readonly decision: "continue";
  /** The payload as the chain left it: use it, not your own. */
  readonly payload: P;
  /** Whether a plugin changed it. */
  readonly modified: boolean;
  /**
   * Why there was no decision, if the agent was told to go on without one. The payload is then the agent's own, and the
   * facts are empty.
   */
  readonly noDecision?: NoDecision | undefined;
}

/** Don't run the tool: a plugin gave its result. Go on as if the tool had run: `afterToolResult` follows. */
export interface ToolResult extends AnswerFacts {
  /** A plugin answered in the tool's place. */
  readonly decision: "answer";
  /** The tool's result, any JSON value. */
  readonly result: JsonValue;
  /** The payload as the chain left it. */
  readonly payload: BeforeToolCallPayload;
  /** Whether a plugin changed it. */
  readonly modified: boolean;
}

/** What the plugins contributed at a hook. */
export interface HookAnswer extends AnswerFacts {
  /** In the order of the chain; those of one plugin in its own order. */
  readonly contributions: readonly PluginContribution[];
}

/** What one plugin contributed at a hook. */
export interface PluginContribution {
  /** The plugin, if the gateway reveals it. */
  readonly plugin?: string | undefined;
  /** What it is, such as `memory`. */
  readonly kind: string;
  /** Any JSON value. */
  readonly value: JsonValue;
}

/** The tools of the tenant's plugins. */
export interface ToolList {
  /** In the order of their names. */
  readonly tools: readonly ListedTool[];
  /** That of `beforeToolCall`: if an answer there has another one, list the tools again. */
  readonly planDigest: string;
  /** Revision of the gateway's routing table. */
  readonly revision: number;
}

/** A tool with the plugin that provides it. */
export interface ListedTool {
  /** The `toolName` of its calls: `[A-Za-z0-9_.-]{1,128}`. */
  readonly name: string;
  /** What the tool does, for the model. */
  readonly description: string;
  /** JSON Schema of the arguments, whose `type` is `object`. */
  readonly inputSchema: JsonObject;
  /** What to expect of the tool, by the word of its plugin. */
  readonly annotations?: ToolAnnotations | undefined;
  /** The plugin, if the gateway reveals it. */
  readonly plugin?: string | undefined;
  /** The binding that puts it into the chain, if the gateway reveals it. */
  readonly binding?: string | undefined;
}
