/** A gateway that takes registrations as a test tells it, as a real gRPC server. */
import { Metadata, Server, ServerCredentials, type ServerDuplexStream, type StatusObject, status } from "@grpc/grpc-js";
import { type MessageInitShape, create } from "@bufbuild/protobuf";
import {
  type RegisterRequest,
  type RegisterResponse,
  RegisterResponseSchema,
  RegistrationService,
} from "../../src/gen/hookgate/host/v1/host_pb.js";
import { serviceDefinition } from "../../src/grpc.js";

/** What the gateway saw: a stream with its `authorization`, a message, that the client closed its side, or that the stream broke. */
export type RegistrarEvent =
  | { readonly stream: string }
  | { readonly registration: readonly [plugin: string, endpoint: string] }
  | { readonly renewal: true }
  | { readonly closed: true }
  | { readonly broken: true };

type RegisterStream = ServerDuplexStream<RegisterRequest, RegisterResponse>;

/** A gateway that takes registrations as a test tells it. */
export class FakeRegistrar {
  /** What it answers to each message; `undefined`: nothing. */
  answer: MessageInitShape<typeof RegisterResponseSchema> | undefined = { leaseMs: 300n };
  /** How it refuses streams. */
  refusal: Partial<StatusObject> | undefined;
  /** Whether it ends a stream that the client closed. */
  endsClosedStreams = true;
  #stream: RegisterStream | undefined;
  readonly #events: RegistrarEvent[] = [];
  readonly #waiters: ((event: RegistrarEvent) => void)[] = [];
  readonly #server = new Server();

  /** Starts to listen, and resolves with its endpoint. */
  async listen(target = "127.0.0.1:0", tls?: ServerCredentials): Promise<string> {
    this.#server.addService(serviceDefinition(RegistrationService), { register: (stream: RegisterStream) => this.#serve(stream) });
    const port = await new Promise<number>((resolve, reject) => {
      this.#server.bindAsync(target, tls ?? ServerCredentials.createInsecure(), (error, bound) => (error ? reject(error) : resolve(bound)));
    });
    if (target.startsWith("unix:")) return `unix://${target.slice("unix:".length)}`;
    return `${tls === undefined ? "http" : "https"}://${target.replace(/:0$/, `:${port}`)}`;
  }

  stop(): void {
    this.#server.forceShutdown();
  }

  /** Ends the open stream with a status. What its client does afterwards is no event. */
  endStream(code: status, details: string): void {
    const stream = this.#stream;
    this.#stream = undefined;
    if (code === status.OK) stream?.end();
    else stream?.emit("error", { code, details, metadata: new Metadata() });
  }

  /** The next event. */
  next(): Promise<RegistrarEvent> {
    const event = this.#events.shift();
    return event === undefined ? new Promise((resolve) => this.#waiters.push(resolve)) : Promise.resolve(event);
  }

  /** The next event that is no renewal, which may be under way at any moment. */
  async nextButRenewal(): Promise<RegistrarEvent> {
    for (;;) {
      const event = await this.next();
      if (!("renewal" in event)) return event;
    }
  }

  #see(event: RegistrarEvent): void {
    const waiter = this.#waiters.shift();
    if (waiter === undefined) this.#events.push(event);
    else waiter(event);
  }

  #serve(stream: RegisterStream): void {
    this.#stream = stream;
    this.#see({ stream: String(stream.metadata.get("authorization")[0]) });
    if (this.refusal !== undefined) {
      stream.emit("error", { metadata: new Metadata(), ...this.refusal });
      return;
    }
    stream.on("data", ({ plugin, endpoint }: RegisterRequest) => {
      this.#see(plugin === "" && endpoint === "" ? { renewal: true } : { registration: [plugin, endpoint] });
      if (this.answer !== undefined) stream.write(create(RegisterResponseSchema, this.answer));
    });
    let isBroken = false;
    stream.on("cancelled", () => {
      isBroken = true;
      if (this.#stream === stream) this.#see({ broken: true });
    });
    // The end of a broken connection looks like that of the client's side, but a moment later the call is cancelled.
    stream.on("end", () =>
      setImmediate(() => {
        if (isBroken || this.#stream !== stream) return;
        this.#see({ closed: true });
        if (this.endsClosedStreams) stream.end();
      }),
    );
  }
}
