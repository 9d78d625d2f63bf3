/** State of many tenants within limits: no tenant can fill the memory, or push out what another one keeps. */

interface Slot<V> {
  readonly value: V;
  readonly bytes: number;
  usedAt: number;
}

/** The entries of one tenant, in the order of their last use. */
interface Share<V> {
  readonly slots: Map<string, Slot<V>>;
  bytes: number;
}

/** What a map may hold. */
export interface Limits {
  /** Most entries of all tenants together. */
  readonly maxSize: number;
  /** An entry that nobody used for so long is dropped. */
  readonly maxIdleMs: number;
  /** Most bytes of all tenants together. */
  readonly maxBytes?: number;
  /** Most bytes of one tenant. */
  readonly maxTenantBytes?: number;
}

/** Longest time between two looks for idle entries. */
const MAX_SWEEP_MS = 60_000;

/** Entries by tenant and key. When it is full, the tenant that has the most loses the one that it didn't use for the longest. */
export class TenantMap<V> {
  readonly #shares = new Map<string, Share<V>>();
  #size = 0;
  #bytes = 0;
  #sweep: NodeJS.Timeout | undefined;

  constructor(
    readonly limits: Limits,
    /** Called for entries that are dropped, not for those that `take` removes. */
    readonly onDrop: (value: V) => void = () => {},
    readonly now: () => number = Date.now,
  ) {}

  get size(): number {
    return this.#size;
  }

  get(tenant: string, key: string): V | undefined {
    const share = this.#shares.get(tenant);
    const slot = share?.slots.get(key);
    if (share === undefined || slot === undefined) return undefined;
    if (slot.usedAt <= this.now() - this.limits.maxIdleMs) {
      this.#drop(tenant, key);
      return undefined;
    }
    slot.usedAt = this.now();
    share.slots.delete(key);
    share.slots.set(key, slot);
    return slot.value;
  }

  /** @param bytes About how much memory the value takes. One that is larger than a tenant's share is dropped at once. */
  set(tenant: string, key: string, value: V, bytes = 0): void {
    this.#drop(tenant, key);
    const { maxSize, maxBytes = Infinity, maxTenantBytes = Infinity } = this.limits;
    if (bytes > Math.min(maxBytes, maxTenantBytes)) {
      this.onDrop(value);
      return;
    }
    const share = this.#shares.get(tenant) ?? { slots: new Map(), bytes: 0 };
    this.#shares.set(tenant, share);
    share.slots.set(key, { value, bytes, usedAt: this.now() });
    share.bytes += bytes;
    this.#size += 1;
    this.#bytes += bytes;
    while (share.bytes > maxTenantBytes) this.#dropOldest(tenant);
    while (this.#size > maxSize) this.#dropOldest(this.#largest(({ slots }) => slots.size));
    while (this.#bytes > maxBytes) this.#dropOldest(this.#largest((other) => other.bytes));
    this.#startSweep();
  }

  /** Removes an entry and returns it. */
  take(tenant: string, key: string): V | undefined {
    const value = this.get(tenant, key);
    this.#remove(tenant, key);
    return value;
  }

  /** Drops an entry, if there is one. */
  drop(tenant: string, key: string): void {
    this.#drop(tenant, key);
  }

  /** Drops all entries. */
  clear(): void {
    for (const [tenant, { slots }] of [...this.#shares]) for (const key of [...slots.keys()]) this.#drop(tenant, key);
  }

  /** Drops the entries that nobody used for too long. A timer does that too. */
  dropIdle(): void {
    const oldest = this.now() - this.limits.maxIdleMs;
    for (const [tenant, { slots }] of [...this.#shares]) {
      for (const [key, { usedAt }] of slots) {
        if (usedAt > oldest) break;
        this.#drop(tenant, key);
      }
    }
  }

  /** The tenant with the most. Of several, the one whose oldest entry was unused for the longest. */
  #largest(amountOf: (share: Share<V>) => number): string {
    let largest = "";
    let most = -1;
    let since = Infinity;
    for (const [tenant, share] of this.#shares) {
      const amount = amountOf(share);
      const usedAt = share.slots.values().next().value?.usedAt ?? Infinity;
      if (amount < most || (amount === most && usedAt >= since)) continue;
      [largest, most, since] = [tenant, amount, usedAt];
    }
    return largest;
  }

  #dropOldest(tenant: string): void {
    const key = this.#shares.get(tenant)?.slots.keys().next().value;
    if (key !== undefined) this.#drop(tenant, key);
  }

  #drop(tenant: string, key: string): void {
    const slot = this.#remove(tenant, key);
    if (slot !== undefined) this.onDrop(slot.value);
  }

  #remove(tenant: string, key: string): Slot<V> | undefined {
    const share = this.#shares.get(tenant);
    const slot = share?.slots.get(key);
    if (share === undefined || slot === undefined) return undefined;
    share.slots.delete(key);
    share.bytes -= slot.bytes;
    this.#size -= 1;
    this.#bytes -= slot.bytes;
    if (share.slots.size === 0) this.#shares.delete(tenant);
    if (this.#size === 0) this.#endSweep();
    return slot;
  }

  /** The timer doesn't keep the process alive. */
  #startSweep(): void {
    if (this.#sweep !== undefined || this.#size === 0 || this.limits.maxIdleMs === Infinity) return;
    this.#sweep = setInterval(() => this.dropIdle(), Math.min(this.limits.maxIdleMs, MAX_SWEEP_MS));
    this.#sweep.unref();
  }

  #endSweep(): void {
    clearInterval(this.#sweep);
    this.#sweep = undefined;
  }
}

/** Memory of one value beside its content. */
const OVERHEAD = 64;

/** About how many bytes of memory a JSON value takes. */
export function memoryOf(value: unknown): number {
  let bytes = 0;
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    if (typeof next === "string") bytes += OVERHEAD + 2 * next.length;
    else if (next === null || typeof next !== "object") bytes += 8;
    else {
      bytes += OVERHEAD;
      for (const [name, member] of Object.entries(next)) {
        bytes += 8 + (Array.isArray(next) ? 0 : 2 * name.length);
        left.push(member);
      }
    }
  }
  return bytes;
}
