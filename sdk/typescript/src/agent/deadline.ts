/** When a caller stops waiting. */

/** Aborts its signal after a time, or together with a caller's signal. Close it, or its timer keeps the process alive. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #end: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #caller: AbortSignal | undefined;

  /** @param timeoutMs More than 0 and at most 2^31 - 1. */
  constructor(timeoutMs: number, caller: AbortSignal | undefined) {
    this.#end = performance.now() + timeoutMs;
    this.#timer = setTimeout(this.#abort, timeoutMs);
    this.#caller = caller;
    if (caller?.aborted) this.#abort();
    else if (caller !== undefined) addListener(caller, this.#abort);
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
    if (this.#caller !== undefined) removeListener(this.#caller, this.#abort);
  }

  readonly #abort = () => this.#controller.abort();
}

/**
 * Whom a signal tells. Node warns of a leak when a signal has more than ten listeners, and a run may make more calls than
 * that at the same time. So each signal has one listener, which tells them all.
 */
const listeners = new WeakMap<EventTarget, Set<() => void>>();

function addListener(signal: AbortSignal, listener: () => void): void {
  const others = listeners.get(signal);
  if (others !== undefined) {
    others.add(listener);
    return;
  }
  listeners.set(signal, new Set([listener]));
  signal.addEventListener("abort", tellAll);
}

function removeListener(signal: AbortSignal, listener: () => void): void {
  const remaining = listeners.get(signal);
  remaining?.delete(listener);
  if (remaining?.size !== 0) return;
  listeners.delete(signal);
  signal.removeEventListener("abort", tellAll);
}

function tellAll({ target }: Event): void {
  for (const listener of listeners.get(target as AbortSignal) ?? []) listener();
}
