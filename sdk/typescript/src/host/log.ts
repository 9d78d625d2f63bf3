/** Lines in the gateway's log. They are sent in the background, so no call waits for them. */
import { LogService, Severity } from "../gen/hookgate/host/v1/host_pb.js";
import type { HostClient } from "./client.js";
import { type Attributes, attributesToWire, checkRecord, truncate } from "./record-rules.js";

/** Maximum number of lines that wait to be sent. Further ones are dropped. */
const MAX_QUEUED = 1000;
/** Maximum number of lines of one request. */
const MAX_BATCH = 100;
/** The gateway cuts messages and values there. */
const MAX_MESSAGE_BYTES = 8 << 10;
const MAX_VALUE_BYTES = 1 << 10;

interface LogLine {
  readonly severity: Severity;
  readonly message: string;
  readonly attributes: { readonly [name: string]: string };
}

/** Someone who waits for lines to be sent. */
interface FlushWaiter {
  /** How many lines have to be sent or lost. */
  readonly lines: number;
  resolve(): void;
}

/**
 * Writes lines to the gateway's log. Each line names the plugin; those of a call also name its tenant and request id. The plugin needs the
 * capability `log`.
 *
 * Lines are sent in the background, in their order, and no method throws. A line that can't be sent is lost, and the process's own log says
 * so. Never log secrets or payloads.
 *
 * ```ts
 * ctx.log.warn("the budget is used", { tokens: 1200 });
 * ```
 */
export class Log {
  readonly #client: HostClient;
  #queue: LogLine[] = [];
  /** Lines that found no room since the last batch. */
  #dropped = 0;
  /** Lines that were ever queued, and those of them that were sent or lost. */
  #queuedLines = 0;
  #settledLines = 0;
  #isSending = false;
  #waiters: FlushWaiter[] = [];

  /** @internal Writes with the permission that `client` has. */
  constructor(client: HostClient) {
    // A line may be sent after the plugin's call has ended. Its token is valid for 5 s more.
    this.#client = client.withoutDeadline();
  }

  /** Writes a line for finding a mistake in the plugin. The gateway writes it if its `log.level` is `debug` or `trace`. */
  debug(message: string, attributes?: Attributes): void {
    this.#record(Severity.DEBUG, message, attributes);
  }

  /** Writes a line about something normal. */
  info(message: string, attributes?: Attributes): void {
    this.#record(Severity.INFO, message, attributes);
  }

  /** Writes a line about something that somebody should look at. */
  warn(message: string, attributes?: Attributes): void {
    this.#record(Severity.WARN, message, attributes);
  }

  /** Writes a line about something that the plugin failed to do. */
  error(message: string, attributes?: Attributes): void {
    this.#record(Severity.ERROR, message, attributes);
  }

  /** Waits until all lines so far are sent or lost. Never rejects. */
  flush(): Promise<void> {
    const lines = this.#queuedLines;
    if (this.#settledLines >= lines) return Promise.resolve();
    return new Promise((resolve) => this.#waiters.push({ lines, resolve }));
  }

  #record(severity: Severity, message: string, attributes: Attributes | undefined): void {
    try {
      const line = { severity, message: String(message).toWellFormed(), attributes: attributesToWire(attributes) };
      // The gateway refuses all lines of a request if one is invalid.
      const wrong = checkRecord(line);
      if (wrong === undefined) this.#push(cutLine(line));
      else this.#client.logger.warn("an invalid line for the gateway's log was dropped", { field: wrong.field, right: wrong.range });
    } catch (error) {
      // For example an attribute whose toString throws.
      this.#client.logger.warn("an invalid line for the gateway's log was dropped", { error });
    }
  }

  #push(line: LogLine): void {
    if (this.#queue.length >= MAX_QUEUED) {
      this.#dropped += 1;
      return;
    }
    this.#queue.push(line);
    this.#queuedLines += 1;
    if (this.#isSending) return;
    this.#isSending = true;
    // A plugin may log while it is shut down.
    const release = this.#client.hold();
    // Later, so that the lines of one turn of the event loop share a request.
    setImmediate(() => void this.#send(release));
  }

  /** Sends lines until none are left. */
  async #send(release: () => void): Promise<void> {
    while (this.#queue.length > 0) {
      const lines = this.#queue.splice(0, MAX_BATCH);
      this.#reportDropped();
      await this.#sendBatch(lines);
      this.#settledLines += lines.length;
      const isDone = (waiter: FlushWaiter) => waiter.lines <= this.#settledLines;
      for (const waiter of this.#waiters.filter(isDone)) waiter.resolve();
      this.#waiters = this.#waiters.filter((waiter) => !isDone(waiter));
    }
    this.#isSending = false;
    release();
  }

  async #sendBatch(records: LogLine[]): Promise<void> {
    const { logger } = this.#client;
    try {
      const { dropped } = await this.#client.call(LogService.method.writeLog, { records });
      if (dropped > 0) logger.warn("the gateway dropped lines for its log: too many in a second", { lines: dropped });
    } catch (error) {
      logger.warn("lines for the gateway's log were lost", { lines: records.length, error: (error as Error).message });
    }
  }

  #reportDropped(): void {
    if (this.#dropped === 0) return;
    this.#client.logger.warn("lines for the gateway's log were dropped: too many wait", { lines: this.#dropped });
    this.#dropped = 0;
  }
}

function cutLine({ severity, message, attributes }: LogLine): LogLine {
  const values = Object.entries(attributes).map(([name, value]) => [name, truncate(value, MAX_VALUE_BYTES)]);
  return { severity, message: truncate(message, MAX_MESSAGE_BYTES), attributes: Object.fromEntries(values) };
}
