/** The instances of a plugin: one for each configuration digest that some gateway holds. */
import type { HostLinks } from "../host/index.js";
import type { Instance } from "../plugin.js";

/** Maximum number of instances. It limits what gateways leave behind that crash. One with calls in flight may exceed it. */
export const MAX_INSTANCES = 16;

/** Maximum number of holders of an instance, more than any installation has gateways. */
const MAX_HOLDERS = 64;

/** What a gateway says of itself when it initialises an instance. */
export interface GatewayLink {
  readonly gateway: string;
  readonly endpoint: string;
  readonly token: string;
}

/** An instance, the gateways that hold it, and its calls in flight. */
export class HeldInstance {
  readonly #holders = new Set<string>();
  #calls = 0;
  #retired = false;
  #isLeft = false;
  #unused: (() => void) | undefined;

  constructor(
    readonly instance: Instance,
    readonly links: HostLinks,
    /** Largest reply that the gateway accepts. */
    readonly maxReplyBytes: number,
  ) {}

  get isIdle(): boolean {
    return this.#calls === 0;
  }

  get isHeld(): boolean {
    return this.#holders.size > 0;
  }

  /** The instance for the first caller, `undefined` for all others: it is shut down once. */
  retireOnce(): this | undefined {
    if (this.#isLeft) return undefined;
    this.#isLeft = true;
    return this;
  }

  /** Counts a call in flight until the returned function is called. */
  use(): () => void {
    this.#calls += 1;
    return () => {
      this.#calls -= 1;
      if (this.#retired && this.isIdle) this.#unused?.();
    };
  }

  hold(link: GatewayLink): void {
    this.#holders.delete(link.gateway);
    this.#holders.add(link.gateway);
    this.links.add(link);
    const [oldest] = this.#holders;
    // A crashed gateway never releases.
    if (this.#holders.size > MAX_HOLDERS && oldest !== undefined) this.letGo(oldest);
  }

  /** Returns whether the gateway was a holder. */
  letGo(gateway: string): boolean {
    const held = this.#holders.delete(gateway);
    if (held) this.links.remove(gateway);
    return held;
  }

  /** Waits until the last call has ended. */
  async unused(): Promise<void> {
    this.#retired = true;
    if (!this.isIdle) await new Promise<void>((resolve) => (this.#unused = resolve));
  }
}

/** A start, and the gateways that still wait for it. */
interface Start {
  readonly held: Promise<HeldInstance>;
  readonly gateways: Set<string>;
}

/** The instances by digest, ordered by their last use. */
export class Instances {
  readonly #ready = new Map<string, HeldInstance>();
  /** Starts that no gateway has taken yet, so that two with the same configuration share one. */
  readonly #starting = new Map<string, Start>();
  #isClosed = false;

  /** @param onEviction Called when an instance that gateways still hold has to make room. */
  constructor(readonly onEviction: () => void) {}

  /** The instance for a digest, for one call. */
  get(digest: string): HeldInstance | undefined {
    const held = this.#ready.get(digest);
    if (held !== undefined) {
      this.#ready.delete(digest);
      this.#ready.set(digest, held);
    }
    return held;
  }

  /**
   * Starts an instance unless it exists, and records that the gateway holds it.
   *
   * @returns The instance, and one that nobody needs any more: it had to make room, or its gateways left while it started.
   */
  async start(digest: string, link: GatewayLink, start: () => Promise<HeldInstance>): Promise<[HeldInstance, HeldInstance | undefined]> {
    const known = this.get(digest);
    if (known !== undefined) {
      known.hold(link);
      return [known, undefined];
    }
    let starting = this.#starting.get(digest);
    if (starting === undefined) {
      starting = { held: start(), gateways: new Set() };
      this.#starting.set(digest, starting);
    }
    starting.gateways.add(link.gateway);
    let started: HeldInstance;
    try {
      started = await starting.held;
    } catch (error) {
      this.#endStart(digest, starting);
      throw error;
    }
    // Until here, other gateways can still join, even if the start has just ended.
    if (starting.gateways.has(link.gateway) || starting.gateways.size === 0) this.#endStart(digest, starting);
    if (this.#isClosed || !starting.gateways.has(link.gateway)) {
      return [started, this.#isClosed || (starting.gateways.size === 0 && !started.isHeld) ? started.retireOnce() : undefined];
    }
    started.hold(link);
    this.#ready.delete(digest);
    this.#ready.set(digest, started);
    return [started, this.#makeRoom(started)];
  }

  /** Ends the gateway's use of one configuration, or of all. Returns the instances that nobody holds any more. */
  release(gateway: string, digest?: string): HeldInstance[] {
    const released: HeldInstance[] = [];
    for (const [started, { gateways }] of this.#starting) {
      if (digest === undefined || digest === started) gateways.delete(gateway);
    }
    for (const [known, held] of this.#ready) {
      if ((digest === undefined || digest === known) && held.letGo(gateway) && !held.isHeld) {
        this.#ready.delete(known);
        released.push(held);
      }
    }
    return released;
  }

  /** Removes all instances and returns them, the newest first. */
  takeAll(): HeldInstance[] {
    this.#isClosed = true;
    const all = [...this.#ready.values()].reverse();
    this.#ready.clear();
    return all;
  }

  #endStart(digest: string, start: Start): void {
    if (this.#starting.get(digest) === start) this.#starting.delete(digest);
  }

  #makeRoom(started: HeldInstance): HeldInstance | undefined {
    if (this.#ready.size <= MAX_INSTANCES) return undefined;
    for (const [digest, held] of this.#ready) {
      if (held.isIdle && held !== started) {
        this.#ready.delete(digest);
        this.onEviction();
        return held;
      }
    }
    return undefined;
  }
}
