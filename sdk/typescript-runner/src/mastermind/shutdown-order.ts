/** Shuts plugins down one after another, the last one first, although the SDK asks all of them at the same time. */
import { stderrLogger } from "@hookgate/sdk";

/** How long a plugin has for its shutdown. After that the others don't wait for it any more. */
const MAX_SHUTDOWN_MS = 5000;

interface PendingShutdown {
  readonly order: number;
  readonly plugin: string;
  run(): Promise<void>;
  done(): void;
}

/** The shutdowns that wait for their turn. */
export class ShutdownOrder {
  #pending: PendingShutdown[] = [];
  #isRunning = false;

  constructor(readonly maxMs = MAX_SHUTDOWN_MS) {}

  /** Waits until all later plugins that are shut down too have been, or took too long. Never rejects. */
  shutDown(order: number, plugin: string, run: () => Promise<void>): Promise<void> {
    return new Promise((done) => {
      this.#pending.push({ order, plugin, run, done });
      if (this.#isRunning) return;
      this.#isRunning = true;
      // Later, when the SDK has asked all of them.
      setImmediate(() => void this.#runAll());
    });
  }

  async #runAll(): Promise<void> {
    while (this.#pending.length > 0) {
      this.#pending.sort((one, other) => other.order - one.order);
      const next = this.#pending.shift() as PendingShutdown;
      await this.#run(next);
      next.done();
    }
    this.#isRunning = false;
  }

  async #run({ plugin, run }: PendingShutdown): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const tooLong = new Promise<void>((resolve) => {
      timer = setTimeout(() => {
        stderrLogger.warn("the plugin's `onShutdown` takes too long: the others go on without it", { plugin, ms: this.maxMs });
        resolve();
      }, this.maxMs);
    });
    await Promise.race([run().catch(() => {}), tooLong]);
    clearTimeout(timer);
  }
}
