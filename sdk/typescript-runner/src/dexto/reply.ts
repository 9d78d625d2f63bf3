/** What a plugin of Dexto answers, and what the gateway gets. */
import { type Notice, type Reply, cancel, proceed, stderrLogger } from "@hookgate/sdk";
import { messageOf } from "../entry.js";
import { type LooseNotice, boundedNotices, cut, firstBlockCode } from "../notices.js";
import { currentScope } from "../scope.js";
import { anyText, attempt } from "../text.js";
import type { DextoPayload, LoosePatch } from "./payload.js";

/** What a method of a plugin returns. */
export interface DextoResult {
  readonly ok: boolean;
  readonly modify?: DextoPayload;
  readonly cancel?: boolean;
  readonly message?: string;
  readonly notices: readonly LooseNotice[];
}

/** Codes that decide the status in Dexto, wherever they are among the notices. */
const STATUS_CODES: readonly unknown[] = ["QUOTA_EXCEEDED", "TOOL_NOT_ALLOWED", "UNAUTHORIZED"];

/**
 * Checks what a method returned. Where Dexto would guess, this is an error: a plugin that answers nothing must not let a call pass. A
 * cancel counts whatever is wrong beside it.
 *
 * @throws {TypeError} The message names the member.
 */
export function resultOf(returned: unknown, method: string): DextoResult {
  if (returned === null || typeof returned !== "object") {
    throw new TypeError(`${method} returned ${anyText(returned)}: return an object such as { ok: true }`);
  }
  const { ok, modify, cancel: cancelled, message, notices } = returned as { [name: string]: unknown };
  const wrong = wrongMember(ok, modify);
  if (wrong !== undefined && !cancelled) throw new TypeError(`${method} returned ${wrong}`);
  if (wrong !== undefined) logLeftOut("`modify`", `${method} returned ${wrong}`);
  return {
    ok: ok === true && wrong === undefined,
    notices: noticesOf(notices, Boolean(cancelled)),
    ...(modify && wrong === undefined ? { modify: modify as DextoPayload } : {}),
    ...(cancelled ? { cancel: true } : {}),
    ...(typeof message === "string" ? { message } : {}),
  };
}

/** What is wrong with the members that say whether and how the call goes on. */
function wrongMember(ok: unknown, modify: unknown): string | undefined {
  if (typeof ok !== "boolean") return "no `ok`: it must be true or false";
  const isRight = modify === undefined || modify === null || (typeof modify === "object" && !Array.isArray(modify));
  return isRight ? undefined : "a `modify` that isn't an object";
}

/** The notices that are objects. Those beside a cancel are read in a way that can't throw. */
function noticesOf(notices: unknown, isCancel: boolean): readonly LooseNotice[] {
  if (!Array.isArray(notices)) return [];
  const objects = notices.filter((notice) => notice !== null && typeof notice === "object") as LooseNotice[];
  if (objects.length < notices.length) logLeftOut("notices", "they aren't objects");
  if (!isCancel) return objects;
  // Reads each member once: what a getter throws costs its notice, and not the cancel.
  return objects.flatMap((notice) =>
    attempt<LooseNotice[]>(
      () => [{ kind: notice.kind, code: notice.code, message: notice.message, details: notice.details }],
      (error) => leaveOut("a notice", error, []),
    ),
  );
}

/** The reply for a result. `patch` is read only where Dexto applies it. */
export function replyFromDexto(plugin: string, result: DextoResult, patch: () => LoosePatch): Reply<any> {
  const { ok, message, notices } = result;
  if (result.cancel) return cancelReply(result, patch);
  if (ok) return proceed(patch(), { notices: boundedNotices(notices) });
  return proceed({}, { notices: boundedNotices([failureNotice(plugin, message), ...notices]) });
}

/** A cancel without the parts that are wrong: they must not undo it, because a binding may skip a step that failed. */
function cancelReply({ ok, message, notices }: DextoResult, patch: () => LoosePatch): Reply<any> {
  const bounded = attempt<Notice[]>(
    () => boundedNotices(notices),
    (error) => leaveOut("notices", error, []),
  );
  const sent = ok ? attempt<LoosePatch | undefined>(patch, (error) => leaveOut("`modify`", error, undefined)) : undefined;
  return cancel(blockCode(notices), cut(message ?? ""), { notices: bounded, ...(sent === undefined ? {} : { patch: sent }) });
}

function leaveOut<T>(part: string, error: unknown, otherwise: T): T {
  logLeftOut(part, messageOf(error));
  return otherwise;
}

function logLeftOut(part: string, reason: string): void {
  stderrLogger.warn(`a part of the plugin's answer was left out: ${part}`, { plugin: currentScope()?.plugin, reason });
}

/** The status code of Dexto among all notices, or the code of the first one of kind `block`. */
function blockCode(notices: readonly LooseNotice[]): string {
  const status = notices.find(({ code }) => STATUS_CODES.includes(code))?.code as string | undefined;
  return status ?? firstBlockCode(notices) ?? "";
}

function failureNotice(plugin: string, message: string | undefined): Notice {
  const reason = message === undefined ? "" : `: ${message}`;
  return { kind: "warn", code: "PLUGIN_REPORTED_FAILURE", message: `plugin '${plugin}' reported a failure and cancelled nothing${reason}` };
}
