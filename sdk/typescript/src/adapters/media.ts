/** Images and files in messages of agent libraries. */
import type { Media } from "../agent/types.js";
import { isSameJson, toJson } from "../values.js";

/** A text with a scheme is a URL, any other is base64. */
const SCHEME = /^[a-z][a-z0-9+.-]*:/i;
const DATA_URL = /^data:([^;,]*);base64,(.*)$/s;

/**
 * The medium that a text stands for: a URL, one that holds the data, or base64.
 *
 * @param mimeType Its type, unless the URL says another one.
 * @returns `undefined` if the text is none of them.
 */
export function mediumFrom(source: string, mimeType: string): Media | undefined {
  const [, type = "", base64] = DATA_URL.exec(source) ?? [];
  if (base64 === undefined && SCHEME.test(source)) return { url: source, mimeType };
  const data = fromBase64(base64 ?? source);
  return data === undefined ? undefined : { data, mimeType: type === "" ? mimeType : type };
}

/** Whether two media are the same, byte for byte. */
export function isSameMedium(one: Media, other: Media): boolean {
  const isSameSource = one.url === other.url && isSameJson(toJson(one.data), toJson(other.data));
  return isSameSource && one.mimeType === other.mimeType && one.filename === other.filename;
}

/** The parts of a message without those that are one of these media. */
export function dropMedia<Part>(parts: readonly Part[], dropped: readonly Media[], mediumOf: (part: Part) => Media | undefined): Part[] {
  return parts.filter((part) => {
    const medium = mediumOf(part);
    return medium === undefined || !dropped.some((other) => isSameMedium(medium, other));
  });
}

function fromBase64(base64: string): Uint8Array | undefined {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}
