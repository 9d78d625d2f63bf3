/** Answers the calls of gateways for one plugin. Owns its instances, one per configuration digest; knows nothing of sockets. */
import { setTimeout as sleep } from "node:timers/promises";
import { type MessageShape, type DescMessage, create } from "@bufbuild/protobuf";
import { Metadata, status } from "@grpc/grpc-js";
import { Context, Host } from "../context.js";
import { PluginError, shorten, statusOf } from "../errors.js";
import * as wire from "../gen/hookgate/plugin/v1/plugin_pb.js";
import { type BeforeToolCallPayload as WireToolCall, ToolSchema } from "../gen/hookgate/types/v1/types_pb.js";
import { type Connect, acquireConnection } from "../host/connection.js";
import { HostLinks } from "../host/index.js";
import { parseJson, writeJsonBytes } from "../json.js";
import type { LogAttributes, Logger } from "../logger.js";
import { BeforeToolCallPayload, HookPayload } from "../payload.js";
import type { Plugin } from "../plugin.js";
import { type Capability, type PointName, type PointOffer, wireNameOf } from "../point.js";
import { HookReply, Reply, contributionToWire } from "../reply.js";
import { SchemaError, check, jsonSchemaOf } from "../schema.js";
import { type Tool, runTool } from "../tool.js";
import type { CallInfo } from "./call-info.js";
import { HeldInstance, Instances, MAX_INSTANCES } from "./instances.js";
import { describePlugin } from "./manifest.js";
import { consumedInWindow } from "./windows.js";
import { noticesToWire, payloadFromWire, replyToWire } from "./wire.js";

/** How long the shutdown waits for an instance to flush: as long as a gateway waits for Shutdown. */
const MAX_FLUSH_MS = 5_000;

/** How many tenant-level configurations are kept checked. With more tenants, some are checked again. */
const MAX_TENANT_CONFIGS = 1024;

/** An error status of gRPC. */
export class StatusError extends Error {
  constructor(
    readonly code: status,
    readonly details: string,
    readonly metadata = new Metadata(),
    options?: ErrorOptions,
  ) {
    super(details, options);
  }
}

/** A checked tenant-level configuration, and what it was. */
interface TenantConfig {
  readonly bytes: Uint8Array;
  readonly checked: unknown;
}

interface OpenCall {
  readonly held: HeldInstance;
  readonly ctx: Context;
  done(): void;
}

/** Answers the calls of gateways for one plugin. */
export class PluginHost {
  readonly #instances = new Instances(() => this.#reportEviction());
  readonly #tenantConfigs = new Map<string, TenantConfig>();
  readonly #flushes = new Set<Promise<void>>();
  readonly #manifest: wire.DescribeResponse;

  constructor(
    readonly plugin: Plugin<any, any>,
    readonly logger: Logger,
    /** How the host services of gateways are reached. */
    private readonly connect: Connect = acquireConnection,
  ) {
    this.#manifest = describePlugin(plugin);
  }

  describe(): wire.DescribeResponse {
    return this.#manifest;
  }

  async initialize(request: wire.InitializeRequest): Promise<wire.InitializeResponse> {
    const { configDigest, gatewayInstanceId: gateway, hostEndpoint: endpoint, hostToken: token } = request;
    if (configDigest === "") throw new StatusError(status.INVALID_ARGUMENT, "`config_digest` is missing");
    const link = { gateway, endpoint, token };
    const [held, evicted] = await this.#instances.start(configDigest, link, () => this.#start(request));
    // Initialize doesn't wait for the calls of the instance that made room.
    if (evicted !== undefined) void this.#flush(evicted, evicted.unused());
    return create(wire.InitializeResponseSchema, { tools: held.instance.tools.map(toolToWire) });
  }

