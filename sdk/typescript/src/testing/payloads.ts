/** Payloads as tests write them. Each member is optional unless the point can't do without it. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type * as types from "../gen/hookgate/types/v1/types_pb.js";
import { writeJsonBytes } from "../json.js";
import type { Media } from "../media.js";

/** What the agent is about to send to a model. */
export interface TestLlmRequest {
  readonly text?: string;
  readonly images?: readonly Media[];
  readonly files?: readonly Media[];
  readonly systemPrompt?: string;
  readonly messages?: readonly unknown[];
  readonly tools?: readonly unknown[];
  readonly extra?: object;
}

/** A tool call that the agent is about to make. */
export interface TestToolCall {
  readonly toolName: string;
  /** Any JSON value. The default is `{}`. */
  readonly args?: unknown;
  readonly callId?: string;
  readonly extra?: object;
}

/** What a tool returned. */
export interface TestToolResult {
  readonly toolName: string;
  /** Any JSON value. The default is `null`. */
  readonly result?: unknown;
  /** The default is `true`. */
  readonly success?: boolean;
  /** The arguments as executed. */
  readonly args?: unknown;
  readonly callId?: string;
  /** Whole milliseconds. */
  readonly durationMs?: number;
  readonly extra?: object;
}

/** The answer that the agent is about to show to the user. */
export interface TestResponse {
  readonly content: string;
  readonly reasoning?: string;
  readonly provider?: string;
  readonly model?: string;
  readonly router?: string;
  readonly tokenUsage?: { readonly input: number; readonly output: number };
  readonly stopReason?: string;
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
