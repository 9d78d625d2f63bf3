/** When a caller stops waiting. */
import { listenForAbort } from "../abort-listeners.js";

/** Aborts its signal after a time, or together with a caller's signal. Close it, or its timer keeps the process alive. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #end: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #stopListening: (() => void) | undefined;

  /** @param timeoutMs More than 0 and at most 2^31 - 1. */
  constructor(timeoutMs: number, caller: AbortSignal | undefined) {
    this.#end = performance.now() + timeoutMs;
    this.#timer = setTimeout(this.#abort, timeoutMs);
    if (caller?.aborted) this.#abort();
    else if (caller !== undefined) this.#stopListening = listenForAbort(caller, this.#abort);
  }

  /** Aborted when the caller stops waiting. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Milliseconds until then, at least 0. */
  get leftMs(): number {
    return Math.max(0, this.#end - performance.now());
  }

  /** What the promise resolves to. Rejects if the caller stops waiting before. */
  race<T>(promise: Promise<T>): Promise<T> {
    const { signal } = this;
    return new Promise((resolve, reject) => {
      const abort = () => reject(signal.reason);
      if (signal.aborted) abort();
      signal.addEventListener("abort", abort, { once: true });
      promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
    });
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#stopListening?.();
  }

  readonly #abort = () => this.#controller.abort();
}
