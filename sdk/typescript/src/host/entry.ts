/** What the storage holds. */
import type { Entry as WireEntry } from "../gen/hookgate/host/v1/host_pb.js";
import { type JsonValue, parseJson } from "../json.js";

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** An entry of the storage: a value or a counter, which `kind` tells apart. */
export type Entry = ValueEntry | CounterEntry;

/** What every entry has. */
abstract class StoredEntry {
  /** 1 to 512 bytes, no control characters. */
  readonly key: string;
  /** Changes with every write of the key, and never returns to an earlier number. At least 1. */
  readonly version: bigint;
  /** Milliseconds until the entry expires; `undefined` if it never does. */
  readonly expiresInMs: number | undefined;

  constructor(key: string, version: bigint, expiresInMs: number | undefined) {
    this.key = key;
    this.version = version;
    this.expiresInMs = expiresInMs;
  }
}

/** An entry that a put wrote. */
export class ValueEntry extends StoredEntry {
  /** Tells a value from a counter. */
  readonly kind = "value";
  /** At most 64 KiB. */
  readonly value: Uint8Array;

  /** @internal */
  constructor(key: string, value: Uint8Array, version: bigint, expiresInMs?: number) {
    super(key, version, expiresInMs);
    this.value = value;
  }

  /** The value as text. Bytes that are not UTF-8 become U+FFFD. */
  text(): string {
    return decoder.decode(this.value);
  }

  /**
   * The value as JSON. An integer beyond 2^53 is a BigInt.
   *
   * @throws {JsonError} If it isn't JSON.
   */
  json(): JsonValue {
    return parseJson(this.value);
  }
}

/** An entry that an addition wrote. */
export class CounterEntry extends StoredEntry {
  /** Tells a counter from a value. */
  readonly kind = "counter";
  /** Between -2^53 and 2^53. */
  readonly counter: number;

  /** @internal */
  constructor(key: string, counter: number, version: bigint, expiresInMs?: number) {
    super(key, version, expiresInMs);
    this.counter = counter;
  }
}

/** Entries in the order of their keys' bytes. */
export interface Page {
  /** At most 100. */
  readonly entries: Entry[];
  /** Pass it as `after` for the next page; `undefined` if this is the last one. */
  readonly nextAfter: string | undefined;
}

export function entryFromWire({ key, content, version, expiresInMs }: WireEntry): Entry {
  const expires = expiresInMs === undefined ? undefined : Number(expiresInMs);
  if (content.case === "counter") return new CounterEntry(key, Number(content.value), version, expires);
  // A copy: the message's bytes are a part of the whole answer, which one small value would keep in memory.
  return new ValueEntry(key, new Uint8Array(content.value ?? []), version, expires);
}
