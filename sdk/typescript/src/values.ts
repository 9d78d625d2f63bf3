/** Values of agent libraries as JSON, and back. */
import { JsonError, type JsonValue, writeJson } from "./json.js";

/** Deepest nesting that the protocol allows (docs/protocol.md, section 1). */
const MAX_DEPTH = 64;

/**
 * A value as `JSON.stringify` would write it, so that plugins judge what the model would see. Two things differ: bytes
 * become base64, and integers beyond 2^53 become BigInts of the same value. `undefined` becomes `null`.
 *
 * @throws {JsonError} If the value is nested deeper than 64 levels, or contains itself.
 */
export function toJson(value: unknown): JsonValue {
  return convert(value, 0) ?? null;
}

/** Like {@link toJson}, for a list. */
export function toJsonList(values: readonly unknown[]): JsonValue[] {
  return values.map((value) => toJson(value));
}

/**
 * A JSON value for a library that knows no BigInt: an integer that a number holds exactly becomes a number, any other
 * becomes its digits.
 */
export function fromJson(value: JsonValue): unknown {
  if (typeof value === "bigint") return BigInt(Number(value)) === value ? Number(value) : String(value);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(fromJson);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, fromJson(member)]));
}

/** A JSON value as a model reads it: a text as it is, anything else as JSON text. */
export function toText(value: JsonValue): string {
  return typeof value === "string" ? value : writeJson(value);
}

/** Whether two JSON values have the same text. */
export function isSameJson(one: JsonValue, other: JsonValue): boolean {
  return writeJson(one) === writeJson(other);
}

/** Whether a value is an object with named members. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What an error says. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * A list as plugins left it. An item that nobody changed is the original itself, with everything that JSON doesn't show.
 *
 * @param originals The items as they were before.
 * @param sent What the gateway got for them, in the same order.
 * @param returned What came back.
 * @param decode Makes an item of a changed or new one. If the list has kept its length, it also gets the original at that
 *   place.
 */
export function mergeList<T>(
  originals: readonly T[],
  sent: readonly JsonValue[],
  returned: readonly JsonValue[],
  decode: (item: JsonValue, original: T | undefined) => T,
): T[] {
  const unchanged = new Map<string, T[]>();
  originals.forEach((original, index) => {
    const text = writeJson(sent[index]);
    unchanged.set(text, [...(unchanged.get(text) ?? []), original]);
  });
  const isAligned = originals.length === returned.length;
  return returned.map((item, index) => {
    const original = unchanged.get(writeJson(item))?.shift();
    return original ?? decode(item, isAligned ? originals[index] : undefined);
  });
}

/** `undefined` is what JSON has no form for. */
function convert(value: unknown, depth: number): JsonValue | undefined {
  switch (typeof value) {
    case "string":
    case "boolean":
    case "bigint":
      return value;
    case "number":
      return convertNumber(value);
    case "object":
      return value === null ? null : convertObject(value, depth + 1);
    default:
      return undefined;
  }
}

function convertNumber(number: number): JsonValue {
  if (!Number.isFinite(number)) return null;
  return Number.isInteger(number) && !Number.isSafeInteger(number) && Math.abs(number) < 1e21 ? BigInt(number) : number;
}

function convertObject(value: object, depth: number): JsonValue | undefined {
  if (depth > MAX_DEPTH) throw new JsonError(`the value is nested deeper than ${MAX_DEPTH} levels, or contains itself`);
  if (value instanceof Uint8Array) return toBase64(value);
  if ("toJSON" in value && typeof value.toJSON === "function") return convert(value.toJSON(), depth);
  if (Array.isArray(value)) return value.map((item) => convert(item, depth) ?? null);
  const members = Object.entries(value).map(([name, member]) => [name, convert(member, depth)] as const);
  return Object.fromEntries(members.filter((member): member is [string, JsonValue] => member[1] !== undefined));
}

/** `String.fromCharCode` takes a limited number of arguments. */
const BASE64_CHUNK = 0x8000;

function toBase64(bytes: Uint8Array): string {
  let latin1 = "";
  for (let start = 0; start < bytes.length; start += BASE64_CHUNK) {
    latin1 += String.fromCharCode(...bytes.subarray(start, start + BASE64_CHUNK));
  }
  return btoa(latin1);
}
