/** Serves plugins as a process: listens, with health checks and reflection, registers them if asked to, and stops gracefully. */
import { unlink } from "node:fs/promises";
import { toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Server as GrpcServer } from "@grpc/grpc-js";
import { ReflectionService } from "@grpc/reflection";
import { HealthImplementation } from "grpc-health-check";
import { type Address, formatAddress, parseAddress } from "../address.js";
import { file_hookgate_plugin_v1_plugin, PluginService } from "../gen/hookgate/plugin/v1/plugin_pb.js";
import { serviceDefinition } from "../grpc.js";
import { type Logger, stderrLogger } from "../logger.js";
import type { Plugin } from "../plugin.js";
import { type TlsOptions, listen } from "./listen.js";
import { PluginHost } from "./plugin-host.js";
import { pluginService } from "./plugin-service.js";
import { type Registration, type RegistrationOptions, startRegistration } from "./registration.js";

/** The largest call: the largest request limit of a gateway (16 MiB) and the 1 MiB that a call may add to it. */
const MAX_CALL_BYTES = 17 * 1024 * 1024;

/** How long calls in flight may take to finish after a stop; less than the 30 s that Kubernetes allows. */
const DEFAULT_DRAIN_MS = 25_000;

/** How plugins are served. */
export interface ServeOptions {
  /** Required for an `https://` address. */
  readonly tls?: TlsOptions;
  /** How long calls in flight may take to finish after a stop, in milliseconds. The default is 25,000. */
  readonly drainMs?: number;
  /** Registers the plugins with a gateway while they are served. */
  readonly registration?: RegistrationOptions;
  /** Whether SIGTERM and SIGINT stop the server. The default is `true`. */
  readonly signals?: boolean;
  /** Where the SDK says what happens in the process. By default JSON lines on stderr. */
  readonly logger?: Logger;
}

/** Plugins that are being served. */
export interface Server {
  /** The address with the actual port. */
  readonly address: string;
  /** Resolves when the server has stopped. */
  readonly stopped: Promise<void>;
  /** Stops: ends the registration, accepts no more calls, finishes those in flight, and shuts the plugins down. */
  stop(): Promise<void>;
}

/**
 * Serves one or several plugins at `unix:///path`, `http://host:port` or `https://host:port`. Several at one address are separate
 * plugins to a gateway, each with its own entry, configuration and storage.
 *
 * @throws If the address is malformed or taken, two plugins have the same name, or the registration can't work.
 */
export async function serve(
  plugins: Plugin<any, any> | readonly Plugin<any, any>[],
  address: string,
  options: ServeOptions = {},
): Promise<Server> {
  const { logger = stderrLogger, drainMs = DEFAULT_DRAIN_MS, signals = true } = options;
  const hosts = [plugins].flat().map((plugin) => new PluginHost(plugin, logger));
  checkNames(hosts);
  const wanted = parseAddress(address);
  const server = new GrpcServer({ "grpc.max_receive_message_length": MAX_CALL_BYTES, "grpc.max_send_message_length": -1 });
  server.addService(serviceDefinition(PluginService), pluginService(hosts));
  const health = new HealthImplementation({ "": "SERVING" });
  health.addToServer(server);
  reflection().addToServer(server);
  const bound = await listen(server, wanted, options.tls);
  try {
    const running = new RunningServer(server, health, hosts, bound, drainMs, logger, options.registration);
    if (signals) running.stopAtSignals();
    return running;
  } catch (error) {
    server.forceShutdown();
    throw error;
  }
}

function checkNames(hosts: readonly PluginHost[]): void {
  const names = hosts.map(({ plugin }) => plugin.name);
  if (names.length === 0) throw new TypeError("there is no plugin to serve");
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new TypeError(`two of the plugins are named \`${twice}\`: each needs a name of its own`);
}

/** Answers gRPC's reflection with the contract's files. */
function reflection(): ReflectionService {
  const files = [file_hookgate_plugin_v1_plugin, ...file_hookgate_plugin_v1_plugin.dependencies];
  const fileDescriptorProtos = files.map((file) => Buffer.from(toBinary(FileDescriptorProtoSchema, file.proto)));
  const type = { format: "Protocol Buffer 3 DescriptorProto", type: {}, fileDescriptorProtos };
  return new ReflectionService({ "hookgate.plugin.v1": type } as never);
}

class RunningServer implements Server {
  readonly stopped: Promise<void>;
  readonly #registrations: readonly Registration[];
  #stop: Promise<void> | undefined;
  #resolveStopped!: () => void;

  constructor(
    readonly grpc: GrpcServer,
    readonly health: HealthImplementation,
    readonly hosts: readonly PluginHost[],
    readonly bound: Address,
    readonly drainMs: number,
    readonly logger: Logger,
    registration: RegistrationOptions | undefined,
  ) {
    this.stopped = new Promise((resolve) => (this.#resolveStopped = resolve));
    for (const { plugin } of hosts) {
      logger.info("plugin listens", { plugin: plugin.name, version: plugin.version, address: this.address });
    }
    const register = ({ plugin }: PluginHost) => startRegistration(plugin.name, this.address, registration as RegistrationOptions, logger);
    this.#registrations = registration === undefined ? [] : hosts.map(register);
  }

  get address(): string {
    return formatAddress(this.bound);
  }

  stopAtSignals(): void {
    const stop = () => void this.stop();
    for (const signal of ["SIGTERM", "SIGINT"] as const) {
      process.once(signal, stop);
      void this.stopped.then(() => process.off(signal, stop));
    }
  }

  stop(): Promise<void> {
    this.#stop ??= this.#stopOnce();
    return this.#stop;
  }

  async #stopOnce(): Promise<void> {
    await Promise.all(this.#registrations.map((registration) => registration.stop()));
    this.health.setStatus("", "NOT_SERVING");
    // Before the drain, so that a successor can listen immediately.
    if (this.bound.kind === "unix") await unlink(this.bound.path).catch(() => {});
    await this.#drain();
    await Promise.all(this.hosts.map((host) => host.shutdown()));
    for (const { plugin } of this.hosts) this.logger.info("plugin stopped", { plugin: plugin.name });
    this.#resolveStopped();
  }

  /** Finishes the calls in flight, but not longer than the limit. */
  async #drain(): Promise<void> {
    const drained = new Promise<void>((resolve) => this.grpc.tryShutdown(() => resolve()));
    let timer: NodeJS.Timeout | undefined;
    const overdue = new Promise<string>((resolve) => (timer = setTimeout(resolve, this.drainMs, "overdue")));
    if ((await Promise.race([drained, overdue])) === "overdue") {
      this.logger.warn("calls are still in flight; stopping without them", { address: this.address });
      this.grpc.forceShutdown();
    }
    clearTimeout(timer);
  }
}
