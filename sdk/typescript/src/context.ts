/** The context of a call: the caller, the time left, the configuration, and the gateway's services. */
import type { Call, CallContext as WireCaller } from "./gen/hookgate/plugin/v1/plugin_pb.js";
import { Decision } from "./gen/hookgate/types/v1/types_pb.js";
import { type Event, HostClient, type HostLinks, Log, Storage, emit } from "./host/index.js";
import type { Capability } from "./point.js";
import type { CallInfo } from "./server/call-info.js";

/** Metadata that a plugin forwards when it calls a gateway or an agent itself. */
const FORWARDED_METADATA = ["traceparent", "tracestate", "hookgate-depth"] as const;

/**
 * Everything that is known about the caller. `tenant`, `operator` and labels named `claim.*` come from the verified token, `exchangeId`,
 * `replay` and `part` from the gateway.
 */
export interface Caller {
  /** The tenant's id, an opaque string. */
  readonly tenant: string;
  /** Who acts for the tenant. */
  readonly operator: string;
  /** The caller's own `x-request-id`. */
  readonly correlationId?: string;
  /** Labels of the request, and the configured claims of the token as `claim.NAME`. */
  readonly labels: { readonly [name: string]: string };
  /** Conversation. */
  readonly sessionId?: string;
  /** Run of the agent. */
  readonly runId?: string;
  /** The run that started this one. */
  readonly parentRunId?: string;
  /** How deep this run is nested among runs. */
  readonly depth?: number;
  /** Agent. */
  readonly agentId?: string;
  /** Agent with its ancestors, in the agent's own notation. */
  readonly agentPath?: string;
  /** Project. */
  readonly projectId?: string;
  /** End user. */
  readonly userId?: string;
  /** Provider of the model in use. */
  readonly provider?: string;
  /** Model in use. */
  readonly model?: string;
  /** The request to a model that this call is a part of, if the gateway is between the agent and the model. */
  readonly exchangeId?: string;
  /**
   * Whether the gateway has asked about this part of a conversation before, and no longer knows the answer. The plugin judges it, and
   * counts nothing.
   */
  readonly replay: boolean;
  /**
   * Whether the call is about one message of a request to a model or one text of its answer, and another call of the same exchange stands for
   * the request or the answer as a whole. The plugin judges it, and counts no request and no answer. Only at `beforeLlmRequest` and
   * `beforeResponse`.
   */
  readonly part: boolean;
}

/** How the chain ended. Only observers get it, who are called after the answer. */
export interface ChainResult {
  /** `undefined` when no decision could be made. */
  readonly decision: "continue" | "block" | "answer" | undefined;
  /** The plugin that blocked or failed. */
  readonly plugin: string | undefined;
  /** Block code, or error code. */
  readonly code: string | undefined;
}

/** What a call needs besides its message. */
interface CallParts<Config, TenantConfig, State> {
  readonly call: Call;
  readonly config: Config;
  readonly tenantConfig: TenantConfig;
  readonly state: State;
  readonly info: CallInfo;
  readonly links: HostLinks;
}

/** The context of a call: the caller, the time left, the configuration, and the gateway's services. */
export class Context<Config = unknown, TenantConfig = unknown, State = unknown> {
  readonly #parts: CallParts<Config, TenantConfig, State>;
  #client: HostClient | undefined;
  #log: Log | undefined;

  /** @internal */
  constructor(parts: CallParts<Config, TenantConfig, State>) {
    this.#parts = parts;
  }

  /** Plugin-level configuration. May hold secrets: never log it. */
  get config(): Config {
    return this.#parts.config;
  }

  /** Tenant-level configuration of this call. */
  get tenantConfig(): TenantConfig {
    return this.#parts.tenantConfig;
  }

  /** What `initialize` returned for the configuration. All calls with the configuration share it. */
  get state(): State {
    return this.#parts.state;
  }

  /** Everything that is known about the caller. */
  get caller(): Caller {
    return this.#wireCaller as Caller;
  }

  /** The tenant's id, an opaque string. */
  get tenant(): string {
    return this.#wireCaller.tenant;
  }

  /** Who acts for the tenant. */
  get operator(): string {
    return this.#wireCaller.operator;
  }

