/** Payloads as tests write them. Each member is optional unless the point can't do without it. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type * as types from "../gen/hookgate/types/v1/types_pb.js";
import { writeJsonBytes } from "../json.js";
import type { Media } from "../media.js";
import type { TokenUsage } from "../token-usage.js";

/** What the agent is about to send to a model. */
export interface TestLlmRequest {
  /** The user's text. The default is empty. */
  readonly text?: string;
  /** Images beside the text. */
  readonly images?: readonly Media[];
  /** Files beside the text. */
  readonly files?: readonly Media[];
  /** The system prompt. */
  readonly systemPrompt?: string;
  /** The conversation in the agent's own format. */
  readonly messages?: readonly unknown[];
  /** The tools offered to the model in the agent's own format. */
  readonly tools?: readonly unknown[];
  /** Additional data for plugins. */
  readonly extra?: object;
}

/** A tool call that the agent is about to make. */
export interface TestToolCall {
  /** Name of the tool, 1 to 256 bytes. */
  readonly toolName: string;
  /** Any JSON value. The default is `{}`. */
  readonly args?: unknown;
  /** The model's id of this call. */
  readonly callId?: string;
  /** Additional data for plugins. */
  readonly extra?: object;
}

/** What a tool returned. */
export interface TestToolResult {
  /** Name of the tool, 1 to 256 bytes. */
  readonly toolName: string;
  /** Any JSON value. The default is `null`. */
  readonly result?: unknown;
  /** The default is `true`. */
  readonly success?: boolean;
  /** The arguments as executed. */
  readonly args?: unknown;
  /** The model's id of this call. */
  readonly callId?: string;
  /** Whole milliseconds. */
  readonly durationMs?: number;
  /** Additional data for plugins. */
  readonly extra?: object;
}

/** The answer that the agent is about to show to the user. */
export interface TestResponse {
  /** The answer's text. May be empty. */
  readonly content: string;
  /** The model's reasoning. */
  readonly reasoning?: string;
  /** Provider of the model that answered. */
  readonly provider?: string;
  /** Model that answered. */
  readonly model?: string;
  /** Router that chose the model. */
  readonly router?: string;
  /** Tokens used. */
  readonly tokenUsage?: TokenUsage;
  /** Why the model stopped, in the provider's words. */
  readonly stopReason?: string;
  /** Additional data for plugins. */
  readonly extra?: object;
}

export function llmRequestToWire(payload: TestLlmRequest): MessageInitShape<typeof types.BeforeLlmRequestPayloadSchema> {
  const { text = "", images = [], files = [], systemPrompt, messages, tools, extra } = payload;
  return {
    text,
    systemPrompt,
    images: images.map(mediaToWire),
    files: files.map(mediaToWire),
    messages: json(messages, "messages"),
    tools: json(tools, "tools"),
    extra: json(extra, "extra"),
  };
}

export function toolCallToWire({
  toolName,
  args = {},
  callId,
  extra,
}: TestToolCall): MessageInitShape<typeof types.BeforeToolCallPayloadSchema> {
  return { toolName, callId, args: json(args, "args"), extra: json(extra, "extra") };
}

export function toolResultToWire(payload: TestToolResult): MessageInitShape<typeof types.AfterToolResultPayloadSchema> {
  const { toolName, result = null, success = true, args, callId, durationMs, extra } = payload;
  return {
    toolName,
    success,
    callId,
    durationMs: durationMs === undefined ? undefined : BigInt(durationMs),
    result: json(result, "result"),
    args: json(args, "args"),
    extra: json(extra, "extra"),
  };
}

export function responseToWire({ tokenUsage, extra, ...rest }: TestResponse): MessageInitShape<typeof types.BeforeResponsePayloadSchema> {
  const usage = tokenUsage && { tokenUsage: { input: BigInt(tokenUsage.input), output: BigInt(tokenUsage.output) } };
  return { ...rest, ...usage, extra: json(extra, "extra") };
}

function mediaToWire({ data, url, mimeType, filename }: Media): MessageInitShape<typeof types.MediaSchema> {
  const source = data === undefined ? { case: "url" as const, value: url ?? "" } : { case: "data" as const, value: new Uint8Array(data) };
  return { source, mimeType, filename };
}

/** Empty if the value is absent. */
function json(value: unknown, name: string): Uint8Array<ArrayBuffer> {
  return value === undefined ? new Uint8Array() : writeJsonBytes(value, name);
}
