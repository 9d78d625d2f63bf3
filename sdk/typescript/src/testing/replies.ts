/** Replies as tests read them, from the messages that a gateway gets. */
import { type DescMessage, type Message, type MessageShape, isFieldSet } from "@bufbuild/protobuf";
import { countUnits } from "../characters.js";
import type * as wire from "../gen/hookgate/plugin/v1/plugin_pb.js";
import * as types from "../gen/hookgate/types/v1/types_pb.js";
import { type JsonObject, parseJson } from "../json.js";
import type { PointName } from "../point.js";
import { type Cancel, HookReply, type Notice, Reply } from "../reply.js";
import { type MemberKind, patchMembers } from "../server/wire.js";
import { checkMedia } from "./reply-rules.js";
import type { ToolAnnotations } from "../tool-annotations.js";
import type { PointReply } from "./reply-rules.js";

/** A tool that the plugin provides. */
export interface TestTool {
  /** `[A-Za-z0-9_.-]{1,128}`. */
  readonly name: string;
  /** What the tool does, for the model. */
  readonly description: string;
  /** The JSON Schema of its arguments. */
  readonly inputSchema: JsonObject;
  /** What to expect of it. */
  readonly annotations: ToolAnnotations | undefined;
}

/** A reply at any point. */
export type PointResponse =
  | wire.BeforeLlmRequestResponse
  | wire.BeforeToolCallResponse
  | wire.AfterToolResultResponse
  | wire.BeforeResponseResponse;

const PATCHES: { readonly [Name in PointName]: DescMessage } = {
  beforeLlmRequest: types.BeforeLlmRequestPatchSchema,
  beforeToolCall: types.BeforeToolCallPatchSchema,
  afterToolResult: types.AfterToolResultPatchSchema,
  beforeResponse: types.BeforeResponsePatchSchema,
};

const NOTICE_KINDS = {
  [types.NoticeKind.UNSPECIFIED]: "info",
  [types.NoticeKind.ALLOW]: "allow",
  [types.NoticeKind.BLOCK]: "block",
  [types.NoticeKind.WARN]: "warn",
  [types.NoticeKind.INFO]: "info",
} as const;

/**
 * The reply as the handler wrote it, with the JSON of its patch, result and notices parsed.
 *
 * @param content The text that the call was about.
 */
export function replyFromWire<Patch>(point: PointName, response: PointResponse, content = ""): Reply<Patch> {
  const { verdict, modify, notices } = response;
  const characters = response.$typeName === "hookgate.plugin.v1.BeforeResponseResponse" ? response.consumed : undefined;
  const consumed = characters === undefined ? undefined : countUnits(content, characters);
  const cancelled = verdict.case === "cancel" ? cancelFromWire(verdict.value) : undefined;
  const patch = modify === undefined ? undefined : patchFromWire(point, modify);
  return new Reply(cancelled, patch as Patch | undefined, notices.map(noticeFromWire), consumed);
}

/** What the gateway's rules look at. */
export function factsOf({ verdict, modify, notices }: PointResponse): PointReply {
  const result = verdict.case === "cancel" ? verdict.value.result : undefined;
  return {
    isCancel: verdict.case === "cancel",
    hasPatch: modify !== undefined,
    hasResult: result !== undefined && result.length > 0,
    toolName: modify?.$typeName === "hookgate.types.v1.BeforeToolCallPatch" ? modify.toolName : undefined,
    notices,
  };
}

export function hookReplyFromWire({ contributions, notices }: wire.OnHookResponse): HookReply {
  const parsed = contributions.map(({ kind, value }) => ({ kind, value: parseJson(value) }));
  return new HookReply(parsed, notices.map(noticeFromWire));
}

export function toolFromWire({ name, description, inputSchema, annotations }: types.Tool): TestTool {
  return {
    name,
    description,
    inputSchema: parseJson(inputSchema) as JsonObject,
    annotations: annotations && annotationsFromWire(annotations),
  };
}

function annotationsFromWire(annotations: types.ToolAnnotations): ToolAnnotations {
  const { title, readOnlyHint, destructiveHint, idempotentHint, openWorldHint } = annotations;
  const members = Object.entries({ title, readOnlyHint, destructiveHint, idempotentHint, openWorldHint });
  return Object.fromEntries(members.filter(([, value]) => value !== undefined));
}

function cancelFromWire({ code, message, scope, retryAfterMs, result }: wire.Cancel): Cancel {
  return {
    code,
    message,
    scope: scope === types.CancelScope.RUN ? "run" : "step",
    retryAfterMs: retryAfterMs === undefined ? undefined : Number(retryAfterMs),
    result: result.length === 0 ? undefined : parseJson(result),
  };
}

function patchFromWire(point: PointName, message: Message): object {
  const kinds = patchMembers(point);
  const present = PATCHES[point].fields.filter((field) => isFieldSet(message, field)).map(({ localName }) => localName);
  const values = message as unknown as { readonly [member: string]: unknown };
  const patch = Object.fromEntries(present.map((member) => [member, memberFromWire(kinds[member], values[member])]));
  for (const member of present) if (kinds[member] === "media") checkMedia(member, patch[member] as never);
  return patch;
}

function memberFromWire(kind: MemberKind | undefined, value: unknown): unknown {
  if (kind === "string") return value;
  if (kind === "media") return (value as types.MediaList).items.map(mediaFromWire);
  return parseJson(value as Uint8Array);
}

function mediaFromWire({ source, mimeType, filename }: MessageShape<typeof types.MediaSchema>): object {
  const content = source.case === "data" ? { data: source.value } : { url: source.value ?? "" };
  return { ...content, mimeType, ...(filename === undefined ? {} : { filename }) };
}

function noticeFromWire({ kind, code, message, details }: types.Notice): Notice {
  return {
    kind: NOTICE_KINDS[kind],
    message,
    ...(code === undefined ? {} : { code }),
    ...(details.length === 0 ? {} : { details: parseJson(details) as JsonObject }),
  };
}
