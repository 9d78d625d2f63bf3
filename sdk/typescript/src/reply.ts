/** A plugin's answer at a point, or at a lifecycle hook. */
import { create } from "@bufbuild/protobuf";
import * as wire from "./gen/hookgate/plugin/v1/plugin_pb.js";
import {
  CancelScope,
  ContributionSchema,
  type Contribution,
  NoticeKind,
  NoticeSchema,
  type Notice as WireNotice,
} from "./gen/hookgate/types/v1/types_pb.js";
import { shorten } from "./errors.js";
import { writeJsonBytes } from "./json.js";
import type { Media } from "./media.js";

/** Changes at `beforeLlmRequest`: a present member replaces the whole value. */
export interface BeforeLlmRequestPatch {
  /** The user's text. May be empty. */
  text?: string;
  /** An empty list removes the images. */
  images?: readonly Media[];
  /** An empty list removes the files. */
  files?: readonly Media[];
  /** The system prompt. May be empty. */
  systemPrompt?: string;
  /** The conversation in the agent's own format. */
  messages?: readonly unknown[];
  /** The tools offered to the model in the agent's own format. */
  tools?: readonly unknown[];
  /** Additional data for later plugins and the agent; an object. */
  extra?: object;
}

/** Changes at `beforeToolCall`: a present member replaces the whole value. */
export interface BeforeToolCallPatch {
  /** 1 to 256 bytes. */
  toolName?: string;
  /** Any JSON value. */
  args?: unknown;
  /** Additional data for later plugins and the agent; an object. */
  extra?: object;
}

/** Changes at `afterToolResult`: a present member replaces the whole value. */
export interface AfterToolResultPatch {
  /** Any JSON value. */
  result?: unknown;
  /** Additional data for later plugins and the agent; an object. */
  extra?: object;
}

/** Changes at `beforeResponse`: a present member replaces the whole value. */
export interface BeforeResponsePatch {
  /** The answer's text. May be empty. */
  content?: string;
  /** The model's reasoning. Empty: none is shown. */
  reasoning?: string;
  /** Additional data for later plugins and the agent; an object. */
  extra?: object;
}

/**
 * What a literal patch has to be beside its own type, so that a misspelt member doesn't compile. The members of a patch whose names are
 * only known at run time are checked then.
 */
export type PatchMembers<Patch> = string extends keyof Patch
  ? unknown
  : {
      readonly [Name in Exclude<
        keyof Patch,
        keyof (BeforeLlmRequestPatch & BeforeToolCallPatch & AfterToolResultPatch & BeforeResponsePatch)
      >]: `a patch has no member ${Name & string}`;
    };

/** A remark that the agent gets with the decision. */
export interface Notice {
  /** How the plugin means it. It decides nothing, but a cancel without a code has that of the first one of the kind `block`. */
  readonly kind: "allow" | "block" | "warn" | "info";
  /** `[A-Za-z][A-Za-z0-9_.:-]{0,63}`. */
  readonly code?: string;
  /** For people. */
  readonly message: string;
  /** Facts: at most 4 KiB as JSON. */
  readonly details?: object;
}

/** Why a plugin stops an action. */
export interface Cancel {
  /** `[A-Za-z][A-Za-z0-9_.:-]{0,63}`; empty if it is an answer. */
  readonly code: string;
  /** Shown to the user; at most 1 KiB. */
  readonly message: string;
  /** `run` ends the whole run, `step` only this action. */
  readonly scope: "step" | "run";
  /** When it makes sense to try again, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The tool's result; `undefined` if it isn't an answer. */
  readonly result: unknown;
}

/** How a handler answers at a point. Made by {@link proceed}, {@link cancel} and {@link answer}. */
export class Reply<Patch> {
  /** @internal */
  constructor(
    /** Why the action stops; `undefined` if it goes on. */
    readonly cancelled: Cancel | undefined,
    /** The changes to the payload. */
    readonly patch: Patch | undefined,
    /** The remarks, in order. */
    readonly notices: readonly Notice[],
    /** In a window of an answer: how much of `content` goes on, counted as `content.slice` does; `undefined` if all does. */
    readonly consumed?: number,
  ) {}
}

/** What a handler says beside its changes. */
export interface ProceedOptions {
  /** At most 16, 8 KiB together. */
  readonly notices?: readonly Notice[];
  /**
   * Only at `beforeResponse`: how much of `content` the plugin is done with. It goes on, and `content` of the patch replaces exactly it.
   * The rest, at most 64 KiB, comes again with more text behind it. By default all. In the last window and without `call.window` it must
   * be all.
   *
   * It counts as `content.slice(0, consumed)` does, in UTF-16 units; the SDK converts it to the contract's characters. It must not split
   * a character of two units.
   */
  readonly consumed?: number | undefined;
}

/**
 * Goes on, with the payload as it is or with these changes.
 *
 * @throws {TypeError} If the patch is given and undefined.
 */
