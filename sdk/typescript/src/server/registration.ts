/** Registers a plugin's process with a gateway, for plugins with `self_registration: true` (docs/protocol.md, section 2). */
import { readFile } from "node:fs/promises";
import { isIP } from "node:net";
import { status } from "@grpc/grpc-js";
import { parseAddress } from "../address.js";
import {
  type RegisterRequestSchema,
  type RegisterResponse,
  type RegisterResponseSchema,
  RegistrationService,
} from "../gen/hookgate/host/v1/host_pb.js";
import { type Endpoint, readEndpoint } from "../host/dial.js";
import { bearer } from "../host/links.js";
import { type CallEnd, ResettableCall } from "../host/resettable-call.js";
import { type Logger, stderrLogger } from "../logger.js";

/** Where and how a process registers itself. */
export interface RegistrationOptions {
  /**
   * The gateway's host endpoint: `unix:///path`, `http://host:port` or `https://host:port`. `HOOKGATE_HOST_CA_FILE` names the CAs to trust
   * at `https://`; without it, those that Node and the machine trust. `HOOKGATE_HOST_CERT_FILE` and `HOOKGATE_HOST_KEY_FILE` name the
   * client certificate.
   */
  readonly gateway: string;
  /** A token of one of the gateway's issuers, with the scope `hookgate:plugin`. */
  readonly token: RegistrationToken;
  /**
   * Where gateways reach this process: `unix:///path`, `http://host:port` or `https://host:port`, at most 400 bytes. By default the address
   * at which the process listens.
   */
  readonly endpoint?: string | undefined;
}

/**
 * A token, a function that returns it, or a file that contains it. The function is called, and the file read, for every registration, so
 * the token may be replaced while the plugin is served.
 */
export type RegistrationToken =
  | string
  | (() => string | Promise<string>)
  | {
      /** Path of a file that is read for each attempt. */
      readonly file: string;
    };

/** What the gateway answered to a registration. */
export interface RegistrationAnswer {
  /** The lease ends this many milliseconds after its last renewal. */
  readonly leaseMs: number;
  /** An operator has not approved the plugin yet, so it is called at no point. */
  readonly approvalPending: boolean;
}

/** A registration that is renewed, and made again when the connection to the gateway breaks. */
export interface Registration {
  /** The gateway's first answer; `undefined` if the registration was stopped before. Never rejects. */
  readonly firstAnswer: Promise<RegistrationAnswer | undefined>;
  /** Removes the endpoint, so that gateways stop calling it. Takes at most 1 s. */
  stop(): Promise<void>;
}

/** Why a process can't register itself, and what to do. */
export class RegistrationError extends Error {
  override name = "RegistrationError";
}

/** A registration's times in milliseconds; other than the default only in tests. */
export interface RegistrationTimes {
  /** How long the gateway may take to answer a registration or a renewal. */
  readonly answerMs: number;
  /** When to register again after a refusal, which an operator may repair. */
  readonly refusalRetryMs: number;
}

const DEFAULT_TIMES: RegistrationTimes = { answerMs: 5_000, refusalRetryMs: 15_000 };
const MAX_ENDPOINT_BYTES = 400;
/** How long the gateway may take to remove the endpoint at the end. */
const MAX_CLOSE_MS = 1_000;
/** The renewal's interval, whatever lease the gateway answers. */
const MIN_RENEWAL_MS = 50;
const MAX_RENEWAL_MS = 600_000;
/** The wait after the first failure, and the longest one. */
const MIN_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 10_000;

const TRANSIENT_CODES: ReadonlySet<status> = new Set([
  status.UNAVAILABLE,
  status.DEADLINE_EXCEEDED,
  status.CANCELLED,
  status.ABORTED,
  status.INTERNAL,
  status.RESOURCE_EXHAUSTED,
  status.UNKNOWN,
]);

/**
 * Begins to register a plugin that listens at `address`.
 *
 * @throws {RegistrationError} If the gateway or the endpoint can't be used.
 */
export function startRegistration(
  plugin: string,
  address: string,
  options: RegistrationOptions,
  logger: Logger = stderrLogger,
  times: RegistrationTimes = DEFAULT_TIMES,
): Registration {
  const { gateway, token, endpoint = address } = options;
  checkEndpoint(endpoint);
  readGateway(gateway);
  return new Registrar({ plugin, endpoint, gateway }, token, logger, times);
}

/** Checks that gateways may be able to reach `endpoint`. */
function checkEndpoint(endpoint: string): void {
  const problem = endpointProblem(endpoint);
  if (problem !== undefined) throw new RegistrationError(`can't register the endpoint \`${endpoint}\`${problem}`);
}

function endpointProblem(endpoint: string): string | undefined {
  const malformed = ": write unix:///absolute/path, http://host:port or https://host:port, at most 400 bytes";
  if (Buffer.byteLength(endpoint) > MAX_ENDPOINT_BYTES) return malformed;
  try {
    const address = parseAddress(endpoint);
    if (address.kind === "unix") return undefined;
    if (address.port === 0) return malformed;
    const options = "with `--register-endpoint` on the command line, or with `registration.endpoint` in a program";
    const remedy = `say where they reach this process, for example http://10.1.2.3:7000: ${options}`;
    return isWildcard(address.host) ? `, which is no address that gateways can reach: ${remedy}` : undefined;
  } catch {
    return malformed;
  }
}

