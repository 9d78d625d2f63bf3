/** What a plugin of Dexto answers, and what the gateway gets. */
import { type Notice, type Reply, cancel, proceed } from "@hookgate/sdk";
import { type LooseNotice, boundedNotices, cut } from "../notices.js";
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
 * Checks what a method returned. Where Dexto would guess, this is an error: a plugin that answers nothing must not let a call pass.
 *
 * @throws {TypeError} The message names the member.
 */
export function resultOf(returned: unknown, method: string): DextoResult {
  if (returned === null || typeof returned !== "object") {
    throw new TypeError(`${method} returned ${String(returned)}: return an object such as { ok: true }`);
  }
  const { ok, modify, cancel: cancelled, message, notices = [] } = returned as { [name: string]: unknown };
  if (typeof ok !== "boolean") throw new TypeError(`${method} returned no \`ok\`: it must be true or false`);
  if (modify !== undefined && modify !== null && (typeof modify !== "object" || Array.isArray(modify))) {
    throw new TypeError(`${method} returned a \`modify\` that isn't an object`);
  }
  return {
    ok,
    notices: Array.isArray(notices) ? notices : [],
    ...(modify ? { modify: modify as DextoPayload } : {}),
    ...(cancelled ? { cancel: true } : {}),
    ...(typeof message === "string" ? { message } : {}),
  };
}

/** The reply for a result. `patch` is read only where Dexto applies it. */
export function replyFromDexto(plugin: string, result: DextoResult, patch: () => LoosePatch): Reply<any> {
  const { ok, message, notices } = result;
  if (result.cancel) {
    const options = { notices: boundedNotices(notices) };
    return cancel(blockCode(notices), cut(message ?? ""), ok ? { ...options, patch: patch() } : options);
  }
  if (ok) return proceed(patch(), { notices: boundedNotices(notices) });
  return proceed({}, { notices: boundedNotices([failureNotice(plugin, message), ...notices]) });
}

/** Empty where the gateway takes the code of the first notice of kind `block`. */
function blockCode(notices: readonly LooseNotice[]): string {
  return (notices.find(({ code }) => STATUS_CODES.includes(code))?.code as string | undefined) ?? "";
}

function failureNotice(plugin: string, message: string | undefined): Notice {
  const reason = message === undefined ? "" : `: ${message}`;
  return { kind: "warn", code: "PLUGIN_REPORTED_FAILURE", message: `plugin '${plugin}' reported a failure and cancelled nothing${reason}` };
}
