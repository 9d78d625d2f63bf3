/**
 * Details of a gRPC error: the `google.rpc.Status` in its trailing metadata.
 *
 * It reads the three messages that the gateway sends, so that no generated code of googleapis is needed.
 */
import { BinaryReader } from "@bufbuild/protobuf/wire";
import type { Metadata } from "@grpc/grpc-js";

/** What the details of a status say. */
export interface StatusDetails {
  /** Why, for programs (`google.rpc.ErrorInfo`). */
  errorInfo?: ErrorInfo;
  /** When to try again (`google.rpc.RetryInfo`). */
  retryInfo?: RetryInfo;
  /** Fields of the request that are wrong (`google.rpc.BadRequest`). */
  badRequest?: FieldViolation[];
  /** Details of other types, in their order. */
  others: { typeUrl: string; value: Uint8Array }[];
}

/** Why a call failed, for programs. */
export interface ErrorInfo {
  reason: string;
  domain: string;
  metadata: Record<string, string>;
}

/** When to try again. */
export interface RetryInfo {
  /** Milliseconds to wait, at least 0. */
  retryDelayMs: number;
}

/** A field of a request that is wrong. */
export interface FieldViolation {
  field: string;
  description: string;
}

const KEY = "grpc-status-details-bin";
const TYPE_PREFIX = "type.googleapis.com/";

/**
 * The details of an error of grpc-js. An error without details has none, nor has one whose details are malformed: its
 * code and message are still worth reading.
 */
export function statusDetails(error: { readonly metadata?: Metadata }): StatusDetails {
  const [bytes] = error.metadata?.get(KEY) ?? [];
  if (!(bytes instanceof Uint8Array)) return { others: [] };
  try {
    return readStatus(bytes);
  } catch {
    return { others: [] };
  }
}

function readStatus(bytes: Uint8Array): StatusDetails {
  const details: StatusDetails = { others: [] };
  readFields(bytes, { 3: (reader) => readDetail(reader.bytes(), details) });
  return details;
}

function readDetail(bytes: Uint8Array, details: StatusDetails): void {
  let typeUrl = "";
  let value: Uint8Array = new Uint8Array();
  readFields(bytes, {
    1: (reader) => (typeUrl = reader.string()),
    2: (reader) => (value = reader.bytes()),
  });
  switch (typeUrl) {
    case `${TYPE_PREFIX}google.rpc.ErrorInfo`:
      details.errorInfo = readErrorInfo(value);
      break;
    case `${TYPE_PREFIX}google.rpc.RetryInfo`:
      details.retryInfo = readRetryInfo(value);
      break;
    case `${TYPE_PREFIX}google.rpc.BadRequest`:
      details.badRequest = readBadRequest(value);
      break;
    default:
      details.others.push({ typeUrl, value });
  }
}

function readErrorInfo(bytes: Uint8Array): ErrorInfo {
  let reason = "";
  let domain = "";
  const metadata: [string, string][] = [];
  readFields(bytes, {
    1: (reader) => (reason = reader.string()),
    2: (reader) => (domain = reader.string()),
    3: (reader) => metadata.push(readPair(reader.bytes())),
  });
  return { reason, domain, metadata: Object.fromEntries(metadata) };
}

function readRetryInfo(bytes: Uint8Array): RetryInfo {
  let retryDelayMs = 0;
  readFields(bytes, { 1: (reader) => (retryDelayMs = Math.max(0, readDuration(reader.bytes()))) });
  return { retryDelayMs };
}

/** A `google.protobuf.Duration` in milliseconds, rounded up, so that nobody returns too early. */
function readDuration(bytes: Uint8Array): number {
  let seconds = 0;
  let nanos = 0;
  readFields(bytes, {
    1: (reader) => (seconds = Number(reader.int64())),
    2: (reader) => (nanos = reader.int32()),
  });
  return seconds * 1000 + Math.ceil(nanos / 1_000_000);
}

function readBadRequest(bytes: Uint8Array): FieldViolation[] {
  const violations: FieldViolation[] = [];
  readFields(bytes, {
    1: (reader) => {
      const [field, description] = readPair(reader.bytes());
      violations.push({ field, description });
    },
  });
  return violations;
}

/** A message whose fields 1 and 2 are strings, such as an entry of a map. */
function readPair(bytes: Uint8Array): [string, string] {
  const pair: [string, string] = ["", ""];
  readFields(bytes, {
    1: (reader) => (pair[0] = reader.string()),
    2: (reader) => (pair[1] = reader.string()),
  });
  return pair;
}

/** Reads a message field by field, and skips the fields that `readers` doesn't name. */
function readFields(bytes: Uint8Array, readers: Record<number, (reader: BinaryReader) => unknown>): void {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [fieldNumber, wireType] = reader.tag();
    const read = readers[fieldNumber];
    if (read) read(reader);
    else reader.skip(wireType, fieldNumber);
  }
}
