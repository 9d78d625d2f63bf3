/** Turns the messages of each point into what handlers take, and their replies into messages. */
import { type DescMessage, type MessageInitShape, type MessageShape, create, toBinary } from "@bufbuild/protobuf";
import * as wire from "../gen/hookgate/plugin/v1/plugin_pb.js";
import * as types from "../gen/hookgate/types/v1/types_pb.js";
import { writeJsonBytes } from "../json.js";
import type { Media } from "../media.js";
import { AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload } from "../payload.js";
import type { PointName } from "../point.js";
import { type Cancel, type Notice, type Reply, cancelToWire, noticeToWire } from "../reply.js";

/** What a member of a patch must be. */
export type MemberKind = "string" | "media" | "array" | "object" | "json";

interface PointWire<
  Payload extends DescMessage = DescMessage,
  Patch extends DescMessage = DescMessage,
  Response extends DescMessage = DescMessage,
> {
  payload(message: MessageShape<Payload>, window: wire.ResponseWindow | undefined): unknown;
  readonly patch: Patch;
  readonly members: { readonly [name: string]: MemberKind };
  readonly response: Response;
}

function pointWire<A extends DescMessage, B extends DescMessage, C extends DescMessage>(_: A, point: PointWire<A, B, C>): PointWire {
  return point as unknown as PointWire;
}

/** The messages of each point. */
const POINT_WIRES: { readonly [Name in PointName]: PointWire } = {
  beforeLlmRequest: pointWire(types.BeforeLlmRequestPayloadSchema, {
    payload: (message) => new BeforeLlmRequestPayload(message),
    patch: types.BeforeLlmRequestPatchSchema,
    members: {
      text: "string",
      images: "media",
      files: "media",
      systemPrompt: "string",
      messages: "array",
      tools: "array",
      extra: "object",
    },
    response: wire.BeforeLlmRequestResponseSchema,
  }),
  beforeToolCall: pointWire(types.BeforeToolCallPayloadSchema, {
    payload: (message) => new BeforeToolCallPayload(message),
    patch: types.BeforeToolCallPatchSchema,
    members: { toolName: "string", args: "json", extra: "object" },
    response: wire.BeforeToolCallResponseSchema,
  }),
  afterToolResult: pointWire(types.AfterToolResultPayloadSchema, {
    payload: (message) => new AfterToolResultPayload(message),
    patch: types.AfterToolResultPatchSchema,
    members: { result: "json", extra: "object" },
    response: wire.AfterToolResultResponseSchema,
  }),
  beforeResponse: pointWire(types.BeforeResponsePayloadSchema, {
    payload: (message, window) => new BeforeResponsePayload(message, window),
    patch: types.BeforeResponsePatchSchema,
    members: { content: "string", reasoning: "string", extra: "object" },
    response: wire.BeforeResponseResponseSchema,
  }),
};

/** The members that a patch may have. */
export function patchMembers(point: PointName): { readonly [name: string]: MemberKind } {
  return POINT_WIRES[point].members;
}

/** What a handler takes, from the payload's message and the window of an answer. */
export function payloadFromWire(point: PointName, message: unknown, window: wire.ResponseWindow | undefined): unknown {
  return POINT_WIRES[point].payload(message as never, window);
}

/**
 * The message for a reply. A cancel stays a cancel: what is wrong with the rest of the reply, or too large, is left out of the message.
 *
 * @param limit Largest reply that the gateway accepts, in bytes.
 * @param consumed In a window of an answer: how many characters go on, unless all do.
 * @throws If the reply goes on and the gateway would refuse it.
 */
export function replyToWire(
  point: PointName,
  reply: Reply<unknown>,
  limit: number,
  warn: (error: unknown) => void,
  consumed?: number,
): MessageShape<DescMessage> {
  const { patch, notices, cancelled } = reply;
  if (cancelled !== undefined) return cancelledReply(point, reply, cancelled, limit, warn);
  const verdict = { case: "continue", value: create(wire.ContinueSchema) };
  const parts = { verdict, modify: patchToWire(point, patch), notices: noticesToWire(notices) };
  return responseOf(point, consumed === undefined ? parts : { ...parts, consumed });
}