  async callPoint(
    point: PointName,
    request: { call?: wire.Call | undefined; payload?: unknown },
    info: CallInfo,
  ): Promise<MessageShape<DescMessage>> {
    const { call, payload } = present(request);
    if (point === "beforeToolCall" && call.runTool) return this.#runTool(call, payload as WireToolCall, info);
    if (!this.plugin.points.includes(point)) throw this.#notOffered(wireNameOf(point));
    const { access, windows }: PointOffer = this.plugin.manifest.points?.[point] ?? {};
    // A handler that takes only whole answers would let the next part pass unseen.
    if (call.window !== undefined && windows !== true) {
      throw new StatusError(status.INVALID_ARGUMENT, "`call.window`: the plugin doesn't offer `windows`");
    }
    return this.#answer(call, info, async ({ held, ctx }) => {
      const handler = held.instance.handlers[point] as (payload: unknown, ctx: Context) => unknown;
      const reply = await handler.call(held.instance.handlers, payloadFromWire(point, payload, call.window), ctx);
      if (!(reply instanceof Reply)) {
        throw PluginError.internal(`${point} returned ${describeValue(reply)}: return what proceed(), cancel() or answer() makes`);
      }
      if (changesAnything(reply) && access === "read" && reply.cancelled === undefined) {
        throw PluginError.internal(`${point} returned a patch, but the plugin offers it with access \`read\``);
      }
      const consumed = consumedInWindow(point, reply, payload, call.window);
      const warn = (error: unknown) => this.#warn("a part of a cancel was left out", error);
      return replyToWire(point, reply, held.maxReplyBytes, warn, consumed);
    });
  }

  async onHook(request: wire.OnHookRequest, info: CallInfo): Promise<wire.OnHookResponse> {
    const { call, payload } = present(request);
    if (!Object.hasOwn(this.plugin.manifest.hooks ?? {}, payload.hook)) throw this.#notOffered(payload.hook);
    return this.#answer(call, info, async ({ held, ctx }) => {
      const reply = await held.instance.handlers.onHook?.(new HookPayload(payload) as never, ctx);
      if (!(reply instanceof HookReply)) {
        throw PluginError.internal(`onHook returned ${describeValue(reply)}: return what contribute() makes`);
      }
      return create(wire.OnHookResponseSchema, {
        contributions: reply.contributions.map(contributionToWire),
        notices: noticesToWire(reply.notices),
      });
    });
  }

  /** Ends a gateway's use of one configuration, or of all, and flushes what no gateway uses any more. */
  async release(gateway: string, digest?: string): Promise<void> {
    await Promise.all(this.#instances.release(gateway, digest).map((held) => this.#flush(held, held.unused())));
  }

  /** Shuts all instances down after the drain, for the end of the process. */
  async shutdown(): Promise<void> {
    for (const held of this.#instances.takeAll()) void this.#flush(held, Promise.resolve());
    const overdue = new AbortController();
    await Promise.race([Promise.all(this.#flushes), sleep(MAX_FLUSH_MS, undefined, overdue)]).finally(() => overdue.abort());
  }

  /** Flushes an instance when its calls have ended. This happens even if the gateway stops waiting. */
  #flush(held: HeldInstance, ended: Promise<void>): Promise<void> {
    const flushed = (async () => {
      await ended;
      try {
        await held.instance.handlers.shutdown?.(held.instance.state);
      } catch (error) {
        this.#warn("the plugin failed at its shutdown", error);
      } finally {
        held.links.close();
      }
    })();
    this.#flushes.add(flushed);
    return flushed.finally(() => this.#flushes.delete(flushed));
  }

  async #start(request: wire.InitializeRequest): Promise<HeldInstance> {
    const links = new HostLinks(this.logger, this.connect);
    try {
      links.add({ gateway: request.gatewayInstanceId, endpoint: request.hostEndpoint, token: request.hostToken });
      const given = request.config.length > 0 ? parseJson(request.config) : {};
      const config = freeze(await check(this.plugin.manifest.config, given, { secret: true }));
      const host = new Host(links, request.capabilities as Capability[], maxPayloadBytes(request.limits));
      return new HeldInstance(await this.plugin.start(config, host), links, Number(request.limits?.maxReplyBytes ?? 0n) || Infinity);
    } catch (error) {
      links.close();
      if (error instanceof SchemaError) throw new StatusError(status.INVALID_ARGUMENT, shorten(`config: ${error.message}`));
      throw this.#failure("the plugin failed at its start", error);
    }
  }

  async #runTool(call: wire.Call, payload: WireToolCall, info: CallInfo): Promise<MessageShape<DescMessage>> {
    return this.#answer(call, info, async ({ held, ctx }) => {
      const { toolName, args } = new BeforeToolCallPayload(payload);
      const called = held.instance.tools.find(({ name }) => name === toolName);
      if (called === undefined)
        throw new StatusError(status.NOT_FOUND, shorten(`${this.plugin.name} does not provide the tool ${toolName}`));
      const reply = await runTool(called, args, ctx);
      return replyToWire("beforeToolCall", reply, held.maxReplyBytes, (error) => this.#warn(`the tool ${toolName} failed`, error));
    });
  }

  async #answer<T>(call: wire.Call, info: CallInfo, answer: (open: OpenCall) => Promise<T>): Promise<T> {
    const open = await this.#open(call, info);
    try {
      return await answer(open);
    } catch (error) {
      throw error instanceof StatusError ? error : this.#failure("a call failed", error);
    } finally {
      open.done();
    }
  }

  async #open(call: wire.Call, info: CallInfo): Promise<OpenCall> {
    const held = this.#instances.get(call.configDigest);
    if (held === undefined) throw notInitialized();
    // Counted before the first await, so that no release ends the instance in between.
    const done = held.use();
    try {
      const tenantConfig = await this.#tenantConfig(call);
      const { config, state } = held.instance;
      return { held, ctx: new Context({ call, info, config, tenantConfig, state, links: held.links }), done };
    } catch (error) {
      done();
      throw error;
    }
  }

  /** The checked configuration. All tenants with the same one share it, so nobody may change it. */
  async #tenantConfig({ tenantConfig, tenantConfigDigest: digest }: wire.Call): Promise<unknown> {
    const known = this.#tenantConfigs.get(digest);
    if (known !== undefined && Buffer.compare(known.bytes, tenantConfig) === 0) return known.checked;
    let checked: unknown;
    try {
      checked = freeze(await check(this.plugin.manifest.tenantConfig, tenantConfig.length > 0 ? parseJson(tenantConfig) : {}));
    } catch (error) {
      throw new StatusError(status.INVALID_ARGUMENT, shorten(`tenant-level config: ${(error as Error).message}`));
    }
    const [oldest] = this.#tenantConfigs.keys();
    if (this.#tenantConfigs.size >= MAX_TENANT_CONFIGS && oldest !== undefined) this.#tenantConfigs.delete(oldest);
    if (digest !== "") this.#tenantConfigs.set(digest, { bytes: tenantConfig, checked });
    return checked;
  }

  #notOffered(site: string): StatusError {
    return new StatusError(status.UNIMPLEMENTED, shorten(`${this.plugin.name} does not answer at ${site}`));
  }

  #failure(what: string, error: unknown): StatusError {
    this.#warn(what, error);
    const { code, details } = statusOf(error);
    return new StatusError(code, details, new Metadata(), { cause: error });
  }

  /** It may be in use: its next call starts it again, without its state, and shuts down another one. */
  #reportEviction(): void {
    this.#log("too many configurations: the one that was unused for the longest is shut down", { max: MAX_INSTANCES });
  }

  #warn(message: string, error: unknown): void {
    this.#log(message, { error });
  }

  #log(message: string, attributes: LogAttributes): void {
    try {
      this.logger.warn(message, { plugin: this.plugin.name, ...attributes });
    } catch {
      // What is reported must not depend on the log.
    }
  }
}

