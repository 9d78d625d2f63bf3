/** Notices of plugins whose system sets no limits, within those of the gateway: one notice too many would fail the step. */
import { type Notice, writeJson } from "@hookgate/sdk";
import { anyText } from "./text.js";

const MAX_NOTICES = 16;
const MAX_MESSAGE_BYTES = 1024;
const MAX_DETAILS_BYTES = 4096;
/** Less than the 8 KiB that all may have together, to leave room for the encoding. */
const MAX_TOTAL_BYTES = 7 * 1024;

const KINDS: readonly unknown[] = ["allow", "block", "warn", "info"];
const CODE = /^[A-Za-z][A-Za-z0-9_.:-]{0,63}$/;

/** What a plugin may give as notices. */
export interface LooseNotice {
  readonly kind?: unknown;
  readonly code?: unknown;
  readonly message?: unknown;
  readonly details?: unknown;
}

/** The notices that fit. A last one counts those that don't. If some don't, those of kind `block` come first. */
export function boundedNotices(notices: readonly LooseNotice[]): Notice[] {
  const all = fitting(notices);
  if (all.length === notices.length) return all;
  const blocks = notices.filter(({ kind }) => kind === "block");
  const bounded = fitting([...blocks, ...notices.filter(({ kind }) => kind !== "block")]);
  if (bounded.length === MAX_NOTICES) bounded.pop();
  const leftOut = notices.length - bounded.length;
  return [...bounded, { kind: "warn", code: "NOTICES_LEFT_OUT", message: `${leftOut} further notices don't fit` }];
}

/** The code of the first notice of kind `block` that has a valid one. */
export function firstBlockCode(notices: readonly LooseNotice[]): string | undefined {
  return notices.find(({ kind, code }) => kind === "block" && isCode(code))?.code as string | undefined;
}

function isCode(code: unknown): code is string {
  return typeof code === "string" && CODE.test(code);
}

/** The notices up to the first one for which there is no room. */
function fitting(notices: readonly LooseNotice[]): Notice[] {
  const bounded: Notice[] = [];
  let bytes = 0;
  for (const loose of notices) {
    const notice = boundedNotice(loose);
    bytes += Buffer.byteLength(writeJson(notice));
    if (bytes > MAX_TOTAL_BYTES || bounded.length === MAX_NOTICES) break;
    bounded.push(notice);
  }
  return bounded;
}

function boundedNotice({ kind, code, message, details }: LooseNotice): Notice {
  return {
    kind: (KINDS.includes(kind) ? kind : "info") as Notice["kind"],
    message: cut(anyText(message ?? "")),
    ...(isCode(code) ? { code } : {}),
    ...boundedDetails(details),
  };
}

function boundedDetails(details: unknown): Pick<Notice, "details"> {
  if (details === null || typeof details !== "object" || Array.isArray(details)) return {};
  try {
    if (Buffer.byteLength(writeJson(details)) <= MAX_DETAILS_BYTES) return { details };
  } catch {
    // A notice is worth more than details that have no JSON form.
  }
  return { details: { left_out: "no JSON, or too large" } };
}

/** Cuts a text at 1 KiB of UTF-8. Never throws, whatever a plugin gave as a text. */
export function cut(text: unknown): string {
  const wellFormed = anyText(text).toWellFormed();
  if (Buffer.byteLength(wellFormed) <= MAX_MESSAGE_BYTES) return wellFormed;
  // A UTF-16 unit has at most 3 bytes, and a character that the cut splits would end as U+FFFD.
  return `${Buffer.from(wellFormed)
    .subarray(0, MAX_MESSAGE_BYTES - 3)
    .toString()
    .replace(/\ufffd+$/, "")}…`;
}
