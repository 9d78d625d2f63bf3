/** The methods of the gateway's services, in memory: a storage with the rules of the real one, and a log and events without limits per second. */
import { type DescMessage, type DescMethod, type Message, type MessageInitShape, type MessageShape, create } from "@bufbuild/protobuf";
import { type Metadata, status } from "@grpc/grpc-js";
import {
  EventService,
  LogService,
  StorageService,
  TokenService,
  type TransactRequest,
  type TransactResponseSchema,
} from "../gen/hookgate/host/v1/host_pb.js";
import { type WrongField, checkEvent, checkRecord } from "../host/record-rules.js";
import type { Capability } from "../point.js";
import { type WireOperation, check, checkKeys, checkOperation, checkOperations } from "./host-rules.js";
import { HostStatus } from "./host-status.js";
import { Memory, type Rejection, type WriteResult } from "./memory.js";
import { type TestEvent, type TestLogLine, recordFromWire } from "./records.js";

/** 2026-01-01T00:00:00Z, in milliseconds since 1970: the beginning of a minute and of a day. */
const START_MS = 1_767_225_600_000;
const TOKEN_LIFE_MS = 24 * 60 * 60 * 1000;
const MAX_RECORDS = 100;
const MAX_PAGE = 100;

/** What a token gives access to. */
export interface TokenScope {
  readonly plugin: string;
  /** Absent for the plugin's own data. */
  readonly tenant?: string | undefined;
  readonly capabilities: readonly Capability[];
}

/** A call that arrived. */
export interface HostCall {
  /** The method's name, such as `GetMany`. */
  readonly method: string;
  readonly metadata: Metadata;
  /** Milliseconds since 1970; Infinity without a deadline. */
  readonly deadline: number;
}

type Handler<I extends DescMessage, O extends DescMessage> = (request: MessageShape<I>, metadata: Metadata) => MessageInitShape<O>;

/** The gateway's services in memory. */
export class HostServices {
  /** Whether the services answer. Otherwise each call fails as if the database didn't answer. */
  isAvailable = true;
  /** The clock, in milliseconds since 1970. */
  now = START_MS;
  /** Runs before each call, and may wait or throw a {@link HostStatus}. */
  onCall: ((call: HostCall) => void | Promise<void>) | undefined;
  /** How many lines of the next requests the log drops. */
  droppedLines = 0;
  /** Run after new log lines. */
  readonly logListeners = new Set<() => void>();
  readonly calls: HostCall[] = [];
  readonly logLines: TestLogLine[] = [];
  readonly events: TestEvent[] = [];
  readonly #storage: Memory;
  readonly #tokens = new Map<string, TokenScope>();
  readonly #handlers = new Map<DescMethod, Handler<DescMessage, DescMessage>>();
  #issued = 0;

  /** @param quotaBytes Maximum bytes of keys and values for a plugin and tenant; a counter counts as 8 bytes. */
  constructor(quotaBytes = Infinity) {
    this.#storage = new Memory(() => this.now, quotaBytes);
    this.#handleReads();
    this.#handleWrites();
    this.#handleRecords();
  }

  /** Answers one call. Throws a {@link HostStatus}. */
  async answer(method: DescMethod, request: Message, { metadata, deadline }: Omit<HostCall, "method">): Promise<Message> {
    const received = { method: method.name, metadata, deadline };
    this.calls.push(received);
    await this.onCall?.(received);
    if (!this.isAvailable) throw new HostStatus(status.UNAVAILABLE, "the test made the services unavailable");
    const handler = this.#handlers.get(method);
    if (handler === undefined) throw new HostStatus(status.UNIMPLEMENTED, `no method ${method.name}`);
    return create(method.output, handler(request, metadata));
  }

  /** A new token. */
  issueToken(scope: TokenScope): string {
    this.#issued += 1;
    const token = `test-token-${this.#issued}`;
    this.#tokens.set(token, scope);
    return token;
  }

  revokeToken(token: string): void {
    this.#tokens.delete(token);
  }

