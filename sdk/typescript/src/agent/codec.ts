/**
 * Reads and writes values in the two forms of the gateway's API: fields of protobuf messages, and JSON with the protos'
 * field names. Knows neither transport.
 *
 * Writers throw a TypeError or a JsonError that names the member. Readers throw if an answer is malformed.
 */
import { type JsonObject, type JsonValue, parseJson, writeJson, writeJsonBytes } from "../json.js";

/** Writes values of one type. `path` names the value in messages of errors. */
export interface Writer<T> {
  /** The field of a protobuf-es message; `undefined` leaves it out. */
  toProto(value: T, path: string): unknown;
  /** JSON text; `undefined` leaves the member out. */
  toJson(value: T, path: string): string | undefined;
}

/** Reads values of one type. */
export interface Reader<T> {
  /** From a field of a protobuf-es message. */
  fromProto(field: unknown, path: string): T;
  /** From a member of a JSON object; `undefined` if there is none. */
  fromJson(member: JsonValue | undefined, path: string): T;
}

export interface Codec<T> extends Writer<T>, Reader<T> {}

/** A string. Half surrogate pairs become U+FFFD. */
export const text: Codec<string> = {
  toProto: (value, path) => expectType("string", value, path).toWellFormed(),
  toJson: (value, path) => JSON.stringify(expectType("string", value, path).toWellFormed()),
  fromProto: (field, path) => expectType("string", field, path),
  fromJson: (member, path) => expectType("string", member, path),
};

export const flag: Codec<boolean> = {
  toProto: (value, path) => expectType("boolean", value, path),
  toJson: (value, path) => String(expectType("boolean", value, path)),
  fromProto: (field, path) => expectType("boolean", field, path),
  fromJson: (member, path) => expectType("boolean", member, path),
};

/** A uint64, which is a number here: what it counts stays below 2^53. */
export const count: Codec<number> = {
  toProto: (value, path) => BigInt(expectCount(value, Number.MAX_SAFE_INTEGER, path)),
  toJson: (value, path) => String(expectCount(value, Number.MAX_SAFE_INTEGER, path)),
  fromProto: readCount,
  fromJson: readCount,
};

/** A uint64 of milliseconds. Measured times are rounded to it. */
export const milliseconds: Codec<number> = {
  ...count,
  toProto: (value, path) => count.toProto(Math.round(expectType("number", value, path)), path),
  toJson: (value, path) => count.toJson(Math.round(expectType("number", value, path)), path),
};

export const uint32: Writer<number> = {
  toProto: (value, path) => expectCount(value, 2 ** 32 - 1, path),
  toJson: (value, path) => String(expectCount(value, 2 ** 32 - 1, path)),
};

/** Bytes that aren't JSON: base64 over HTTP. */
export const binary: Codec<Uint8Array> = {
  toProto: expectBytes,
  toJson: (value, path) => `"${toBase64(expectBytes(value, path))}"`,
  fromProto: expectBytes,
  fromJson: (member, path) => fromBase64(expectType("string", member, path)),
};

/** Any JSON value. */
export const json = jsonCodec<JsonValue>(() => true, "a JSON value");
export const jsonObject = jsonCodec<JsonObject>(isObject, "an object");
export const jsonArray = jsonCodec<JsonValue[]>(Array.isArray, "an array");

/** A JSON value: JSON text in the bytes of a message, where no bytes mean that it is absent. */
function jsonCodec<T extends JsonValue>(fits: (value: unknown) => boolean, expected: string): Codec<T> {
  function check<V>(value: V, path: string): V {
    if (value === undefined) throw new TypeError(`${path} is missing`);
    if (!fits(value)) throw new TypeError(`${path} must be ${expected}, is ${kindOf(value)}`);
    return value;
  }
  return {
    toProto: (value, path) => writeJsonBytes(check(value, path), path),
    toJson: (value, path) => writeJson(check(value, path), path),
    fromProto: (field, path) => check(isAbsent(field) ? undefined : parseJson(field as Uint8Array), path) as T,
    fromJson: (member, path) => check(member, path) as T,
  };
}

