/** Shuts plugins down one after another, the last one first, although the SDK asks all of them at the same time. */
interface PendingShutdown {
  readonly order: number;
  run(): Promise<void>;
  done(): void;
}

/** The shutdowns that wait for their turn. */
export class ShutdownOrder {
  #pending: PendingShutdown[] = [];
  #isRunning = false;

  /** Waits until all later plugins that are shut down too have been. Never rejects. */
  shutDown(order: number, run: () => Promise<void>): Promise<void> {
    return new Promise((done) => {
      this.#pending.push({ order, run, done });
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
      await next.run().catch(() => {});
      next.done();
    }
    this.#isRunning = false;
  }
}
