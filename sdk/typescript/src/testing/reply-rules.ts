/**
 * The gateway's rules for replies (docs/protocol.md, section 3). The SDK writes no JSON that repeats a key, is nested too deeply or
 * isn't an object where it must be one, so nothing looks for that here.
 */
import { create, toBinary } from "@bufbuild/protobuf";
import { type Limits, LimitsSchema, type OnHookResponse } from "../gen/hookgate/plugin/v1/plugin_pb.js";
import { ContributionSchema, type Notice, NoticeSchema } from "../gen/hookgate/types/v1/types_pb.js";
import type { PointName } from "../point.js";
import { CallError } from "./call-error.js";

/** The limits of a gateway that wasn't told others. */
export const LIMITS: Limits = create(LimitsSchema, {
  maxCallBytes: 5n << 20n,
  maxReplyBytes: 4n << 20n,
  maxNotices: 16,
  maxNoticeBytes: 8192n,
  maxDetailsBytes: 4096n,
});
/** The largest request. */
const MAX_REQUEST_BYTES = 4 << 20;
/** How much larger than a request a chain may make the answer. */
const MAX_GROWTH_BYTES = 64 << 10;
const MAX_CONTRIBUTIONS = 64;
/** All contributions of a reply together: as many as a patched payload may have. */
const MAX_CONTRIBUTION_BYTES = Number(LIMITS.maxReplyBytes - LIMITS.maxNoticeBytes);
const MAX_TOOL_NAME_BYTES = 256;
const KIND = /^[a-z][a-z0-9_]{0,63}$/;
const CODE = /^[A-Za-z][A-Za-z0-9_.:-]{0,63}$/;

/** What the rules look at in a reply at a point. */
export interface PointReply {
  readonly isCancel: boolean;
  readonly hasPatch: boolean;
  readonly hasResult: boolean;
  readonly toolName: string | undefined;
  readonly notices: readonly Notice[];
}

/**
 * Checks a reply at a point.
 *
 * @throws {CallError} If a gateway would reject it, or leave out its patch or its result.
 */
export function checkPointReply(plugin: string, point: PointName, access: "read" | "modify", reply: PointReply): void {
  const { isCancel, hasPatch, hasResult, toolName, notices } = reply;
  ensure(!hasPatch || access === "modify", `a patch is forbidden: ${plugin} offers ${point} with access \`read\``);
  ensure(!hasResult || point === "beforeToolCall", `\`answer\` is only for beforeToolCall, not for ${point}`);
  ensure(!hasResult || access === "modify", `\`answer\` is forbidden: ${plugin} offers ${point} with access \`read\``);
  const toolNameBytes = toolName === undefined ? 1 : Buffer.byteLength(toolName);
  ensure(toolNameBytes >= 1 && toolNameBytes <= MAX_TOOL_NAME_BYTES, "`toolName` of the patch must have 1 to 256 bytes");
  // Of a cancel, the gateway keeps the valid notices.
  if (!isCancel) checkNotices(notices);
}

/**
 * Checks the size of a reply, encoded.
 *
 * @throws {CallError} If a gateway would reject it.
 */
export function checkReplySize(bytes: number): void {
  ensure(bytes <= LIMITS.maxReplyBytes, `the reply has ${bytes} bytes, ${LIMITS.maxReplyBytes} are allowed`);
}

/**
 * Checks the size of a tool's result, as JSON. The agent gets it together with the payload of its call.
 *
 * @param payloadBytes The size of the payload, encoded.
 * @throws {CallError} If a gateway would leave it out.
 */
export function checkResultSize(bytes: number, payloadBytes: number): void {
  const most = Math.min(MAX_REQUEST_BYTES, MAX_REQUEST_BYTES + MAX_GROWTH_BYTES - payloadBytes);
  ensure(bytes <= most, `the result has ${bytes} bytes, ${most} are allowed beside a payload of ${payloadBytes} bytes`);
}

/**
 * Checks the media of a patch.
 *
 * @throws {CallError} If a gateway would reject one.
 */
export function checkMedia(member: string, media: readonly { readonly url?: unknown; readonly mimeType: string }[]): void {
  for (const [index, { url, mimeType }] of media.entries()) {
    ensure(url !== "", `\`${member}[${index}].url\` of the patch is empty`);
    ensure(mimeType !== "", `\`${member}[${index}].mimeType\` of the patch is empty`);
  }
}

/**
 * Checks a reply at a hook.
 *
 * @throws {CallError} If a gateway would reject it.
 */
export function checkHookReply({ contributions, notices }: OnHookResponse): void {
  ensure(contributions.length <= MAX_CONTRIBUTIONS, `${contributions.length} contributions, ${MAX_CONTRIBUTIONS} are allowed`);
  const bytes = contributions.reduce((sum, contribution) => sum + toBinary(ContributionSchema, contribution).length, 0);
  ensure(bytes <= MAX_CONTRIBUTION_BYTES, `contributions of ${bytes} bytes, ${MAX_CONTRIBUTION_BYTES} are allowed`);
  for (const [index, { kind }] of contributions.entries()) {
    ensure(KIND.test(kind), `/contributions/${index} has the kind \`${kind}\` outside [a-z][a-z0-9_]{0,63}`);
  }
  checkNotices(notices);
}

function checkNotices(notices: readonly Notice[]): void {
  ensure(notices.length <= LIMITS.maxNotices, `${notices.length} notices, ${LIMITS.maxNotices} are allowed`);
  const bytes = notices.reduce((sum, notice) => sum + toBinary(NoticeSchema, notice).length, 0);
  ensure(bytes <= LIMITS.maxNoticeBytes, `notices of ${bytes} bytes, ${LIMITS.maxNoticeBytes} are allowed`);
  for (const [index, { code, details }] of notices.entries()) {
    ensure(code === undefined || CODE.test(code), `/notices/${index} has the code \`${code}\` outside [A-Za-z][A-Za-z0-9_.:-]{0,63}`);
    const isShort = details.length <= LIMITS.maxDetailsBytes;
    ensure(isShort, `/notices/${index} has details of ${details.length} bytes, ${LIMITS.maxDetailsBytes} are allowed`);
    ensure(details.length === 0 || details[0] === "{".charCodeAt(0), `/notices/${index} has details that are not a JSON object`);
  }
}

function ensure(isRight: boolean, fault: string): void {
  if (!isRight) throw new CallError("INTERNAL", fault);
}
