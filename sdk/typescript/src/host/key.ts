/** Keys of the storage. */
import { createHash } from "node:crypto";
import { HostError } from "./errors.js";

const MAX_TEXT_BYTES = 256;
const DIGEST_PREFIX = "sha256:";
/** What Unicode calls control characters. */
const CONTROL = /\p{Cc}/u;

/**
 * `text` as a part of a key, for names that come from an agent or a model. A text of at most 256 bytes without control characters stays
 * as it is; any other becomes `sha256:` and its digest. Different texts stay different.
 *
 * ```ts
 * const key = `failures/${keyPart(call.toolName)}`;
 * ```
 */
export function keyPart(text: string): string {
  const fits = Buffer.byteLength(text) <= MAX_TEXT_BYTES && !CONTROL.test(text) && text.isWellFormed();
  if (fits && !text.startsWith(DIGEST_PREFIX)) return text;
  // UTF-8 has no form for half of a surrogate pair, so such a text is digested as UTF-16, after a byte that UTF-8 doesn't have.
  const bytes = text.isWellFormed() ? Buffer.from(text) : Buffer.concat([Buffer.of(0xff), Buffer.from(text, "utf16le")]);
  return DIGEST_PREFIX + createHash("sha256").update(bytes).digest("hex");
}

/**
 * Checks what only JavaScript can get wrong. The gateway checks the rest.
 *
 * @throws {HostError} If a part of a surrogate pair is missing: UTF-8 would turn it into U+FFFD, and so into another key.
 */
export function checkKey(key: string, field = "key"): string {
  if (key.isWellFormed()) return key;
  throw HostError.invalid(field, "Unicode text without halves of surrogate pairs");
}
