/**
 * Whom a signal tells. Node warns of a leak when a signal has more than ten listeners, and a run may make more calls than that at the same
 * time. So each signal has one listener, which tells them all.
 */
const listeners = new WeakMap<EventTarget, Set<() => void>>();

/**
 * Calls the listener when the signal aborts. Does nothing if it is aborted already.
 *
 * @param listener Each call needs a function of its own.
 * @returns Stops listening.
 */
export function listenForAbort(signal: AbortSignal, listener: () => void): () => void {
  const others = listeners.get(signal);
  if (others !== undefined) others.add(listener);
  else {
    listeners.set(signal, new Set([listener]));
    signal.addEventListener("abort", tellAll);
  }
  return () => removeListener(signal, listener);
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
