/** Connections to a gateway's host services. All users of one endpoint in the process share one. */
import type { DescMessage, DescMethod, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { type Client, type Metadata, connectivityState } from "@grpc/grpc-js";
import { listenForAbort } from "../abort-listeners.js";
import { callUnary } from "../grpc.js";
import { dialEndpoint } from "./dial.js";

const CONNECT_TIMEOUT_MS = 2_000;

/** A method that is called with one message and answers one. */
export type UnaryMethod<I extends DescMessage, O extends DescMessage> = DescMethod & { methodKind: "unary"; input: I; output: O };

/** The gateway was not reached, so it certainly did not make the call. */
export class ConnectError extends Error {
  override name = "ConnectError";
}

/** What a call needs besides its message. */
export interface RequestParts {
  readonly metadata: Metadata;
  /** Milliseconds since 1970. */
  readonly deadline: number;
  readonly signal?: AbortSignal | undefined;
}

/** The way to the services of one gateway. */
export interface HostConnection {
  /**
   * Makes one call.
   *
   * @throws {ConnectError} If the gateway certainly did not make the call.
   */
  call<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageInitShape<I>,
    parts: RequestParts,
  ): Promise<MessageShape<O>>;
  /** Ends the use of the connection. */
  release(): void;
}

/** Finds the connection to an endpoint. Throws if the endpoint can't be used. */
export type Connect = (endpoint: string) => HostConnection;

const connections = new Map<string, Connection>();

/**
 * The connection to an endpoint. Release it after use.
 *
 * @throws {DialError} If the endpoint can't be used.
 */
export function acquireConnection(endpoint: string): Connection {
  let connection = connections.get(endpoint);
  if (connection === undefined) {
    connection = new Connection(endpoint, dialEndpoint(endpoint));
    connections.set(endpoint, connection);
  }
  connection.retain();
  return connection;
}

/** A connection that is closed after its last use. It is made by the first call. */
export class Connection implements HostConnection {
  #users = 0;
  /** How often the channel has been connected. A call that saw neither a connected channel nor a change of this was not sent. */
  #connects = 0;

  /** @internal */
  constructor(
    readonly endpoint: string,
    readonly client: Client,
  ) {
    this.#watchState();
  }

  retain(): void {
    this.#users += 1;
  }

  release(): void {
    this.#users -= 1;
    if (this.#users > 0) return;
    connections.delete(this.endpoint);
    this.client.close();
  }

  async call<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageInitShape<I>,
    { metadata, deadline, signal }: RequestParts,
  ): Promise<MessageShape<O>> {
    if (this.#users === 0) throw new ConnectError("the gateway has released the plugin");
    this.retain();
    const connected = this.#connects;
    const wasConnected = this.client.getChannel().getConnectivityState(true) === connectivityState.READY;
    const wasNotSent = () => !wasConnected && this.#connects === connected;
    const abandoned = new AbortController();
    const abandon = () => abandoned.abort();
    const stopListening = signal && listenForAbort(signal, abandon);
    const timer = setTimeout(() => wasNotSent() && abandon(), CONNECT_TIMEOUT_MS);
    try {
      return await callUnary(this.client, method, request, { metadata, options: { deadline }, signal: abandoned.signal });
    } catch (error) {
      if (signal?.aborted || !wasNotSent()) throw error;
      const reason = abandoned.signal.aborted ? `no connection within ${CONNECT_TIMEOUT_MS / 1000} s` : detailsOf(error);
      throw new ConnectError(`${this.endpoint}: ${reason}`, { cause: error });
    } finally {
      clearTimeout(timer);
      stopListening?.();
      this.release();
    }
  }

  /** Counts connects. grpc-js tells watchers of each state before it sends a call over the connection. */
  #watchState(): void {
    const channel = this.client.getChannel();
    const state = channel.getConnectivityState(false);
    if (state === connectivityState.READY) this.#connects += 1;
    if (state !== connectivityState.SHUTDOWN) channel.watchConnectivityState(state, Infinity, () => this.#watchState());
  }
}

/** What grpc-js says about a failed connection, without its framing. */
function detailsOf(error: unknown): string {
  const { details, message } = error as { details?: string; message?: string };
  const text = details ?? message ?? String(error);
  return text.replace(/^No connection established\. Last error: (?:Error: )?/, "").replace(/\. Resolution note: $/, "");
}
