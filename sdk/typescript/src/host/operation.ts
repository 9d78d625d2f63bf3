/** Writes to the storage, and their results. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type * as wire from "../gen/hookgate/host/v1/host_pb.js";
import { checkObject, wrongType } from "./argument.js";
import { HostError } from "./errors.js";
import { checkKey } from "./key.js";
import { type Period, wireTtl, wireWindow } from "./period.js";

const MAX_COUNTER = 2 ** 53;
const MAX_VERSION = 2n ** 64n - 1n;

/** Options of a put. */
export interface PutOptions {
  /** Writes only if the entry has this version; `0n`: only if there is no entry. */
  readonly expectedVersion?: bigint | undefined;
  /** The entry expires after this many milliseconds, 1 to 31,622,400,000 (366 days). By default never. */
  readonly ttlMs?: number | undefined;
}

/** Options of a deletion. */
export interface DeleteOptions {
  /** Deletes only if the entry has this version, at least `1n`. */
  readonly expectedVersion?: bigint | undefined;
}

/** Options of an addition. */
export interface AddOptions {
  /** Adds nothing if the counter would exceed this number, between -2^53 and 2^53. */
  readonly limit?: number | undefined;
  /**
   * The counter expires at the end of the window in which it was created. Windows of this length, 1 ms to 366 days, follow each other
   * from 1970-01-01T00:00:00Z on: `"day"` are UTC days, `"minute"` full minutes. A number is in milliseconds. Without a window, the
   * counter never expires.
   */
  readonly window?: number | Period | undefined;
}

/** One change of a transaction. */
export type Operation = PutOperation | DeleteOperation | AddOperation;

/** Writes a value, also in place of a counter. */
export interface PutOperation extends PutOptions {
  /** Tells a put from other changes. */
  readonly op: "put";
  /** 1 to 512 bytes, no control characters. */
  readonly key: string;
  /** At most 64 KiB. A text is written as UTF-8. */
  readonly value: Uint8Array | string;
}

/** Deletes an entry. */
export interface DeleteOperation extends DeleteOptions {
  /** Tells a deletion from other changes. */
  readonly op: "delete";
  /** 1 to 512 bytes, no control characters. */
  readonly key: string;
}

/** Adds to a counter. A counter that doesn't exist is 0. */
export interface AddOperation extends AddOptions {
  /** Tells an addition from other changes. */
  readonly op: "add";
  /** 1 to 512 bytes, no control characters. */
  readonly key: string;
  /** A whole number between -2^53 and 2^53. */
  readonly delta: number;
}

/** The value was written. */
export interface PutSuccess {
  /** Tells success from failure. */
  readonly written: true;
  /** The entry's new version. */
  readonly version: bigint;
}

/** There is no such entry any more, also if there was none before. */
export interface DeleteSuccess {
  /** Tells success from failure. */
  readonly deleted: true;
  /** Whether there was one, which was deleted. */
  readonly existed: boolean;
}

/** The delta was added. */
export interface AddSuccess extends CounterState {
  /** Tells success from failure. */
  readonly added: true;
  /** The entry's new version. */
  readonly version: bigint;
}

/** A counter after an addition. */
export interface CounterState {
  /** Its value; unchanged if nothing was added. */
  readonly counter: number;
  /** How much more can be added before the limit is reached, at least 0. Absent without a limit. */
  readonly remaining?: number;
  /** Milliseconds until it expires and starts again from 0. Absent if it never does. */
  readonly resetsInMs?: number;
}

/**
 * The result of a put. If not `written`, the entry has another version than expected, namely `version`, `0n` if there is none. That is
 * impossible without an expected version.
 */
export type PutResult =
  | PutSuccess
  | {
      /** Tells failure from success. */
      readonly written: false;
      /** The entry's version; `0n` if there is none. */
      readonly version: bigint;
    };

/**
 * The result of a deletion. If `deleted`, there is no such entry any more, and `existed` says whether there was one before. If not, the
 * entry has another version than expected, namely `version`, `0n` if there is none: nothing was deleted. That is impossible without an
 * expected version.
 */
export type DeleteResult =
  | DeleteSuccess
  | {
      /** Tells failure from success. */
      readonly deleted: false;
      /** The entry's version; `0n` if there is none. */
      readonly version: bigint;
    };

/** The result of an addition. If not `added`, the counter would have exceeded the limit, or left the range of counters. */
export type AddResult =
  | AddSuccess
  | ({
      /** Tells failure from success. */
      readonly added: false;
    } & CounterState);

/** The result of one operation of a transaction that was committed. */
export type OperationResult<O extends Operation = Operation> = O extends PutOperation
  ? PutSuccess
  : O extends DeleteOperation
    ? DeleteSuccess
    : AddSuccess;

/** The result of a transaction. If it was committed, there is one result for each operation, in their order. */
export type TransactResult<T extends readonly Operation[] = readonly Operation[]> =
  | {
      /** Tells success from failure. */
      readonly committed: true;
      /** One result for each operation, in their order. */
      readonly results: { readonly [I in keyof T]: OperationResult<T[I]> };
    }
  | TransactRejection;

/** No change was made, because of the operation at `index`, from 0. */
export type TransactRejection = {
  /** Tells failure from success. */
  readonly committed: false;
  /** Which operation, from 0. */
  readonly index: number;
} & (
  | {
      /** The entry of a put or a deletion has another version than expected. */
      readonly reason: "conflict";
      /** The entry's version; `0n` if there is none. */
      readonly version: bigint;
    }
  | ({
      /** The counter of an addition would have exceeded the limit. */
      readonly reason: "limit_reached";
    } & CounterState)
);

