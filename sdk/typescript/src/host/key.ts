/** Keys of the storage. */
import { createHash } from "node:crypto";
import { checkString, wrongType } from "./argument.js";
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
 *
 * @throws {TypeError} If it is no string.
 */
export function keyPart(text: string): string {
  checkString("text", text);
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
 * @throws {TypeError} If it is no string.
 */
export function checkKey(key: string, field = "key"): string {
  checkString(field, key);
  if (key.isWellFormed()) return key;
  throw HostError.invalid(field, "Unicode text without halves of surrogate pairs");
}

/**
 * Checks the keys of one request.
 *
 * @throws {HostError} As `checkKey`.
 * @throws {TypeError} If they are no strings.
 */
export function checkKeys(keys: readonly string[]): string[] {
  if (!Array.isArray(keys)) throw wrongType("keys", "an array of strings", keys);
  for (const [index, key] of keys.entries()) checkString(`keys[${index}]`, key);
  return keys.map((key) => checkKey(key, "keys"));
}
