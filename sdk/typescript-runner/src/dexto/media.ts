/** Images and files: lists at the gateway, and one of each in Dexto, as base64 or as a URL. */
import { type Media, PluginError } from "@hookgate/sdk";

/** `imageData` or `fileData` of a payload. The content's member is `image` or `data`. */
export interface DextoMedium {
  readonly image?: unknown;
  readonly data?: unknown;
  readonly mimeType?: unknown;
  readonly filename?: unknown;
}

/** For texts without whitespace: with it among the characters, the search for the end would take quadratic time. */
const BASE64 = /^[A-Za-z0-9+/]*=*$/;

/**
 * What Dexto would show the plugin; `undefined` if there is none.
 *
 * @throws {PluginError} If there are several: the plugin would never see the others.
 */
export function mediumToDexto(media: readonly Media[], content: "image" | "data", firstOnly: boolean): DextoMedium | undefined {
  if (media.length > 1 && !firstOnly) {
    const kind = content === "image" ? "images" : "files";
    throw PluginError.invalid(
      `the call has ${media.length} ${kind}, and a plugin of Dexto sees only one: send one, or set \`first_medium_only\` for the plugin`,
    );
  }
  const [first] = media;
  if (first === undefined) return undefined;
  const text = first.data === undefined ? first.url : Buffer.from(first.data).toString("base64");
  return { [content]: text, mimeType: first.mimeType, ...(first.filename === undefined ? {} : { filename: first.filename }) };
}

/** The gateway's list after the plugin replaced its medium, or removed it. */
export function mediaFromDexto(medium: unknown, content: "image" | "data", before: readonly Media[]): readonly Media[] {
  if (medium === undefined || medium === null) return before.slice(1);
  const { [content]: value, mimeType, filename } = medium as DextoMedium;
  if (typeof mimeType !== "string") throw new TypeError(`\`modify\`: \`${memberOf(content)}.mimeType\` must be a string`);
  const name = typeof filename === "string" ? { filename } : {};
  return [{ ...contentOf(value, content, before[0]?.url), mimeType, ...name }, ...before.slice(1)];
}

function contentOf(value: unknown, content: "image" | "data", own: string | undefined): { data: Uint8Array } | { url: string } {
  // What the plugin left alone stays what it was, such as a URL of another scheme, or one that looks like base64.
  if (own !== undefined && value === own) return { url: own };
  if (value instanceof Uint8Array) return { data: value };
  if (value instanceof ArrayBuffer) return { data: new Uint8Array(value) };
  if (value instanceof URL) return { url: value.href };
  if (typeof value === "string" && /^https?:\/\//.test(value)) return { url: value };
  const base64 = typeof value === "string" ? value.replace(/^data:[^,]*;base64,/, "").replace(/\s+/g, "") : undefined;
  if (base64 !== undefined && BASE64.test(base64)) return { data: Buffer.from(base64, "base64") };
  throw new TypeError(`\`modify\`: \`${memberOf(content)}.${content}\` must be base64, a URL or bytes`);
}

function memberOf(content: "image" | "data"): string {
  return content === "image" ? "imageData" : "fileData";
}
