/** The gateway's services of the test kit, as a real gRPC server at a Unix socket. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DescMethod, Message } from "@bufbuild/protobuf";
import { Server, ServerCredentials, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js";
import { EventService, LogService, StorageService, TokenService } from "../../src/gen/hookgate/host/v1/host_pb.js";
import { serviceDefinition } from "../../src/grpc.js";
import { HostClient, HostLinks, type HostOffer, Storage } from "../../src/host/index.js";
import type { Capability } from "../../src/point.js";
import { HostServices } from "../../src/testing/host-services.js";

const SERVICES = [StorageService, LogService, EventService, TokenService];

/** What a fake host may be given. */
export interface FakeHostOptions {
  /** Maximum bytes of keys and values for a plugin and tenant; a counter counts as 8 bytes. By default there is no quota. */
  readonly quotaBytes?: number;
  /** Where it listens. By default a socket in a new directory. */
  readonly socket?: string;
}

/** A gateway's host services at a Unix socket. */
export class FakeHost extends HostServices {
  readonly #server = new Server({ "grpc.max_receive_message_length": -1 });
  readonly #links: HostLinks[] = [];

  private constructor(
    readonly endpoint: string,
    private readonly directory: string | undefined,
    { quotaBytes }: FakeHostOptions,
  ) {
    super(quotaBytes);
    for (const service of SERVICES) {
      const handlers = service.methods.map((method) => [method.localName, this.#unary(method)]);
      this.#server.addService(serviceDefinition(service), Object.fromEntries(handlers));
    }
  }

  /** Starts to listen. */
  static async start(options: FakeHostOptions = {}): Promise<FakeHost> {
    const directory = options.socket === undefined ? await mkdtemp(join(tmpdir(), "fake-host-")) : undefined;
    const socket = options.socket ?? join(directory as string, "host.sock");
    const host = new FakeHost(`unix://${socket}`, directory, options);
    await new Promise<void>((resolve, reject) => {
      host.#server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
    });
    return host;
  }

  /** Ends all connections. */
  async stop(): Promise<void> {
    for (const links of this.#links) links.close();
    this.#server.forceShutdown();
    if (this.directory !== undefined) await rm(this.directory, { recursive: true, force: true });
  }

  /** What a gateway says in Initialize. */
  offer(token = "", gateway = "g"): HostOffer {
    return { gateway, endpoint: this.endpoint, token };
  }

  /** Calls these services for a plugin, with all capabilities unless others are named. */
  clientOf(
    plugin: string,
    tenant?: string,
    capabilities: readonly Capability[] = ["storage:read", "storage:write", "log", "emit"],
  ): HostClient {
    const links = new HostLinks();
    this.#links.push(links);
    links.add(this.offer());
    return HostClient.forCall(links, { token: this.issueToken({ plugin, tenant, capabilities }) });
  }

  /** A plugin's data, for a test to prepare or to read. */
  storageOf(plugin: string, tenant?: string): Storage {
    return new Storage(this.clientOf(plugin, tenant));
  }

  #unary(method: DescMethod) {
    return (call: ServerUnaryCall<Message, Message>, callback: sendUnaryData<Message>): void => {
      const { metadata, request } = call;
      this.answer(method, request, { metadata, deadline: Number(call.getDeadline()) }).then((message) => callback(null, message), callback);
    };
  }
}
