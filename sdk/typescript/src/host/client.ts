/** Calls to the gateway's services: with which token, how long, and at which gateway. */
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import type { Logger } from "../logger.js";
import { ConnectError, type UnaryMethod } from "./connection.js";
import { HostError } from "./errors.js";
import { type HostLink, type HostLinks, bearer } from "./links.js";

/** How long a call to the gateway may take. */
const MAX_CALL_MS = 5_000;

/** Metadata that a plugin passes on from the call that it got: `traceparent`, `tracestate` and `hookgate-depth`. */
export interface ForwardedMetadata {
  readonly [key: string]: string;
}

/** What a plugin's call says about its calls to the gateway. */
export interface CallAccess {
  /** The call's `host_token`; empty if the gateway sent none. A secret. */
  readonly token: string;
  /** When the gateway gives up the plugin's call, in milliseconds since 1970; `undefined` if never. */
  readonly deadline?: number | undefined;
  /** Passed on to the gateway. */
  readonly forwarded?: ForwardedMetadata | undefined;
}

/** Options of every call to the gateway. */
export interface AbortOptions {
  /** Ends the call with the signal's reason. A write may or may not have happened. */
  readonly signal?: AbortSignal | undefined;
}

/** Calls the gateway's services, for a call or for the plugin itself. */
export class HostClient {
  readonly #links: HostLinks;
  /** The header of a call; `undefined` for the plugin itself, whose token each link knows. */
  readonly #call: { readonly authorization: string | undefined } | undefined;
  readonly #deadline: number;
  readonly #forwarded: ForwardedMetadata;

  private constructor(
    links: HostLinks,
    call: { authorization: string | undefined } | undefined,
    deadline: number,
    forwarded: ForwardedMetadata,
  ) {
    this.#links = links;
    this.#call = call;
    this.#deadline = deadline;
    this.#forwarded = forwarded;
  }

  /** Calls for the tenant of a plugin's call. */
  static forCall(links: HostLinks, { token, deadline = Infinity, forwarded = {} }: CallAccess): HostClient {
    return new HostClient(links, { authorization: bearer(token) }, deadline, forwarded);
  }

  /** Calls for the plugin itself. */
  static forPlugin(links: HostLinks): HostClient {
    return new HostClient(links, undefined, Infinity, {});
  }

  /** The same permission without the deadline of the plugin's call, for work that goes on after it. */
  withoutDeadline(): HostClient {
    return new HostClient(this.#links, this.#call, Infinity, this.#forwarded);
  }

  /** @internal */
  get logger(): Logger {
    return this.#links.logger;
  }

  /** Keeps the gateways usable until the returned function is called, even if the plugin is shut down meanwhile. @internal */
  hold(): () => void {
    return this.#links.hold();
  }

  /**
   * Makes one call. Tries the next gateway if one certainly didn't make it. Ends after the time that the plugin's own call has left, and
   * after at most 5 s.
   *
   * @throws {HostError} If no gateway made it.
   */
  async call<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageInitShape<I>,
    { signal }: AbortOptions = {},
  ): Promise<MessageShape<O>> {
    signal?.throwIfAborted();
    const deadline = Math.min(this.#deadline, Date.now() + MAX_CALL_MS);
    let failure = this.#links.isClosed ? new HostError("unavailable", "the plugin has been shut down") : HostError.notOffered();
    for (const link of this.#links.candidates()) {
      const { connection } = link;
      const authorization = this.#authorization(link);
      if (connection instanceof HostError || authorization === undefined) {
        failure = connection instanceof HostError ? connection : unsigned();
        continue;
      }
      if (Date.now() >= deadline) throw new HostError("unavailable", "the time of the call is over");
      const metadata = this.#metadata(authorization);
      try {
        const answer = await connection.call(method, request, { metadata, deadline, signal });
        link.recordSuccess();
        return answer;
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        failure = hostError(error);
        if (failure.isUnavailable) link.recordFailure();
        if (!wasNotMade(error)) break;
      }
    }
    throw failure;
  }

  #authorization(link: HostLink): string | undefined {
    return this.#call === undefined ? link.authorization : this.#call.authorization;
  }

  #metadata(authorization: string): Metadata {
    const metadata = new Metadata();
    metadata.set("authorization", authorization);
    for (const [key, value] of Object.entries(this.#forwarded)) {
      // grpc-js refuses other characters. A call is worth more than its trace.
      if (/^[\x20-\x7e]*$/.test(value)) metadata.set(key, value);
    }
    return metadata;
  }
}

function unsigned(): HostError {
  return new HostError("unavailable", "the gateway can't sign tokens for host services yet");
}

function hostError(error: unknown): HostError {
  if (error instanceof ConnectError) return new HostError("unavailable", error.message, { cause: error });
  if (isServiceError(error)) return HostError.fromStatus(error);
  return new HostError("failed", String(error), { cause: error });
}

/**
 * Whether the gateway certainly didn't make the call: it wasn't connected, or refused the token. Another gateway may have another
 * database, and other tokens.
 */
function wasNotMade(error: unknown): boolean {
  return error instanceof ConnectError || (isServiceError(error) && error.code === status.PERMISSION_DENIED);
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error;
}
