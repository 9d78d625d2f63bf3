/** Data of the plugin, kept by the gateway in its database: all replicas share it and it survives restarts. */
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { StorageService } from "../gen/hookgate/host/v1/host_pb.js";
import { type JsonValue, writeJsonBytes } from "../json.js";
import { checkObject, wrongType } from "./argument.js";
import type { AbortOptions, HostClient } from "./client.js";
import type { UnaryMethod } from "./connection.js";
import { type Entry, type Page, entryFromWire } from "./entry.js";
import { HostError } from "./errors.js";
import { checkKey, checkKeys } from "./key.js";
import {
  type AddOptions,
  type AddResult,
  type DeleteOptions,
  type DeleteResult,
  type Operation,
  type PutOptions,
  type PutResult,
  type TransactResult,
  addResult,
  addToWire,
  deleteResult,
  deleteToWire,
  operationsToWire,
  putResult,
  putToWire,
  transactResult,
} from "./operation.js";

const { method } = StorageService;
const MAX_PAGE_SIZE = 100;

/** Which entries are listed. */
export interface ListOptions {
  /** Keys begin with this. By default all. */
  readonly prefix?: string | undefined;
  /** Keys after this one. By default from the first on. */
  readonly after?: string | undefined;
  /** Maximum entries per page, 1 to 100. The default is 100. */
  readonly pageSize?: number | undefined;
}

/**
 * A plugin's data, for one tenant or its own. No plugin can read the data of another one. The plugin needs the capability `storage:read`
 * to get and list, and `storage:write` for the other methods.
 *
 * Every method rejects with a `HostError`, and with a `TypeError` if an argument has a wrong type. A call ends after the time that the
 * plugin's own call has left, and after at most 5 s.
 *
 * ```ts
 * // Whether the tenant may make another request in this minute.
 * const { added } = await ctx.storage.add("requests", 1, { limit: 60, window: "minute" });
 * ```
 */
export class Storage {
  readonly #client: HostClient;

  /** @internal The data that `client` has access to. */
  constructor(client: HostClient) {
    this.#client = client;
  }

  /** Reads an entry; `undefined` if there is none. */
  async get(key: string, options?: AbortOptions): Promise<Entry | undefined> {
    const { entry } = await this.#call(method.get, { key: checkKey(key) }, options);
    return entry && entryFromWire(entry);
  }

  /**
   * Reads a value as JSON; `undefined` if there is no entry. A counter is its number, and an integer beyond 2^53 is a BigInt. To know the
   * version too, use {@link get}.
   *
   * @throws {JsonError} If the value isn't JSON.
   */
  async getJson(key: string, options?: AbortOptions): Promise<JsonValue | undefined> {
    const entry = await this.get(key, options);
    return entry?.kind === "counter" ? entry.counter : entry?.json();
  }

  /** Reads the entries of 1 to 32 keys as of one moment: those that exist, in the order of the keys. */
  async getMany(keys: readonly string[], options?: AbortOptions): Promise<Entry[]> {
    const { entries } = await this.#call(method.getMany, { keys: checkKeys(keys) }, options);
    return entries.map(entryFromWire);
  }

  /**
   * Reads entries in the order of their keys' bytes. It reads page after page while the loop goes on; each page is as of its own moment.
   *
   * ```ts
   * for await (const entry of ctx.storage.list({ prefix: "failures/" })) { ... }
   * ```
   */
  async *list(options: ListOptions & AbortOptions = {}): AsyncGenerator<Entry, void, undefined> {
    checkObject("options", options);
    let { after } = options;
    do {
      const page = await this.listPage({ ...options, after });
      yield* page.entries;
      after = page.nextAfter;
    } while (after !== undefined);
  }

  /** Reads one page of entries in the order of their keys' bytes. A page ends early at 1 MiB. */
  async listPage(listOptions: ListOptions & AbortOptions = {}): Promise<Page> {
    checkObject("options", listOptions);
    const { prefix = "", after = "", pageSize = MAX_PAGE_SIZE, ...options } = listOptions;
    if (typeof pageSize !== "number") throw wrongType("pageSize", "a number from 1 to 100", pageSize);
    if (!Number.isInteger(pageSize) || pageSize < 1 || pageSize > MAX_PAGE_SIZE) throw HostError.invalid("page_size", "1 to 100");
    const request = { prefix: checkKey(prefix, "prefix"), after: checkKey(after, "after"), pageSize };
    const { entries, nextAfter } = await this.#call(method.list, request, options);
    return { entries: entries.map(entryFromWire), nextAfter: nextAfter === "" ? undefined : nextAfter };
  }

  /**
   * Writes a value, also in place of a counter.
   *
   * @param key 1 to 512 bytes, no control characters.
   * @param value At most 64 KiB. A text is written as UTF-8.
   */
  async put(key: string, value: Uint8Array | string, options: PutOptions & AbortOptions = {}): Promise<PutResult> {
    checkObject("options", options);
    return putResult(await this.#call(method.put, putToWire({ ...options, key, value }), options));
  }

  /**
   * Writes a value as JSON, at most 64 KiB.
   *
   * @throws {JsonError} If the value has no JSON form.
   */
  async putJson(key: string, value: unknown, options: PutOptions & AbortOptions = {}): Promise<PutResult> {
    return this.put(key, writeJsonBytes(value), options);
  }

  /** Deletes an entry. */
  async delete(key: string, options: DeleteOptions & AbortOptions = {}): Promise<DeleteResult> {
    checkObject("options", options);
    return deleteResult(await this.#call(method.delete, deleteToWire({ ...options, key }), options));
  }

  /**
   * Adds to a counter, atomically among all replicas. A counter that doesn't exist is 0.
   *
   * @param delta A whole number between -2^53 and 2^53; may be negative, or 0.
   */
  async add(key: string, delta: number, options: AddOptions & AbortOptions = {}): Promise<AddResult> {
    checkObject("options", options);
    return addResult(await this.#call(method.add, addToWire({ ...options, key, delta }), options), options.limit);
  }

  /**
   * Makes 1 to 32 changes, each of another key: all, or none.
   *
   * ```ts
   * const { committed } = await ctx.storage.transact([
   *   { op: "add", key: "seats", delta: 1, limit: 10 },
   *   { op: "put", key: "last", value: "Ada" },
   * ]);
   * ```
   */
  async transact<const T extends readonly Operation[]>(operations: T, options?: AbortOptions): Promise<TransactResult<T>> {
    const request = { operations: operationsToWire(operations) };
    return transactResult(await this.#call(method.transact, request, options), operations);
  }

  #call<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageInitShape<I>,
    options: AbortOptions | undefined,
  ): Promise<MessageShape<O>> {
    return this.#client.call(method, request, options);
  }
}
