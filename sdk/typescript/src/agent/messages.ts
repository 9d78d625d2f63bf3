/** The messages of a gateway's API (docs/protocol.md, sections 4, 9 and 10) as codecs. */
import type * as wire from "../gen/hookgate/types/v1/types_pb.js";
import type { JsonObject, JsonValue } from "../json.js";
import type { CallContext } from "./call-context.js";
import * as codec from "./codec.js";
import type * as types from "./types.js";

const { count, flag, json, jsonArray, jsonObject, optional, optionalReader, optionalWriter, text } = codec;

/** The part of a call's context that is in its message. */
export type RequestContext = Omit<CallContext, "tenant" | "correlationId">;

/** A call at a point. */
export interface PointRequest<P> {
  readonly context: RequestContext;
  readonly payload: P;
  readonly expectPlanDigest?: string | undefined;
  readonly trace?: boolean | undefined;
  /** Only at `beforeToolCall`. */
  readonly takesResults?: boolean | undefined;
}

/** A lifecycle hook. */
export interface HookRequest {
  readonly context: RequestContext;
  readonly hook: string;
  readonly body: JsonObject;
  readonly expectPlanDigest?: string | undefined;
}

/** A block within an answer. */
export interface Block {
  readonly plugin?: string | undefined;
  readonly binding?: string | undefined;
  readonly code: string;
  readonly message: string;
  readonly retryAfterMs?: number | undefined;
  readonly scope: "step" | "run" | "unknown";
}

/** An answer at a point. Its members may still contradict each other. */
export interface PointAnswer<P> extends types.AnswerFacts {
  readonly decision: "continue" | "block" | "answer" | "unknown";
  readonly payload: P;
  readonly modified: boolean;
  readonly block?: Block | undefined;
  /** Only at `beforeToolCall`. */
  readonly result?: JsonValue | undefined;
}

interface MediaMembers {
  readonly data?: Uint8Array | undefined;
  readonly url?: string | undefined;
  readonly mimeType: string;
  readonly filename?: string | undefined;
}

const mediaMembers = codec.record<MediaMembers>({
  data: optional(codec.binary),
  url: optional(text),
  mimeType: text,
  filename: optional(text),
});

const media: codec.Codec<types.Media> = {
  toProto: (value, path) => {
    const { data, url, ...others } = mediaMembers.toProto(value, path) as MediaMembers;
    expectOneSource({ data, url }, path);
    return { ...others, source: data === undefined ? { case: "url", value: url } : { case: "data", value: data } };
  },
  toJson: (value, path) => {
    const written = mediaMembers.toJson(value, path);
    expectOneSource(value, path);
    return written;
  },
  fromProto: (field, path) => {
    const { source, mimeType, filename } = field as wire.Media;
    const others = filename === undefined ? { mimeType } : { mimeType, filename };
    if (source.case === "url") return { url: source.value, ...others };
    if (source.case === undefined) throw new TypeError(`${path} has neither data nor url`);
    // Over gRPC it is a Buffer, whose methods differ.
    const { buffer, byteOffset, byteLength } = source.value;
    return { data: new Uint8Array(buffer, byteOffset, byteLength), ...others };
  },
  fromJson: (member, path) => {
    const read = mediaMembers.fromJson(member, path);
    expectOneSource(read, path);
    return read as types.Media;
  },
};

function expectOneSource({ data, url }: Pick<MediaMembers, "data" | "url">, path: string): void {
  if ((data === undefined) === (url === undefined)) throw new TypeError(`${path} must have either data or url`);
}

const beforeLlmRequestPayload = codec.record<types.BeforeLlmRequestPayload>({
  text,
  images: codec.optionalList(media),
  files: codec.optionalList(media),
  systemPrompt: optional(text),
  messages: optional(jsonArray),
  tools: optional(jsonArray),
  extra: optional(jsonObject),
});

const beforeToolCallPayload = codec.record<types.BeforeToolCallPayload>({
  toolName: text,
  args: json,
  callId: optional(text),
  extra: optional(jsonObject),
});

const afterToolResultPayload = codec.record<types.AfterToolResultPayload>({
  toolName: text,
  result: json,
  success: flag,
  args: optional(json),
  callId: optional(text),
  durationMs: optional(codec.milliseconds),
  extra: optional(jsonObject),
});

const beforeResponsePayload = codec.record<types.BeforeResponsePayload>({
  content: text,
  reasoning: optional(text),
  provider: optional(text),
  model: optional(text),
  router: optional(text),
  tokenUsage: optional(codec.record<types.TokenUsage>({ input: count, output: count })),
  stopReason: optional(text),
  extra: optional(jsonObject),
});