function present<Payload>({ call, payload }: { call?: wire.Call | undefined; payload?: Payload | undefined }): {
  call: wire.Call;
  payload: Payload;
} {
  if (call?.context === undefined) throw new StatusError(status.INVALID_ARGUMENT, "`call.context` is missing");
  if (payload === undefined) throw new StatusError(status.INVALID_ARGUMENT, "`payload` is missing");
  return { call, payload };
}

/** An empty patch, as in `proceed({}, { notices })`, is none. */
function changesAnything({ patch }: Reply<unknown>): boolean {
  const isEmpty = typeof patch === "object" && patch !== null && Object.keys(patch).length === 0;
  return patch !== undefined && !isEmpty;
}

function notInitialized(): StatusError {
  const metadata = new Metadata();
  metadata.set("hookgate-reason", "NOT_INITIALIZED");
  return new StatusError(status.FAILED_PRECONDITION, "no instance for this config digest", metadata);
}

function toolToWire({ name, description, input, annotations }: Tool) {
  const inputSchema = writeJsonBytes(jsonSchemaOf(input, `the input of the tool ${name}`));
  return create(ToolSchema, { name, description, inputSchema, ...(annotations === undefined ? {} : { annotations }) });
}

function maxPayloadBytes(limits: wire.Limits | undefined): number | undefined {
  const max = Number((limits?.maxReplyBytes ?? 0n) - (limits?.maxNoticeBytes ?? 0n));
  return max > 0 ? max : undefined;
}

/** Makes objects and arrays immutable. Calls of different tenants share a configuration. */
function freeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  const isPlain = Array.isArray(value) || [Object.prototype, null].includes(Object.getPrototypeOf(value));
  if (!isPlain) return value;
  for (const member of Object.values(value)) freeze(member);
  return Object.freeze(value);
}

function describeValue(value: unknown): string {
  return value === null || typeof value !== "object" ? String(value) : "another object";
}