export function putToWire(put: Omit<PutOperation, "op">): MessageInitShape<typeof wire.PutRequestSchema> {
  const { key, value, expectedVersion, ttlMs } = put;
  return {
    key: checkKey(key),
    value: valueBytes(value),
    expectedVersion: checkVersion(expectedVersion),
    ttlMs: ttlMs === undefined ? undefined : wireTtl(ttlMs),
  };
}

export function deleteToWire({ key, expectedVersion }: Omit<DeleteOperation, "op">): MessageInitShape<typeof wire.DeleteRequestSchema> {
  return { key: checkKey(key), expectedVersion: checkVersion(expectedVersion) };
}

export function addToWire({ key, delta, limit, window }: Omit<AddOperation, "op">): MessageInitShape<typeof wire.AddRequestSchema> {
  return {
    key: checkKey(key),
    delta: wireCounter("delta", delta),
    limit: limit === undefined ? undefined : wireCounter("limit", limit),
    windowMs: window === undefined ? undefined : wireWindow(window),
  };
}

export function operationsToWire(operations: readonly Operation[]): MessageInitShape<typeof wire.OperationSchema>[] {
  if (!Array.isArray(operations)) throw wrongType("operations", "an array of operations", operations);
  for (const [index, operation] of operations.entries()) checkObject(`operations[${index}]`, operation);
  return operations.map(operationToWire);
}

function operationToWire(operation: Operation): MessageInitShape<typeof wire.OperationSchema> {
  switch (operation.op) {
    case "put":
      return { operation: { case: "put", value: putToWire(operation) } };
    case "delete":
      return { operation: { case: "delete", value: deleteToWire(operation) } };
    case "add":
      return { operation: { case: "add", value: addToWire(operation) } };
    default:
      throw HostError.invalid("operations", "each a put, a delete or an add");
  }
}

export function putResult({ result }: wire.PutResponse): PutResult {
  switch (result.case) {
    case "written":
      return { written: true, version: result.value.version };
    case "conflict":
      return { written: false, version: result.value.version };
    default:
      throw HostError.noResult();
  }
}

export function deleteResult({ result }: wire.DeleteResponse): DeleteResult {
  switch (result.case) {
    case "deleted":
      return { deleted: true, existed: result.value.existed };
    case "conflict":
      return { deleted: false, version: result.value.version };
    default:
      throw HostError.noResult();
  }
}

export function addResult({ result }: wire.AddResponse, limit: number | undefined): AddResult {
  switch (result.case) {
    case "added":
      return { added: true, ...counterState(result.value, limit), version: result.value.version };
    case "limitReached":
      return { added: false, ...counterState(result.value, limit) };
    default:
      throw HostError.noResult();
  }
}

export function transactResult<T extends readonly Operation[]>({ result }: wire.TransactResponse, operations: T): TransactResult<T> {
  if (result.case === "rejected") return transactRejection(result.value, operations);
  if (result.case !== "committed" || result.value.results.length !== operations.length) throw HostError.noResult();
  const results = operations.map((operation, index) => operationResult(operation, result.value.results[index]));
  return { committed: true, results } as unknown as TransactResult<T>;
}

function transactRejection({ index, reason }: wire.Rejected, operations: readonly Operation[]): TransactRejection {
  switch (reason.case) {
    case "conflict":
      return { committed: false, index, reason: "conflict", version: reason.value.version };
    case "limitReached": {
      const operation = operations[index];
      const limit = operation?.op === "add" ? operation.limit : undefined;
      return { committed: false, index, reason: "limit_reached", ...counterState(reason.value, limit) };
    }
    default:
      throw HostError.noResult();
  }
}

function operationResult(operation: Operation, answer: wire.OperationResult | undefined): OperationResult {
  const result = answer?.result;
  if (operation.op === "put" && result?.case === "written") return { written: true, version: result.value.version };
  if (operation.op === "delete" && result?.case === "deleted") return { deleted: true, existed: result.value.existed };
  if (operation.op === "add" && result?.case === "added") {
    return { added: true, ...counterState(result.value, operation.limit), version: result.value.version };
  }
  throw HostError.noResult();
}

function counterState({ counter, resetsInMs }: wire.Added | wire.LimitReached, limit: number | undefined): CounterState {
  const value = Number(counter);
  return {
    counter: value,
    ...(limit === undefined ? {} : { remaining: Math.max(0, limit - value) }),
    ...(resetsInMs === undefined ? {} : { resetsInMs: Number(resetsInMs) }),
  };
}

function valueBytes(value: Uint8Array | string): Uint8Array {
  if (typeof value === "string") return new TextEncoder().encode(value);
  if (value instanceof Uint8Array) return value;
  throw wrongType("value", "a Uint8Array or a string", value);
}

function checkVersion(version: bigint | undefined): bigint | undefined {
  if (version === undefined) return undefined;
  if (typeof version !== "bigint") throw wrongType("expectedVersion", "a version that the storage answered, which is a bigint", version);
  if (version >= 0n && version <= MAX_VERSION) return version;
  throw HostError.invalid("expected_version", "a version that the storage answered");
}

function wireCounter(field: string, value: number): bigint {
  if (typeof value !== "number") throw wrongType(field, "a number", value);
  if (Number.isInteger(value) && Math.abs(value) <= MAX_COUNTER) return BigInt(value);
  throw HostError.invalid(field, "a whole number between -2^53 and 2^53");
}