/** One of these names, whose numbers in the protobuf enum begin at 1. Whatever else it is, is `unknown`. */
export function enumeration<Name extends string>(...names: readonly Name[]): Reader<Name | "unknown"> {
  return {
    fromProto: (field) => names[(field as number) - 1] ?? "unknown",
    fromJson: (member, path) => names.find((name) => name === expectType("string", member, path)) ?? "unknown",
  };
}

/** Like {@link enumeration}. Number 0 means that it is absent. */
export function optionalEnumeration<Name extends string>(...names: readonly Name[]): Reader<Name | "unknown" | undefined> {
  const named = enumeration(...names);
  return {
    fromProto: (field, path) => (field === 0 ? undefined : named.fromProto(field, path)),
    fromJson: (member, path) => (member === undefined ? undefined : named.fromJson(member, path)),
  };
}

/** A value that may be absent. */
export function optional<T>(codec: Codec<T>): Codec<T | undefined> {
  return { ...optionalWriter(codec), ...optionalReader(codec) };
}

export function optionalWriter<T>(writer: Writer<T>): Writer<T | undefined> {
  return {
    toProto: (value, path) => (value === undefined ? undefined : writer.toProto(value, path)),
    toJson: (value, path) => (value === undefined ? undefined : writer.toJson(value, path)),
  };
}

export function optionalReader<T>(reader: Reader<T>): Reader<T | undefined> {
  return {
    fromProto: (field, path) => (isAbsent(field) ? undefined : reader.fromProto(field, path)),
    fromJson: (member, path) => (member === undefined ? undefined : reader.fromJson(member, path)),
  };
}

function isAbsent(field: unknown): boolean {
  return field === undefined || (field instanceof Uint8Array && field.length === 0);
}

/** A list. */
export function listWriter<T>(writer: Writer<T>): Writer<readonly T[]> {
  return {
    toProto: (items, path) => expectArray(items, path).map((item, index) => writer.toProto(item as T, `${path}[${index}]`)),
    toJson: (items, path) =>
      `[${expectArray(items, path)
        .map((item, index) => writer.toJson(item as T, `${path}[${index}]`))
        .join(",")}]`,
  };
}

export function listReader<T>(reader: Reader<T>): Reader<readonly T[]> {
  return {
    fromProto: (field, path) => expectArray(field, path).map((item, index) => reader.fromProto(item, `${path}[${index}]`)),
    fromJson: (member, path) => expectArray(member, path).map((item, index) => reader.fromJson(item as JsonValue, `${path}[${index}]`)),
  };
}

/** A list that is absent when it is empty. Messages don't tell the two apart. */
export function optionalList<T>(codec: Codec<T>): Codec<readonly T[] | undefined> {
  const reader = optionalReader(listReader(codec));
  const unlessEmpty = (items: readonly T[] | undefined) => (items?.length === 0 ? undefined : items);
  return {
    ...optionalWriter(listWriter(codec)),
    fromProto: (field, path) => unlessEmpty(reader.fromProto(field, path)),
    fromJson: (member, path) => unlessEmpty(reader.fromJson(member, path)),
  };
}

/** Names and texts. */
export const textMap: Writer<{ readonly [name: string]: string }> = {
  toProto: (map, path) =>
    Object.fromEntries(
      Object.entries(expectObject(map, path)).map(([name, value]) => {
        return [name.toWellFormed(), text.toProto(value as string, `${path}.${name}`)];
      }),
    ),
  toJson: (map, path) => {
    for (const [name, value] of Object.entries(expectObject(map, path))) expectType("string", value, `${path}.${name}`);
    return writeJson(map, path);
  },
};

/** An object. Members that `codecs` doesn't name are refused when it is written, and ignored when it is read. */
export function record<T extends object>(codecs: { readonly [Name in keyof T]-?: Codec<T[Name]> }): Codec<T> {
  return { ...recordWriter<T>(codecs), ...recordReader<T>(codecs) };
}

