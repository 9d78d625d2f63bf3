/** A map that forgets what nobody used for the longest time, so that state of a plugin can't fill the memory. */

interface Slot<V> {
  readonly value: V;
  usedAt: number;
}

/** A map of at most `maxSize` entries, each of which is dropped after `maxIdleMs` without use. */
export class BoundedMap<K, V> {
  /** In the order of their last use. */
  readonly #slots = new Map<K, Slot<V>>();

  constructor(
    readonly maxSize: number,
    readonly maxIdleMs: number,
    /** Called for entries that are dropped, not for those that `take` removes. */
    readonly onDrop: (value: V) => void = () => {},
    readonly now: () => number = Date.now,
  ) {}

  get size(): number {
    return this.#slots.size;
  }

  get(key: K): V | undefined {
    this.#dropIdle();
    const slot = this.#slots.get(key);
    if (slot === undefined) return undefined;
    slot.usedAt = this.now();
    this.#slots.delete(key);
    this.#slots.set(key, slot);
    return slot.value;
  }

  set(key: K, value: V): void {
    this.#dropIdle();
    this.#drop(key);
    if (this.#slots.size >= this.maxSize) this.#drop(this.#slots.keys().next().value as K);
    this.#slots.set(key, { value, usedAt: this.now() });
  }

  /** Removes an entry and returns it. */
  take(key: K): V | undefined {
    const value = this.get(key);
    this.#slots.delete(key);
    return value;
  }

  /** Drops all entries. */
  clear(): void {
    for (const key of [...this.#slots.keys()]) this.#drop(key);
  }

  #drop(key: K): void {
    const slot = this.#slots.get(key);
    if (slot === undefined) return;
    this.#slots.delete(key);
    this.onDrop(slot.value);
  }

  #dropIdle(): void {
    const oldest = this.now() - this.maxIdleMs;
    for (const [key, slot] of this.#slots) {
      if (slot.usedAt > oldest) return;
      this.#drop(key);
    }
  }
}
