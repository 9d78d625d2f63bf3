/** Turns the messages of each point into what handlers take, and their replies into messages. */
import { type DescMessage, type MessageInitShape, type MessageShape, create } from "@bufbuild/protobuf";
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
  payload(message: MessageShape<Payload>): unknown;
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
    payload: (message) => new BeforeResponsePayload(message),
    patch: types.BeforeResponsePatchSchema,
    members: { content: "string", reasoning: "string", extra: "object" },
    response: wire.BeforeResponseResponseSchema,
  }),
};

/** The members that a patch may have. */
export function patchMembers(point: PointName): { readonly [name: string]: MemberKind } {
  return POINT_WIRES[point].members;
}

/** What a handler takes, from the payload's message. */
export function payloadFromWire(point: PointName, message: unknown): unknown {
  return POINT_WIRES[point].payload(message as never);
}

/**
 * The message for a reply. A cancel stays a cancel: what is wrong with the rest of the reply is left out of the message.
 *
 * @throws If the reply goes on and the gateway would refuse it.
 */
export function replyToWire(point: PointName, reply: Reply<unknown>, warn: (error: unknown) => void): MessageShape<DescMessage> {
  const { patch, notices, cancelled } = reply;
  const attempt = <T>(convert: () => T): T | undefined => {
    try {
      return convert();
    } catch (error) {
      if (cancelled === undefined) throw error;
      warn(error);
      return undefined;
    }
  };
  const modify = attempt(() => patchToWire(point, patch));
  const verdict =
    cancelled === undefined
      ? { case: "continue", value: create(wire.ContinueSchema) }
      : { case: "cancel", value: attempt(() => cancelToWire(cancelled)) ?? cancelToWire(unwritable(cancelled)) };
  const message = { verdict, notices: attempt(() => noticesToWire(notices)) ?? [], ...(modify === undefined ? {} : { modify }) };
  const { response } = POINT_WIRES[point];
  return create(response, message as MessageInitShape<typeof response>);
}

export function noticesToWire(notices: readonly Notice[]): types.Notice[] {
  return notices.map(noticeToWire);
}

/** A block in place of an answer whose result has no JSON form. */
function unwritable(cancelled: Cancel): Cancel {
  return {
    ...cancelled,
    code: cancelled.code || "TOOL_FAILED",
    message: cancelled.message || "The tool's result isn't valid JSON.",
    result: undefined,
  };
}

function patchToWire(point: PointName, patch: unknown): MessageShape<DescMessage> | undefined {
  const { members, patch: schema } = POINT_WIRES[point];
  if (patch === undefined) return undefined;
  if (typeof patch !== "object" || patch === null) throw new TypeError(`the patch is ${String(patch)}, not an object`);
  const present = Object.entries(patch).filter(([, value]) => value !== undefined);
  if (present.length === 0) return undefined;
  const converted = present.map(([name, value]) => {
    const kind = Object.hasOwn(members, name) ? members[name] : undefined;
    if (kind === undefined) throw new TypeError(`a patch at ${point} has no member \`${name}\`: it has ${Object.keys(members).join(", ")}`);
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
