/**
 * A gRPC call with streams in both directions, over a connection of its own, that can be broken without being ended.
 *
 * grpc-js can't do this: whatever cancels a call or closes its connection makes Node half-close the stream first, and to the server that
 * looks like an orderly end of the requests. A registration would be removed. So this speaks HTTP/2 itself.
 */
import * as http2 from "node:http2";
import * as net from "node:net";
import * as tls from "node:tls";
import { type DescMessage, type DescMethod, type MessageInitShape, type MessageShape, create } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { formatAddress } from "../address.js";
import { secureContext } from "../channel.js";
import { methodDefinition, methodPath } from "../grpc.js";
import type { Endpoint } from "./dial.js";

/** The flag and the length before each message. */
const PREFIX_BYTES = 5;
const MAX_MESSAGE_BYTES = 1 << 20;

/** The codes of answers that aren't gRPC's, as gRPC defines them (http-grpc-status-mapping.md). */
const CODES_BY_HTTP_STATUS: Record<number, status> = {
  400: status.INTERNAL,
  401: status.UNAUTHENTICATED,
  403: status.PERMISSION_DENIED,
  404: status.UNIMPLEMENTED,
  429: status.UNAVAILABLE,
  502: status.UNAVAILABLE,
  503: status.UNAVAILABLE,
  504: status.UNAVAILABLE,
};

/** How a call ended. */
export interface CallEnd {
  readonly code: status;
  readonly message: string;
}

/** What happens in a call. */
export interface CallEvents<O> {
  onMessage(message: O): void;
  /** Called once, after the last message. */
  onEnd(end: CallEnd): void;
}

type StreamMethod<I extends DescMessage, O extends DescMessage> = DescMethod & { methodKind: "bidi_streaming"; input: I; output: O };

/** A call that can be broken without being ended. */
export class ResettableCall<I extends DescMessage, O extends DescMessage> {
  readonly #method: StreamMethod<I, O>;
  readonly #events: CallEvents<MessageShape<O>>;
  readonly #socket: net.Socket;
  readonly #session: http2.ClientHttp2Session;
  readonly #stream: http2.ClientHttp2Stream;
  #received: Buffer = Buffer.alloc(0);
  #end: CallEnd | undefined;
  #hasEnded = false;

  /** Connects, and begins the call. Failures come as its end. */
  constructor(
    endpoint: Endpoint,
    method: StreamMethod<I, O>,
    headers: { readonly [name: string]: string },
    events: CallEvents<MessageShape<O>>,
  ) {
    this.#method = method;
    this.#events = events;
    this.#socket = openSocket(endpoint);
    const { address } = endpoint;
    const authority = address.kind === "unix" ? "http://localhost" : formatAddress(address);
    this.#session = http2.connect(authority, { createConnection: () => this.#socket });
    this.#session.on("error", (error) => this.#finish({ code: status.UNAVAILABLE, message: causeOf(error) }));
    this.#session.on("close", () => this.#finish({ code: status.UNAVAILABLE, message: "the connection was lost" }));
    this.#stream = this.#session.request(
      { ":method": "POST", ":path": methodPath(method), "content-type": "application/grpc", te: "trailers", ...headers },
      { endStream: false },
    );
    this.#listen();
  }

  /** Sends a message, unless the call has ended. */
  send(message: MessageInitShape<I>): void {
    if (!this.#stream.writable) return;
    const body = methodDefinition(this.#method).requestSerialize(create(this.#method.input, message));
    const prefix = Buffer.alloc(PREFIX_BYTES);
    prefix.writeUInt32BE(body.length, 1);
    this.#stream.write(Buffer.concat([prefix, body]));
  }

  /** Ends the requests. The server may still answer. */
  end(): void {
    this.#stream.end();
  }

  /** Breaks the connection: the server learns that the call is over, but not that the requests have ended. No event follows. */
  reset(): void {
    this.#hasEnded = true;
    this.#socket.destroy();
  }

  #listen(): void {
    const stream = this.#stream;
    // An answer without messages has its status in the headers.
    stream.on("response", (headers) => {
      this.#end = grpcEnd(headers) ?? httpEnd(headers);
    });
    stream.on("trailers", (headers) => {
      this.#end ??= grpcEnd(headers);
    });
    stream.on("data", (chunk: Buffer) => this.#receive(chunk));
    stream.on("error", (error) => this.#finish({ code: status.UNAVAILABLE, message: causeOf(error) }));
    stream.on("close", () => this.#finish(this.#end ?? { code: status.UNAVAILABLE, message: "the gateway ended the stream" }));
    stream.on("end", () => {
      if (this.#end !== undefined) this.#finish(this.#end);
    });
  }

  #receive(chunk: Buffer): void {
    // The body of an answer that isn't gRPC's.
    if (this.#end !== undefined) return;
    this.#received = Buffer.concat([this.#received, chunk]);
    while (this.#received.length >= PREFIX_BYTES && !this.#hasEnded) {
      const length = this.#received.readUInt32BE(1);
      if (this.#received[0] !== 0 || length > MAX_MESSAGE_BYTES) {
        this.#finish({ code: status.INTERNAL, message: "the gateway sent a message that is compressed or too long" });
        return;
      }
      const end = PREFIX_BYTES + length;
      if (this.#received.length < end) return;
      const body = this.#received.subarray(PREFIX_BYTES, end);
      this.#received = this.#received.subarray(end);
      this.#emit(body);
    }
  }

  #emit(body: Buffer): void {
    let message: MessageShape<O>;
    try {
      message = methodDefinition(this.#method).responseDeserialize(body);
    } catch (error) {
      this.#finish({ code: status.INTERNAL, message: `the gateway sent a malformed message: ${(error as Error).message}` });
      return;
    }
    this.#events.onMessage(message);
  }

  #finish(end: CallEnd): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#socket.destroy();
    this.#events.onEnd(end);
  }
}

function openSocket({ address, files }: Endpoint): net.Socket {
  if (address.kind === "unix") return net.connect({ path: address.path });
  const host = address.host.replace(/^\[|\]$/g, "");
  const target = { host, port: address.port, noDelay: true };
  if (!address.tls) return net.connect(target);
  const servername = net.isIP(host) === 0 ? host : "";
  return tls.connect({ ...target, servername, ALPNProtocols: ["h2"], secureContext: secureContext(files) });
}

function grpcEnd(headers: http2.IncomingHttpHeaders): CallEnd | undefined {
  const code = headers["grpc-status"];
  return code === undefined ? undefined : { code: Number(code), message: decodeMessage(String(headers["grpc-message"] ?? "")) };
}

/** The end of a call whose answer isn't gRPC's; `undefined` if it is. */
function httpEnd(headers: http2.IncomingHttpHeaders & http2.IncomingHttpStatusHeader): CallEnd | undefined {
  const httpStatus = headers[":status"] ?? 0;
  if (httpStatus === 200 && headers["content-type"]?.startsWith("application/grpc")) return undefined;
  const message = `the answer is not gRPC: HTTP status ${httpStatus}, content type ${headers["content-type"] ?? "missing"}`;
  return { code: CODES_BY_HTTP_STATUS[httpStatus] ?? status.UNKNOWN, message };
}

/** Node only says that a stream was cancelled, and why in the cause. */
function causeOf({ message, cause }: Error): string {
  return cause instanceof Error ? cause.message : message;
}

function decodeMessage(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