/** The first of these that can be sent: the whole reply, then always less of it. */
function cancelledReply(
  point: PointName,
  { patch, notices }: Reply<unknown>,
  cancelled: Cancel,
  limit: number,
  warn: (error: unknown) => void,
): MessageShape<DescMessage> {
  const cancel = (value: Cancel) => ({ case: "cancel", value: cancelToWire(value) });
  const attempts = [
    () => ({ verdict: cancel(cancelled), modify: patchToWire(point, patch), notices: noticesToWire(notices) }),
    () => ({ verdict: cancel(cancelled), notices: noticesToWire(notices) }),
    () => ({ verdict: cancel(cancelled) }),
    () => ({ verdict: cancel(withoutResult(cancelled)) }),
  ];
  const { response } = POINT_WIRES[point];
  for (const attempt of attempts) {
    try {
      const message = responseOf(point, attempt());
      const size = toBinary(response, message).length;
      if (size <= limit) return message;
      warn(new RangeError(`the reply has ${size} bytes, more than ${limit}`));
    } catch (error) {
      warn(error);
    }
  }
  return responseOf(point, { verdict: { case: "cancel", value: create(wire.CancelSchema) } });
}

/** A block in place of an answer whose result can't be sent. */
function withoutResult(cancelled: Cancel): Cancel {
  const { code, message, result } = cancelled;
  if (result === undefined) return cancelled;
  return { ...cancelled, code: code || "TOOL_FAILED", message: message || "The tool's result can't be sent.", result: undefined };
}

function responseOf(
  point: PointName,
  { modify, ...parts }: { verdict: object; modify?: unknown; notices?: unknown; consumed?: number },
): MessageShape<DescMessage> {
  const { response } = POINT_WIRES[point];
  return create(response, { ...parts, ...(modify === undefined ? {} : { modify }) } as MessageInitShape<typeof response>);
}

export function noticesToWire(notices: readonly Notice[]): types.Notice[] {
  return notices.map(noticeToWire);
}

function patchToWire(point: PointName, patch: unknown): MessageShape<DescMessage> | undefined {
  const { members, patch: schema } = POINT_WIRES[point];
  if (patch === undefined) return undefined;
  if (typeof patch !== "object" || patch === null) throw new TypeError(`the patch is ${String(patch)}, not an object`);
  const present = Object.entries(patch);
  if (present.length === 0) return undefined;
  const converted = present.map(([name, value]) => {
    const kind = Object.hasOwn(members, name) ? members[name] : undefined;
    if (kind === undefined) throw new TypeError(`a patch at ${point} has no member \`${name}\`: it has ${Object.keys(members).join(", ")}`);
    // A forgotten `return` in what makes it must not let the payload pass.
    if (value === undefined) throw new TypeError(`\`${name}\` of the patch is undefined: leave it out, or use null`);
    return [name, memberToWire(kind, name, value)];
  });
  return create(schema, Object.fromEntries(converted) as MessageInitShape<typeof schema>);
}

function memberToWire(kind: MemberKind, name: string, value: unknown): unknown {
  const mismatch = (expected: string) => new TypeError(`\`${name}\` of the patch must be ${expected}`);
  switch (kind) {
    case "string":
      if (typeof value !== "string") throw mismatch("a string");
      return value.toWellFormed();
    case "media":
      if (!Array.isArray(value)) throw mismatch("an array of media");
      return { items: value.map(mediaToWire) };
    case "array":
      if (!Array.isArray(value)) throw mismatch("an array");
      break;
    case "object":
      if (typeof value !== "object" || value === null || Array.isArray(value)) throw mismatch("an object");
  }
  return writeJsonBytes(value, name);
}

function mediaToWire({ data, url, mimeType, filename }: Media, index: number): types.Media {
  if ((data === undefined) === (url === undefined)) throw new TypeError(`the medium ${index} of the patch must have \`data\` or \`url\``);
  return create(types.MediaSchema, {
    source: data === undefined ? { case: "url", value: url } : { case: "data", value: data as Uint8Array<ArrayBuffer> },
    mimeType,
    ...(filename === undefined ? {} : { filename }),
  });
}
