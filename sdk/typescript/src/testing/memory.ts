/** The entries of a test host: what the storage's methods do, without tokens and sizes. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import type {
  AddRequest,
  DeleteRequest,
  EntrySchema,
  ListRequest,
  ListResponseSchema,
  PutRequest,
} from "../gen/hookgate/host/v1/host_pb.js";
import { MAX_COUNTER, type WireOperation } from "./host-rules.js";
import { HostStatus } from "./host-status.js";

const MAX_PAGE_BYTES = 1 << 20;

interface StoredEntry {
  readonly content: { case: "value"; value: Uint8Array } | { case: "counter"; value: bigint };
  readonly version: bigint;
  readonly expiresAt: number | undefined;
}

type Entries = Map<string, StoredEntry>;

/** What became of one operation. */
export type WriteResult =
  | { case: "written"; value: { version: bigint } }
  | { case: "deleted"; value: { existed: boolean } }
  | { case: "added"; value: { counter: bigint; version: bigint; resetsInMs: bigint | undefined } };

/** Why a write changed nothing. */
export interface Rejection {
  readonly index: number;
  readonly reason:
    | { case: "conflict"; value: { version: bigint } }
    | { case: "limitReached"; value: { counter: bigint; resetsInMs: bigint | undefined } };
}

/** What became of a write. */
export type WriteOutcome = { results: WriteResult[] } | { rejected: Rejection };

/** The entries of all plugins and tenants. */
export class Memory {
  readonly #scopes = new Map<string, Entries>();
  #version = 0n;

  constructor(
    private readonly now: () => number,
    private readonly quotaBytes: number,
  ) {}

  get(scope: string, key: string): MessageInitShape<typeof EntrySchema> | undefined {
    const entry = this.#alive(scope).get(key);
    return entry && this.#toWire(key, entry);
  }

  list(scope: string, { prefix, after, pageSize }: ListRequest): MessageInitShape<typeof ListResponseSchema> {
    const isListed = ([key]: [string, StoredEntry]) => key.startsWith(prefix) && (after === "" || compareKeys(key, after) > 0);
    const found = [...this.#alive(scope)].filter(isListed).sort(([one], [other]) => compareKeys(one, other));
    const entries: MessageInitShape<typeof EntrySchema>[] = [];
    let bytes = 0;
    for (const [key, entry] of found) {
      bytes += sizeOf(key, entry);
      const last = entries.at(-1);
      if (last !== undefined && (entries.length === (pageSize || 100) || bytes > MAX_PAGE_BYTES))
        return { entries, nextAfter: last.key as string };
      entries.push(this.#toWire(key, entry));
    }
    return { entries };
  }

  /** Makes all of the operations or none. */
  write(scope: string, operations: readonly WireOperation[]): WriteOutcome {
    const entries = new Map(this.#alive(scope));
    let version = this.#version;
    const results: WriteResult[] = [];
    for (const [index, operation] of operations.entries()) {
      version += 1n;
      const result = this.#apply(entries, operation, version);
      if (result.case === "conflict" || result.case === "limitReached") return { rejected: { index, reason: result } };
      results.push(result);
    }
    const used = [...entries].reduce((sum, [key, entry]) => sum + sizeOf(key, entry), 0);
    if (used > this.quotaBytes) throw new HostStatus(status.RESOURCE_EXHAUSTED, "the plugin's data for the tenant exceeds its quota");
    this.#version = version;
    this.#scopes.set(scope, entries);
    return { results };
  }

  #apply(entries: Entries, operation: WireOperation, version: bigint): WriteResult | Rejection["reason"] {
    switch (operation.case) {
      case "put":
        return this.#put(entries, operation.value, version);
      case "delete":
        return this.#delete(entries, operation.value);
      case "add":
        return this.#add(entries, operation.value, version);
    }
  }

  #put(entries: Entries, { key, value, expectedVersion, ttlMs }: PutRequest, version: bigint): WriteResult | Rejection["reason"] {
    const actual = entries.get(key)?.version ?? 0n;
    if (expectedVersion !== undefined && expectedVersion !== actual) return { case: "conflict", value: { version: actual } };
    const expiresAt = ttlMs === undefined ? undefined : this.now() + Number(ttlMs);
    entries.set(key, { content: { case: "value", value: new Uint8Array(value) }, version, expiresAt });
    return { case: "written", value: { version } };
  }

  #delete(entries: Entries, { key, expectedVersion }: DeleteRequest): WriteResult | Rejection["reason"] {
    const actual = entries.get(key)?.version ?? 0n;
    if (expectedVersion !== undefined && expectedVersion !== actual) return { case: "conflict", value: { version: actual } };
    return { case: "deleted", value: { existed: entries.delete(key) } };
  }

  #add(entries: Entries, { key, delta, limit, windowMs }: AddRequest, version: bigint): WriteResult | Rejection["reason"] {
    const entry = entries.get(key);
    if (entry?.content.case === "value") throw new HostStatus(status.FAILED_PRECONDITION, `\`${key}\` holds a value`);
    const counter = entry?.content.value ?? 0n;
    const expiresAt = entry === undefined ? this.#windowEnd(windowMs) : entry.expiresAt;
    const resetsInMs = expiresAt === undefined ? undefined : BigInt(expiresAt - this.now());
    const sum = counter + delta;
    if (sum > (limit ?? MAX_COUNTER) || sum > MAX_COUNTER || sum < -MAX_COUNTER)
      return { case: "limitReached", value: { counter, resetsInMs } };
    entries.set(key, { content: { case: "counter", value: sum }, version, expiresAt });
    return { case: "added", value: { counter: sum, version, resetsInMs } };
  }

  #windowEnd(windowMs: bigint | undefined): number | undefined {
    const window = Number(windowMs);
    return windowMs === undefined ? undefined : (Math.floor(this.now() / window) + 1) * window;
  }

  /** The entries that have not expired. */
  #alive(scope: string): Entries {
    const now = this.now();
    const entries = this.#scopes.get(scope) ?? new Map<string, StoredEntry>();
    for (const [key, { expiresAt = Infinity }] of entries) if (expiresAt <= now) entries.delete(key);
    this.#scopes.set(scope, entries);
    return entries;
  }

  #toWire(key: string, { content, version, expiresAt }: StoredEntry): MessageInitShape<typeof EntrySchema> {
    return { key, content, version, expiresInMs: expiresAt === undefined ? undefined : BigInt(expiresAt - this.now()) };
  }
}

function compareKeys(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}

/** A counter counts as 8 bytes. */
function sizeOf(key: string, { content }: StoredEntry): number {
  return Buffer.byteLength(key) + (content.case === "value" ? content.value.length : 8);
}