/** Whether the host, as a URL has it, means all addresses of a machine. */
function isWildcard(host: string): boolean {
  const bare = host.replace(/^\[|\]$/g, "");
  return isIP(bare) !== 0 && ["0.0.0.0", "::", "::ffff:0:0"].includes(bare);
}

function readGateway(gateway: string): Endpoint {
  try {
    return readEndpoint(gateway);
  } catch (error) {
    throw new RegistrationError(`can't register the plugin with the gateway \`${gateway}\`: ${(error as Error).message}`, { cause: error });
  }
}

/** What is registered where. */
interface RegistrationTarget {
  readonly plugin: string;
  readonly endpoint: string;
  readonly gateway: string;
}

/** Why a process isn't registered. */
class RegistrationFailure extends Error {
  constructor(
    /** `token`: it can't be read or sent. `broken`: the gateway can't be reached, or the stream ended. `refused`: trying again soon is useless. */
    readonly kind: "token" | "broken" | "refused",
    message: string,
    readonly code?: status,
  ) {
    super(message);
  }

  /** What the end of a call means for a process that `isRegistered`. */
  static fromEnd({ code, message }: CallEnd, isRegistered: boolean): RegistrationFailure {
    if (code === status.OK) return new RegistrationFailure("broken", "the gateway ended the stream");
    // An expired token may have a successor already.
    const isTransient = TRANSIENT_CODES.has(code) || (isRegistered && code === status.UNAUTHENTICATED);
    return isTransient
      ? new RegistrationFailure("broken", `${status[code]}: ${message}`)
      : new RegistrationFailure("refused", message, code);
  }
}

type RegisterCall = ResettableCall<typeof RegisterRequestSchema, typeof RegisterResponseSchema>;

/** Registers one process. */
class Registrar implements Registration {
  readonly firstAnswer: Promise<RegistrationAnswer | undefined>;
  readonly #stop = new AbortController();
  readonly #done: Promise<void>;
  #resolveFirst!: (answer: RegistrationAnswer | undefined) => void;
  #failures = 0;
  /** What was logged last as the reason why the process isn't registered; `undefined` while it is. */
  #loggedFailure: string | undefined;
  #approvalPending = false;

  constructor(
    private readonly target: RegistrationTarget,
    private readonly token: RegistrationToken,
    private readonly logger: Logger,
    private readonly times: RegistrationTimes,
  ) {
    this.firstAnswer = new Promise((resolve) => (this.#resolveFirst = resolve));
    this.#done = this.#run();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#done;
    this.#resolveFirst(undefined);
  }

  async #run(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const failure = await this.#register(signal).catch(asFailure);
      if (failure === undefined || signal.aborted) return;
      this.#logFailure(failure);
      const wait = failure.kind === "refused" ? this.times.refusalRetryMs : this.#nextBackoff();
      await untilAborted(signal, (resolve) => {
        const timer = setTimeout(resolve, wait).unref();
        return () => clearTimeout(timer);
      });
    }
  }

  /**
   * Registers and renews until the stop, then removes the endpoint.
   *
   * @returns Why the process isn't registered any more, or was not; `undefined` after the stop.
   */
  async #register(signal: AbortSignal): Promise<RegistrationFailure | undefined> {
    // A token's function may take as long as it likes.
    const authorization = await untilAborted<string>(signal, (resolve, reject) => void this.#authorization().then(resolve, reject));
    if (authorization === undefined) return undefined;
    // Read again each time, because the TLS files may have been replaced.
    const gateway = readGateway(this.target.gateway);
    return new Promise((resolve) => {
      new RegistrationStream(gateway, authorization, this.target, this.times.answerMs, signal, {
        onAnswer: (answer, isRenewal) => this.#take(answer, isRenewal),
        onEnd: resolve,
      });
    });
  }

