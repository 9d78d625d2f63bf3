/** The gateway's services in memory, for tests of plugins. */
import { HostClient, HostLinks, Storage } from "../host/index.js";
import type { Capability } from "../point.js";
import { HostServices } from "./host-services.js";
import { InProcessConnection } from "./in-process.js";
import type { TestEvent, TestLogLine } from "./records.js";

/** How long a test waits for log lines. */
const MAX_WAIT_MS = 5_000;

const STORAGE: readonly Capability[] = ["storage:read", "storage:write"];

/** What a test host is made with. */
export interface TestHostOptions {
  /** Maximum bytes of keys and values for a plugin and tenant; a counter counts as 8 bytes. By default there is no quota. */
  readonly quotaBytes?: number;
}

/**
 * The gateway's services in memory: a storage with the rules of the real one, and a log and events without limits per second. Several
 * {@link TestPlugin}s with one host are like replicas.
 *
 * Its clock starts at 2026-01-01T00:00:00Z, so at the beginning of a minute and of a day, and stands still until {@link advance}.
 */
export class TestHost {
  /** @internal */
  readonly services: HostServices;

  constructor({ quotaBytes }: TestHostOptions = {}) {
    this.services = new HostServices(quotaBytes);
  }

  /** What its clock shows. */
  get now(): Date {
    return new Date(this.services.now);
  }

  /** Moves its clock on by this many milliseconds: entries expire, and windows end. */
  advance(ms: number): void {
    this.services.now += ms;
  }

  /** Makes the services unavailable, or available again. Meanwhile each call fails as if the database didn't answer. */
  setAvailable(isAvailable: boolean): void {
    this.services.isAvailable = isAvailable;
  }

  /** A plugin's data, for a test to prepare or to read: for a tenant, or without one the plugin's own. */
  storageOf(plugin: string, tenant?: string): Storage {
    const links = new HostLinks(undefined, () => new InProcessConnection(this.services));
    links.add({ gateway: "test", endpoint: "test", token: "" });
    return new Storage(HostClient.forCall(links, { token: this.services.issueToken({ plugin, tenant, capabilities: STORAGE }) }));
  }

  /** The events so far. */
  get events(): readonly TestEvent[] {
    return this.services.events;
  }

  /**
   * The lines in the log so far, at least `count`. Lines are sent in the background, so it waits for them, at most 5 s.
   *
   * @throws If there are fewer lines by then.
   */
  async logLines(count = 0): Promise<readonly TestLogLine[]> {
    const { logLines } = this.services;
    if (logLines.length < count) await this.#waitForLines(count);
    return [...logLines];
  }

  async #waitForLines(count: number): Promise<void> {
    const { logLines, logListeners } = this.services;
    let timer: NodeJS.Timeout | undefined;
    let listener = () => {};
    try {
      await new Promise<void>((resolve, reject) => {
        const tooFew = () => reject(new Error(`the log has ${logLines.length} lines after ${MAX_WAIT_MS / 1000} s, not ${count}`));
        timer = setTimeout(tooFew, MAX_WAIT_MS);
        listener = () => {
          if (logLines.length >= count) resolve();
        };
        logListeners.add(listener);
      });
    } finally {
      clearTimeout(timer);
      logListeners.delete(listener);
    }
  }
}