const requestContext = codec.recordWriter<RequestContext>({
  sessionId: optionalWriter(text),
  runId: optionalWriter(text),
  parentRunId: optionalWriter(text),
  depth: optionalWriter(codec.uint32),
  agentId: optionalWriter(text),
  agentPath: optionalWriter(text),
  projectId: optionalWriter(text),
  userId: optionalWriter(text),
  provider: optionalWriter(text),
  model: optionalWriter(text),
  labels: optionalWriter(codec.textMap),
});

/** Why a step failed or was skipped. */
export const stepReason = codec.optionalEnumeration(
  "timeout",
  "budget",
  "unreachable",
  "breaker_open",
  "bulkhead_full",
  "not_ready",
  "rpc_error",
  "bad_reply",
  "forbidden_patch",
  "too_large",
  "point_not_offered",
  "unknown_plugin",
  "condition_error",
);

const step: codec.Reader<types.Step> = codec.recordReader<types.Step>({
  plugin: text,
  binding: text,
  outcome: codec.enumeration(
    "continued",
    "modified",
    "cancelled",
    "would_block",
    "failed",
    "failed_open",
    "skipped_condition",
    "skipped_budget",
    "observed",
    "cancelled_by_caller",
    "answered",
    "contributed",
  ),
  reason: stepReason,
  durationUs: count,
  changes: optionalReader(jsonObject),
  code: optionalReader(text),
});

/** The steps of a chain. */
export const steps = codec.listReader(step);

const notices = codec.listReader(
  codec.recordReader<types.PluginNotice>({
    plugin: optionalReader(text),
    kind: codec.enumeration("allow", "block", "warn", "info"),
    code: optionalReader(text),
    message: text,
    details: optionalReader(jsonObject),
  }),
);

const block = codec.recordReader<Block>({
  plugin: optionalReader(text),
  binding: optionalReader(text),
  code: text,
  message: text,
  retryAfterMs: optionalReader(count),
  scope: codec.enumeration("step", "run"),
});

const facts = { notices, steps, planDigest: text, revision: count, requestId: text };

const beforeToolCallResult = optionalReader(json);
const noResult: codec.Reader<undefined> = { fromProto: () => undefined, fromJson: () => undefined };

/** The messages of one point. */
export interface PointMessages<P> {
  readonly request: codec.Writer<PointRequest<P>>;
  readonly answer: codec.Reader<PointAnswer<P>>;
}

function pointMessages<P>(payload: codec.Codec<P>, result: codec.Reader<JsonValue | undefined> = noResult): PointMessages<P> {
  return {
    request: codec.recordWriter<PointRequest<P>>({
      context: requestContext,
      payload,
      expectPlanDigest: optionalWriter(text),
      trace: optionalWriter(flag),
      takesResults: optionalWriter(flag),
    }),
    answer: codec.recordReader<PointAnswer<P>>({
      decision: codec.enumeration("continue", "block", "answer"),
      payload,
      modified: flag,
      block: optionalReader(block),
      ...facts,
      result,
    }),
  };
}

export const beforeLlmRequest = pointMessages(beforeLlmRequestPayload);
export const beforeToolCall = pointMessages(beforeToolCallPayload, beforeToolCallResult);
export const afterToolResult = pointMessages(afterToolResultPayload);
export const beforeResponse = pointMessages(beforeResponsePayload);

export const runHook = {
  request: codec.recordWriter<HookRequest>({
    context: requestContext,
    // Over HTTP the name is in the path.
    hook: { toProto: text.toProto, toJson: () => undefined },
    body: jsonObject,
    expectPlanDigest: optionalWriter(text),
  }),
  answer: codec.recordReader<types.HookAnswer>({
    contributions: codec.listReader(
      codec.recordReader<types.PluginContribution>({ plugin: optionalReader(text), kind: text, value: json }),
    ),
    ...facts,
  }),
};

export const listTools = {
  request: codec.recordWriter<Record<never, never>>({}),
  answer: codec.recordReader<types.ToolList>({
    tools: codec.listReader(
      codec.recordReader<types.ListedTool>({
        name: text,
        description: text,
        inputSchema: jsonObject,
        annotations: optionalReader(
          codec.recordReader<types.ToolAnnotations>({
            title: optionalReader(text),
            readOnlyHint: optionalReader(flag),
            destructiveHint: optionalReader(flag),
            idempotentHint: optionalReader(flag),
            openWorldHint: optionalReader(flag),
          }),
        ),
        plugin: optionalReader(text),
        binding: optionalReader(text),
      }),
    ),
    planDigest: text,
    revision: count,
  }),
};