export function recordWriter<T extends object>(writers: { readonly [Name in keyof T]-?: Writer<T[Name]> }): Writer<T> {
  const members = Object.entries<Writer<any>>(writers).map(([name, writer]) => ({ name, key: snakeCase(name), writer }));
  function check(value: T, path: string): Record<string, unknown> {
    const checked = expectObject(value, path);
    const unknown = Object.keys(checked).find((name) => !Object.hasOwn(writers, name) && checked[name] !== undefined);
    if (unknown === undefined) return checked;
    const known = members.map(({ name }) => name).join(", ");
    throw new TypeError(`${join(path, unknown)} is not a member; known here: ${known}`);
  }
  return {
    toProto: (value, path) => {
      const checked = check(value, path);
      return Object.fromEntries(members.map(({ name, writer }) => [name, writer.toProto(checked[name], join(path, name))]));
    },
    toJson: (value, path) => {
      const checked = check(value, path);
      const written = members.flatMap(({ name, key, writer }) => {
        const member = writer.toJson(checked[name], join(path, name));
        return member === undefined ? [] : [`"${key}":${member}`];
      });
      return `{${written.join(",")}}`;
    },
  };
}

export function recordReader<T extends object>(readers: { readonly [Name in keyof T]-?: Reader<T[Name]> }): Reader<T> {
  const members = Object.entries<Reader<unknown>>(readers).map(([name, reader]) => ({ name, key: snakeCase(name), reader }));
  const build = (read: (member: (typeof members)[number]) => unknown) =>
    Object.fromEntries(members.map((member) => [member.name, read(member)]).filter(([, value]) => value !== undefined)) as T;
  return {
    fromProto: (message, path) => {
      const fields = expectObject(message, path);
      return build(({ name, reader }) => reader.fromProto(fields[name], join(path, name)));
    },
    fromJson: (member, path) => {
      const object = expectObject(member, path) as JsonObject;
      return build(({ key, reader }) => reader.fromJson(Object.hasOwn(object, key) ? object[key] : undefined, join(path, key)));
    },
  };
}

function join(path: string, name: string): string {
  return path === "" ? name : `${path}.${name}`;
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

interface Types {
  string: string;
  boolean: boolean;
  number: number;
}

function expectType<Type extends keyof Types>(type: Type, value: unknown, path: string): Types[Type] {
  if (value === undefined) throw new TypeError(`${path} is missing`);
  if (typeof value !== type) throw new TypeError(`${path} must be a ${type}, is ${kindOf(value)}`);
  return value as Types[Type];
}

function expectCount(value: unknown, max: number, path: string): number {
  const number = expectType("number", value, path);
  if (Number.isInteger(number) && number >= 0 && number <= max) return number;
  throw new TypeError(`${path} must be a whole number from 0 to ${max}, is ${number}`);
}

function readCount(value: unknown, path: string): number {
  const number = typeof value === "bigint" ? Number(value) : value;
  if (typeof number === "number" && Number.isInteger(number) && number >= 0) return number;
  throw new TypeError(`${path} must be a whole number, is ${kindOf(value)}`);
}

function expectBytes(value: unknown, path: string): Uint8Array {
  if (value instanceof Uint8Array) return value;
  throw new TypeError(`${path} must be a Uint8Array, is ${kindOf(value)}`);
}

function expectArray(value: unknown, path: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw new TypeError(`${path} must be an array, is ${kindOf(value)}`);
}

function expectObject(value: unknown, path: string): Record<string, unknown> {
  if (isObject(value)) return value;
  throw new TypeError(`${path === "" ? "the body" : path} must be an object, is ${kindOf(value)}`);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What a wrong value is. Never the value itself, which may be private. */
function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  return Array.isArray(value) ? "an array" : `a value of type ${typeof value}`;
}

/** `String.fromCharCode` takes a limited number of arguments. */
const BASE64_CHUNK = 0x8000;

function toBase64(bytes: Uint8Array): string {
  let latin1 = "";
  for (let start = 0; start < bytes.length; start += BASE64_CHUNK) {
    // Spreading a typed array takes four times as long.
    latin1 += String.fromCharCode.apply(null, bytes.subarray(start, start + BASE64_CHUNK) as unknown as number[]);
  }
  return btoa(latin1);
}

function fromBase64(base64: string): Uint8Array {
  const latin1 = atob(base64);
  const bytes = new Uint8Array(latin1.length);
  // A loop, because `Uint8Array.from` takes twenty times as long.
  for (let index = 0; index < latin1.length; index += 1) bytes[index] = latin1.charCodeAt(index);
  return bytes;
}