  /** The gateway's id of this invocation (UUIDv7), the same for all plugins of the chain. */
  get requestId(): string {
    return this.#wireCaller.requestId;
  }

  /** How the chain ended, for an observer. */
  get chainResult(): ChainResult | undefined {
    const result = this.#parts.call.chainResult;
    if (result === undefined) return undefined;
    const decisions = { [Decision.CONTINUE]: "continue", [Decision.BLOCK]: "block", [Decision.ANSWER]: "answer" } as const;
    return { decision: decisions[result.decision as keyof typeof decisions], plugin: result.plugin, code: result.code };
  }

  /** Aborted when the gateway gives up the call: its time is over, or the agent hung up. */
  get signal(): AbortSignal {
    return this.#parts.info.signal;
  }

  /** Milliseconds until the gateway gives up the call; 0 once they have passed, `undefined` if there is no limit. */
  get timeLeftMs(): number | undefined {
    const { deadline } = this.#parts.info;
    return deadline === undefined ? undefined : Math.max(0, deadline - Date.now());
  }

  /** The plugin's data for the call's tenant. It can be used until 5 s after the call's deadline. */
  get storage(): Storage {
    return new Storage(this.#hostClient);
  }

  /** Writes to the gateway's log, with the call's tenant and request id. It can be used until 5 s after the call's deadline. */
  get log(): Log {
    this.#log ??= new Log(this.#hostClient);
    return this.#log;
  }

  /**
   * Emits an event for the gateway's operators, with the call's tenant and request id.
   *
   * @throws {HostError} With the kind `rate_limited` if the plugin emits more than 100 events per second.
   * @throws {TypeError} If a field has a wrong type.
   */
  emit(event: Event): Promise<void> {
    return unattended(emit(this.#hostClient, event));
  }

  /** W3C trace context of the call, as received. */
  get traceparent(): string | undefined {
    return this.#forwarded("traceparent");
  }

  /** W3C trace state of the call, as received. */
  get tracestate(): string | undefined {
    return this.#forwarded("tracestate");
  }

  /** The number of gateways that the call has passed, including this one. Forward it as `hookgate-depth`. */
  get depth(): number {
    return Number(this.#forwarded("hookgate-depth") ?? 0);
  }

  get #wireCaller(): WireCaller {
    // The host refuses a call without a context.
    return this.#parts.call.context as WireCaller;
  }

  get #hostClient(): HostClient {
    const { links, call, info } = this.#parts;
    const forwarded = Object.fromEntries(
      FORWARDED_METADATA.flatMap((key) => {
        const value = this.#forwarded(key);
        return value === undefined ? [] : [[key, value]];
      }),
    );
    this.#client ??= HostClient.forCall(links, { token: call.hostToken, deadline: info.deadline, forwarded });
    return this.#client;
  }

  #forwarded(key: (typeof FORWARDED_METADATA)[number]): string | undefined {
    return this.#parts.info.metadata.get(key)[0]?.toString();
  }
}

/** What a gateway tells a plugin when it starts it, and its services outside of calls. */
export class Host {
  readonly #links: HostLinks;
  #log: Log | undefined;

  /** @internal */
  constructor(
    links: HostLinks,
    /** The capabilities that the gateway granted. */
    readonly capabilities: readonly Capability[],
    /** Maximum size of a payload after a patch, encoded, in bytes; `undefined` if the gateway did not say. */
    readonly maxPayloadBytes: number | undefined,
  ) {
    this.#links = links;
  }

  /** The plugin's own data, which belongs to no tenant. Use it for background work too: the SDK keeps the token valid. */
  get storage(): Storage {
    return new Storage(this.#client);
  }

  /** Writes to the gateway's log outside of calls. */
  get log(): Log {
    this.#log ??= new Log(this.#client);
    return this.#log;
  }

  /**
   * Emits an event for the gateway's operators outside of calls.
   *
   * @throws {HostError} With the kind `rate_limited` if the plugin emits more than 100 events per second.
   * @throws {TypeError} If a field has a wrong type.
   */
  emit(event: Event): Promise<void> {
    return unattended(emit(this.#client, event));
  }

  get #client(): HostClient {
    this.#links.keepTokens();
    return HostClient.forPlugin(this.#links);
  }
}

/** The same promise. Nobody has to wait for it: a rejection that nobody handles would end the process. */
function unattended<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
