/**
 * JSON values as they are sent: bytes of JSON text.
 *
 * JavaScript's numbers are exact only up to 2^53. So a larger integer is a BigInt here, in both directions, and a number
 * that JavaScript has already rounded is refused.
 */
import { parse as parseLossless } from "lossless-json";

/** Any JSON value. An integer beyond 2^53 is a BigInt. */
export type JsonValue = null | boolean | number | bigint | string | JsonValue[] | JsonObject;

/** A JSON object. */
export type JsonObject = { [name: string]: JsonValue };

/** A value that can't be written as JSON, or bytes that aren't JSON. */
export class JsonError extends Error {
  /** The name of the class. */
  override name = "JsonError";
}

/** Deepest nesting that the protocol allows (docs/protocol.md, section 1). */
const MAX_DEPTH = 64;

/** Finds a number that `JSON.parse` might round. It may also match inside a string. */
const LONG_NUMBER = /(?:^|[[:,\s])-?(?:[\d.]{16}|[\d.]+[eE])/;

/** The strings of a JSON text. */
const STRINGS = /"[^"\\]*(?:\\.[^"\\]*)*"/g;

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/**
 * Parses JSON text.
 *
 * @throws {JsonError} If it isn't JSON.
 */
export function parseJson(json: Uint8Array | string): JsonValue {
  try {
    const text = typeof json === "string" ? json : decoder.decode(json);
    return hasLongNumber(text) ? (parseLossless(text, null, parseNumber) as JsonValue) : JSON.parse(text);
  } catch (error) {
    throw new JsonError(`not JSON: ${(error as Error).message}`, { cause: error });
  }
}

/** Whether the text has a number that `JSON.parse` might round. The parser for such texts is slow. */
function hasLongNumber(text: string): boolean {
  return LONG_NUMBER.test(text) && LONG_NUMBER.test(text.replace(STRINGS, '""'));
}

function parseNumber(text: string): number | bigint {
  const number = Number(text);
  if (/^-?\d+$/.test(text)) return Number.isSafeInteger(number) ? number : BigInt(text);
  // A number with a fraction or an exponent is a double. As a BigInt it can be written again.
  return isUnsafeInteger(number) ? BigInt(number) : number;
}

/** Whether JavaScript writes the number as the digits of an integer that may have been rounded. */
function isUnsafeInteger(number: number): boolean {
  return Number.isInteger(number) && !Number.isSafeInteger(number) && Math.abs(number) < 1e21;
}

/**
 * Writes a value as JSON text. Half surrogate pairs in strings become U+FFFD.
 *
 * @param name What the value is called in the message of an error.
 * @throws {JsonError} If the value has no JSON form, or would change on its way: a number that isn't finite, or an integer
 *   beyond 2^53 that isn't a BigInt.
 */
export function writeJson(value: unknown, name = "value"): string {
  const text = write(value, name, 0);
  if (text === undefined) throw new JsonError(`${name} is ${typeof value}, which JSON doesn't have`);
  return text;
}

/** Like {@link writeJson}, as UTF-8. */
export function writeJsonBytes(value: unknown, name?: string): Uint8Array<ArrayBuffer> {
  return encoder.encode(writeJson(value, name));
}

function write(value: unknown, path: string, depth: number): string | undefined {
  switch (typeof value) {
    case "string":
      return JSON.stringify(value.toWellFormed());
    case "number":
      return writeNumber(value, path);
    case "boolean":
    case "bigint":
      return String(value);
    case "object":
      return value === null ? "null" : writeContainer(value, path, depth + 1);
    default:
      return undefined;
  }
}

function writeNumber(number: number, path: string): string {
  if (!Number.isFinite(number)) throw new JsonError(`${path} is ${number}, which JSON doesn't have`);
  if (isUnsafeInteger(number)) {
    throw new JsonError(`${path} is ${number}, an integer beyond 2^53 that JavaScript may have rounded: use a BigInt`);
  }
  return Object.is(number, -0) ? "-0" : String(number);
}

function writeContainer(value: object, path: string, depth: number): string | undefined {
  if ("toJSON" in value && typeof value.toJSON === "function") return write(value.toJSON(), path, depth);
  if (depth > MAX_DEPTH) throw new JsonError(`${path} is nested deeper than ${MAX_DEPTH} levels, or contains itself`);
  if (Array.isArray(value)) {
    return `[${Array.from(value, (item, index) => write(item, `${path}[${index}]`, depth) ?? "null").join(",")}]`;
  }
  const members: string[] = [];
  for (const [name, member] of Object.entries(value)) {
    const text = write(member, `${path}.${name}`, depth);
    if (text !== undefined) members.push(`${JSON.stringify(name.toWellFormed())}:${text}`);
  }
  return `{${members.join(",")}}`;
}