  /** The token, as a header. */
  async #authorization(): Promise<string> {
    const { token } = this;
    const source = typeof token === "object" ? token.file : typeof token === "function" ? "the token's function" : "the option `token`";
    let header: string | undefined;
    try {
      const text = typeof token === "object" ? await readFile(token.file, "utf8") : typeof token === "function" ? await token() : token;
      header = bearer(text.trim());
    } catch (error) {
      throw new RegistrationFailure("token", `can't get the token from ${source}: ${(error as Error).message}`);
    }
    if (header === undefined) throw new RegistrationFailure("token", `${source} has no token that a header can hold`);
    return header;
  }

  #take({ leaseMs, approvalPending }: RegisterResponse, isRenewal: boolean): void {
    const { plugin, endpoint, gateway } = this.target;
    // Not at the first answer: a gateway that breaks every stream after it isn't usable yet.
    if (isRenewal) this.#failures = 0;
    else {
      this.logger.info("registered", { plugin, endpoint, gateway, lease_ms: Number(leaseMs) });
      this.#loggedFailure = undefined;
    }
    if (approvalPending !== this.#approvalPending) {
      this.#approvalPending = approvalPending;
      if (approvalPending) this.logger.warn(`waits for approval: run \`hookgate plugin approve ${plugin}\``, { plugin, gateway });
      else this.logger.info("approved", { plugin, gateway });
    }
    this.#resolveFirst({ leaseMs: Number(leaseMs), approvalPending });
  }

  /** A wait that doubles with every failure, with jitter, so that processes that lost the same gateway don't return at the same moment. */
  #nextBackoff(): number {
    const wait = Math.min(MIN_BACKOFF_MS * 2 ** this.#failures, MAX_BACKOFF_MS);
    this.#failures += 1;
    return wait * (0.5 + Math.random() / 2);
  }

  /** Logs why the process isn't registered, unless it is logged already. */
  #logFailure({ kind, message: error, code }: RegistrationFailure): void {
    if (this.#loggedFailure === error) return;
    this.#loggedFailure = error;
    const attributes = { ...this.target, error };
    if (kind === "token") this.logger.error("can't register", attributes);
    else if (kind === "broken") this.logger.warn("not registered; trying again", attributes);
    else if (code === status.UNIMPLEMENTED) {
      const remedy = "name that of `server.host_addr` or `server.host_socket`";
      this.logger.error(`the address takes no registrations: ${remedy}`, { ...this.target });
    } else this.logger.error("the gateway refuses the registration", { ...attributes, code: status[code ?? status.UNKNOWN] });
  }
}

interface StreamEvents {
  onAnswer(answer: RegisterResponse, isRenewal: boolean): void;
  /** Called once, with the failure, or without one after a stop. */
  onEnd(failure: RegistrationFailure | undefined): void;
}

/** One stream of registrations. It ends itself when the gateway is silent, and at the stop. */
class RegistrationStream {
  readonly #call: RegisterCall;
  #timer: NodeJS.Timeout | undefined;
  #isRegistered = false;
  #hasEnded = false;

  constructor(
    gateway: Endpoint,
    authorization: string,
    { plugin, endpoint }: RegistrationTarget,
    private readonly answerMs: number,
    private readonly stop: AbortSignal,
    private readonly events: StreamEvents,
  ) {
    // A connection of its own: an earlier one may lead to a gateway that is about to end.
    this.#call = new ResettableCall(
      gateway,
      RegistrationService.method.register,
      { authorization },
      {
        onMessage: (answer) => this.#take(answer),
        onEnd: (end) => this.#end(this.stop.aborted ? undefined : RegistrationFailure.fromEnd(end, this.#isRegistered)),
      },
    );
    this.#call.send({ plugin, endpoint });
    this.#awaitAnswer();
    stop.addEventListener("abort", this.#close, { once: true });
    if (stop.aborted) this.#close();
  }

  #take(answer: RegisterResponse): void {
    if (this.stop.aborted) return;
    this.events.onAnswer(answer, this.#isRegistered);
    this.#isRegistered = true;
    const renewalMs = Math.min(Math.max(Number(answer.leaseMs) / 3, MIN_RENEWAL_MS), MAX_RENEWAL_MS);
    this.#schedule(renewalMs, () => {
      this.#call.send({});
      this.#awaitAnswer();
    });
  }

  #awaitAnswer(): void {
    this.#schedule(this.answerMs, () => {
      // Not an orderly end: the gateway would remove the endpoint, perhaps after another replica has registered it again.
      this.#call.reset();
      this.#end(new RegistrationFailure("broken", `no answer within ${this.answerMs} ms`));
    });
  }

  /** Removes the endpoint, and waits until the gateway has done so. */
  readonly #close = (): void => {
    this.#call.end();
    this.#schedule(MAX_CLOSE_MS, () => {
      this.#call.reset();
      this.#end(undefined);
    });
  };

  #schedule(ms: number, action: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(action, ms).unref();
  }

  #end(failure: RegistrationFailure | undefined): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    clearTimeout(this.#timer);
    this.stop.removeEventListener("abort", this.#close);
    this.events.onEnd(failure);
  }
}

function asFailure(error: unknown): RegistrationFailure {
  return error instanceof RegistrationFailure ? error : new RegistrationFailure("broken", (error as Error).message);
}

/**
 * Waits for what `start` begins, or until the signal is aborted, and then resolves with `undefined`. Leaves no listener behind, because the
 * signal outlives many waits.
 *
 * @param start Returns how to give it up, if it needs that.
 */
function untilAborted<T>(
  signal: AbortSignal,
  start: (resolve: (value?: T) => void, reject: (error: unknown) => void) => (() => void) | void,
): Promise<T | undefined> {
  return new Promise<T | undefined>((resolve, reject) => {
    let giveUp: (() => void) | void;
    const abort = () => settle(() => resolve(undefined));
    const settle = (end: () => void) => {
      signal.removeEventListener("abort", abort);
      giveUp?.();
      end();
    };
    signal.addEventListener("abort", abort, { once: true });
    giveUp = start(
      (value) => settle(() => resolve(value)),
      (error) => settle(() => reject(error)),
    );
    if (signal.aborted) abort();
  });
}