  #handle<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, handler: Handler<I, O>): void {
    this.#handlers.set(method, handler as unknown as Handler<DescMessage, DescMessage>);
  }

  #handleReads(): void {
    const { method } = StorageService;
    this.#handle(method.get, ({ key }, metadata) => {
      const scope = this.#scope(metadata, "storage:read");
      checkKeys([key]);
      return { entry: this.#storage.get(scope, key) };
    });
    this.#handle(method.getMany, ({ keys }, metadata) => {
      const scope = this.#scope(metadata, "storage:read");
      check(keys.length >= 1 && keys.length <= 32, "keys", "1 to 32 keys");
      checkKeys(keys);
      return { entries: keys.flatMap((key) => this.#storage.get(scope, key) ?? []) };
    });
    this.#handle(method.list, (request, metadata) => {
      const scope = this.#scope(metadata, "storage:read");
      check(request.pageSize <= MAX_PAGE, "page_size", "at most 100");
      checkKeys([request.prefix, request.after].filter((key) => key !== ""));
      return this.#storage.list(scope, request);
    });
  }

  #handleWrites(): void {
    const { method } = StorageService;
    this.#handle(method.put, (value, metadata) => ({ result: this.#writeOne(metadata, { case: "put", value }) }) as never);
    this.#handle(method.delete, (value, metadata) => ({ result: this.#writeOne(metadata, { case: "delete", value }) }) as never);
    this.#handle(method.add, (value, metadata) => ({ result: this.#writeOne(metadata, { case: "add", value }) }) as never);
    this.#handle(method.transact, (request, metadata) => this.#transact(request, metadata));
  }

  #writeOne(metadata: Metadata, operation: WireOperation): WriteResult | Rejection["reason"] {
    const scope = this.#scope(metadata, "storage:write");
    checkOperation(operation);
    const outcome = this.#storage.write(scope, [operation]);
    return "rejected" in outcome ? outcome.rejected.reason : (outcome.results[0] as WriteResult);
  }

  #transact({ operations }: TransactRequest, metadata: Metadata): MessageInitShape<typeof TransactResponseSchema> {
    const scope = this.#scope(metadata, "storage:write");
    const outcome = this.#storage.write(scope, checkOperations(operations));
    if ("rejected" in outcome) return { result: { case: "rejected", value: outcome.rejected } };
    return { result: { case: "committed", value: { results: outcome.results.map((result) => ({ result })) } } };
  }

  #handleRecords(): void {
    this.#handle(LogService.method.writeLog, ({ records }, metadata) => {
      const { plugin, tenant } = this.#permitted(metadata, "log");
      check(records.length >= 1 && records.length <= MAX_RECORDS, "records", "1 to 100 lines");
      for (const record of records) rejectWrong(checkRecord(record));
      const dropped = Math.min(this.droppedLines, records.length);
      this.droppedLines -= dropped;
      for (const record of records.slice(0, records.length - dropped)) this.logLines.push(recordFromWire(plugin, tenant, record));
      for (const listener of this.logListeners) listener();
      return { dropped };
    });
    this.#handle(EventService.method.emitEvent, (event, metadata) => {
      const { plugin, tenant } = this.#permitted(metadata, "emit");
      rejectWrong(checkEvent(event));
      this.events.push({ name: event.name, ...recordFromWire(plugin, tenant, event) });
      return {};
    });
    this.#handle(TokenService.method.renewToken, (_, metadata) => {
      return { token: this.issueToken(this.#token(metadata)), expiresInMs: BigInt(TOKEN_LIFE_MS) };
    });
  }

  /** Names the data of the request's token. */
  #scope(metadata: Metadata, capability: Capability): string {
    const { plugin, tenant } = this.#permitted(metadata, capability);
    return JSON.stringify([plugin, tenant]);
  }

  #permitted(metadata: Metadata, capability: Capability): TokenScope {
    const scope = this.#token(metadata);
    if (scope.capabilities.includes(capability)) return scope;
    throw new HostStatus(status.PERMISSION_DENIED, `the plugin lacks the capability \`${capability}\``);
  }

  #token(metadata: Metadata): TokenScope {
    const [header = ""] = metadata.get("authorization");
    const scope = this.#tokens.get(header.toString().replace(/^Bearer /, ""));
    if (scope === undefined) throw new HostStatus(status.PERMISSION_DENIED, "no token of these services");
    return scope;
  }
}

function rejectWrong(wrong: WrongField | undefined): void {
  check(wrong === undefined, wrong?.field ?? "", wrong?.range ?? "");
}
