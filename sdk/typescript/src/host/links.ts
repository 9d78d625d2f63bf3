/** What gateways offer to one instance of a plugin, and the tokens for the plugin's own data. */
import { Metadata } from "@grpc/grpc-js";
import { TokenService } from "../gen/hookgate/host/v1/host_pb.js";
import { type Logger, stderrLogger } from "../logger.js";
import { type Connect, type HostConnection, acquireConnection } from "./connection.js";
import { HostError } from "./errors.js";

/** How long the token of Initialize is valid. */
const INITIAL_LIFE_MS = 24 * 60 * 60 * 1000;
/** When a renewal is tried again after a failure. */
const RENEWAL_RETRY_MS = 60_000;
/** How long a renewal may take. */
const MAX_RENEWAL_MS = 5_000;
/** The longest time that a timer of Node can wait. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** What a gateway offers, as it says in Initialize. */
export interface HostOffer {
  /** The gateway's instance id. */
  readonly gateway: string;
  /** Where its services are; empty if it offers none. */
  readonly endpoint: string;
  /** The token for the plugin's own data; empty if the gateway can't sign tokens yet. A secret. */
  readonly token: string;
}

/** The token for the plugin's own data. Times are milliseconds since 1970. */
interface PluginToken {
  readonly header: string;
  readonly expiresAt: number;
  readonly renewAt: number;
}

/** The value of the `authorization` header; `undefined` if there is no token, or no header can carry it. */
export function bearer(token: string): string | undefined {
  return /^[\x21-\x7e]+$/.test(token) ? `Bearer ${token}` : undefined;
}

/** A token with `lifeMs` left is renewed after half of it. */
function pluginToken(token: string, lifeMs: number): PluginToken | undefined {
  const header = bearer(token);
  const now = Date.now();
  return header === undefined ? undefined : { header, expiresAt: now + lifeMs, renewAt: now + lifeMs / 2 };
}

/** What one gateway offers. */
export class HostLink {
  readonly gateway: string;
  /** The connection, or why there is none. */
  readonly connection: HostConnection | HostError;
  readonly #logger: Logger;
  #token: PluginToken | undefined;
  #hasFailed = false;
  #keepsToken = false;
  #timer: NodeJS.Timeout | undefined;

  /** @internal */
  constructor({ gateway, endpoint, token }: HostOffer, logger: Logger, connect: Connect) {
    this.gateway = gateway;
    this.connection = connectionTo(endpoint, connect);
    this.#token = pluginToken(token, INITIAL_LIFE_MS);
    this.#logger = logger;
  }

  /** The header for the plugin's own data; `undefined` if the gateway sent no token. */
  get authorization(): string | undefined {
    return this.#token?.header;
  }

  /** Whether the last call failed. Other gateways are tried before this one, until it answers again. */
  get hasFailed(): boolean {
    return this.#hasFailed;
  }

  recordSuccess(): void {
    this.#hasFailed = false;
  }

  recordFailure(): void {
    this.#hasFailed = true;
  }

  /** From now on renews the token at half of its life. */
  keepToken(): void {
    if (this.#keepsToken) return;
    this.#keepsToken = true;
    this.#scheduleRenewal();
  }

  close(): void {
    this.#keepsToken = false;
    clearTimeout(this.#timer);
    if (!(this.connection instanceof HostError)) this.connection.release();
  }

  #scheduleRenewal(): void {
    const { connection } = this;
    const token = this.#token;
    if (!this.#keepsToken || token === undefined || connection instanceof HostError) return;
    // An expired token can't be renewed any more.
    if (token.renewAt >= token.expiresAt) return;
    const wait = Math.min(token.renewAt - Date.now(), MAX_TIMER_MS);
    this.#timer = setTimeout(() => void this.#renew(connection, token), wait).unref();
  }

  async #renew(connection: HostConnection, token: PluginToken): Promise<void> {
    const metadata = new Metadata();
    metadata.set("authorization", token.header);
    let renewed: PluginToken | undefined;
    try {
      const answer = await connection.call(TokenService.method.renewToken, {}, { metadata, deadline: Date.now() + MAX_RENEWAL_MS });
      renewed = pluginToken(answer.token, Number(answer.expiresInMs));
    } catch (error) {
      this.#logger.warn("can't renew the token for host services", { gateway: this.gateway, error: (error as Error).message });
    }
    this.#token = renewed ?? { ...token, renewAt: Date.now() + RENEWAL_RETRY_MS };
    this.#scheduleRenewal();
  }
}

function connectionTo(endpoint: string, connect: Connect): HostConnection | HostError {
  if (endpoint === "") return HostError.notOffered();
  try {
    return connect(endpoint);
  } catch (error) {
    return new HostError("unavailable", (error as Error).message, { cause: error });
  }
}

/**
 * What the gateways that hold an instance offer. A call doesn't say which gateway made it, so any of them may get the plugin's calls;
 * gateways with the same database accept each other's tokens.
 */
export class HostLinks {
  /** The most recently added one last. */
  #links: HostLink[] = [];
  #keepsTokens = false;
  #isClosed = false;
  #holders = 0;

  constructor(
    /** @internal */
    readonly logger: Logger = stderrLogger,
    private readonly connect: Connect = acquireConnection,
  ) {}

  /** Whether {@link close} was called. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Adds what a gateway offers, in place of an earlier offer of the same gateway. */
  add(offer: HostOffer): void {
    if (this.#isClosed) return;
    // Before the earlier link is closed, so that they share a connection.
    const link = new HostLink(offer, this.logger, this.connect);
    this.#drop(offer.gateway);
    this.#links.push(link);
    if (this.#keepsTokens) link.keepToken();
  }

  /** Removes what a gateway offers, unless it is the last one, which the plugin may need to flush. */
  remove(gateway: string): void {
    if (this.#links.length > 1) this.#drop(gateway);
  }

  /** The links in the order in which to try them: the newest first, and those that failed last. */
  candidates(): HostLink[] {
    return this.#links.toReversed().sort((one, other) => Number(one.hasFailed) - Number(other.hasFailed));
  }

  /** From now on, keeps the tokens for the plugin's own data valid. */
  keepTokens(): void {
    if (this.#keepsTokens) return;
    this.#keepsTokens = true;
    for (const link of this.#links) link.keepToken();
  }

  /** Ends the use of all gateways. Calls in flight end normally, and queued log lines are still sent; later calls fail. */
  close(): void {
    this.#isClosed = true;
    if (this.#holders === 0) this.#closeLinks();
  }

  /** Defers the end of the links, for work in the background, until the returned function is called. @internal */
  hold(): () => void {
    this.#holders += 1;
    return () => {
      this.#holders -= 1;
      if (this.#isClosed && this.#holders === 0) this.#closeLinks();
    };
  }

  #closeLinks(): void {
    for (const link of this.#links) link.close();
    this.#links = [];
  }

  #drop(gateway: string): void {
    const index = this.#links.findIndex((link) => link.gateway === gateway);
    for (const link of index < 0 ? [] : this.#links.splice(index, 1)) link.close();
  }
}