export function proceed<Patch = never>(...[patch, options]: [patch?: Patch & PatchMembers<Patch>, options?: ProceedOptions]): Reply<Patch>;
export function proceed(...args: [patch?: unknown, options?: ProceedOptions]): Reply<unknown> {
  const [patch, options = {}] = args;
  // A forgotten `return` in what makes the patch must not let the payload pass.
  if (args.length > 0 && patch === undefined) throw new TypeError("the patch of `proceed` is undefined: leave it out, or give an object");
  return new Reply(undefined, patch, options.notices ?? [], options.consumed);
}

/** How a cancel reaches further than by default. */
export interface CancelOptions<Patch> {
  /** `run` ends the whole run, `step`, the default, only this action. */
  readonly scope?: "step" | "run";
  /** When it makes sense to try again, in milliseconds. */
  readonly retryAfterMs?: number;
  /** At most 16, 8 KiB together. */
  readonly notices?: readonly Notice[];
  /** Changes to the payload that the agent gets with the block. */
  readonly patch?: Patch & PatchMembers<Patch>;
}

/**
 * Stops the action.
 *
 * @param code `[A-Za-z][A-Za-z0-9_.:-]{0,63}`. It decides the HTTP status (docs/errors.md).
 * @param message Shown to the user; at most 1 KiB.
 */
export function cancel<Patch = never>(code: string, message: string, options: CancelOptions<Patch> = {}): Reply<Patch> {
  const { scope = "step", retryAfterMs, notices = [], patch } = options;
  return new Reply({ code, message, scope, retryAfterMs, result: undefined }, patch, notices);
}

/**
 * Gives the tool's result instead of running the tool; only at `beforeToolCall`, with access `modify`.
 *
 * @param result Any JSON value.
 * @param message Shown where an agent takes no results: it gets a block with the code TOOL_ANSWERED.
 */
export function answer(result: unknown, message = "", options: { notices?: readonly Notice[] } = {}): Reply<never> {
  if (result === undefined) throw new TypeError("the result of `answer` is undefined: use null if there is none");
  return new Reply<never>({ code: "", message, scope: "step", retryAfterMs: undefined, result }, undefined, options.notices ?? []);
}

/** What a plugin adds at a hook. */
export interface HookContribution {
  /** `[a-z][a-z0-9_]{0,63}`; at a known hook, one of its kinds. */
  readonly kind: string;
  /** Any JSON value. */
  readonly value: unknown;
}

/** How a handler answers at a hook. Made by {@link contribute}. */
export class HookReply {
  /** @internal */
  constructor(
    /** What the plugin adds, in order. */
    readonly contributions: readonly HookContribution[],
    /** The remarks, in order. */
    readonly notices: readonly Notice[],
  ) {}
}

/**
 * Contributes at a hook; nothing if the list is empty. The agent gets the contributions in this order.
 *
 * @param contributions At most 64.
 * @param options `notices` are at most 16, 8 KiB together.
 */
export function contribute(contributions: readonly HookContribution[] = [], options: { notices?: readonly Notice[] } = {}): HookReply {
  return new HookReply(contributions, options.notices ?? []);
}

const NOTICE_KINDS = { allow: NoticeKind.ALLOW, block: NoticeKind.BLOCK, warn: NoticeKind.WARN, info: NoticeKind.INFO };

/** @internal */
export function noticeToWire({ kind, code, message, details }: Notice, index: number): WireNotice {
  const wireKind = NOTICE_KINDS[kind];
  if (wireKind === undefined) throw new TypeError(`notices[${index}].kind is ${JSON.stringify(kind)}, not allow, block, warn or info`);
  return create(NoticeSchema, {
    kind: wireKind,
    message,
    ...(code ? { code } : {}),
    ...(details === undefined ? {} : { details: writeJsonBytes(details, `notices[${index}].details`) }),
  });
}

/** @internal */
export function contributionToWire({ kind, value }: HookContribution, index: number): Contribution {
  return create(ContributionSchema, { kind, value: writeJsonBytes(value, `contributions[${index}].value`) });
}

/** @internal */
export function cancelToWire({ code, message, scope, retryAfterMs, result }: Cancel): wire.Cancel {
  const wait = typeof retryAfterMs === "number" ? Math.ceil(retryAfterMs) : NaN;
  return create(wire.CancelSchema, {
    code: shorten(textOf(code)),
    message: shorten(textOf(message)),
    scope: scope === "run" ? CancelScope.RUN : CancelScope.STEP,
    ...(Number.isNaN(wait) ? {} : { retryAfterMs: BigInt(Math.min(Number.MAX_SAFE_INTEGER, Math.max(0, wait))) }),
    ...(result === undefined ? {} : { result: writeJsonBytes(result, "result") }),
  });
}

/** What a caller in JavaScript gives as a text may be anything, for example an Error. */
function textOf(value: unknown): string {
  try {
    return String(value ?? "");
  } catch {
    return "";
  }
}
