/** Calls a plugin in a test as a gateway does, without a socket. */
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { type MessageInitShape, create, toBinary } from "@bufbuild/protobuf";
import type { Caller, ChainResult } from "../context.js";
import * as wire from "../gen/hookgate/plugin/v1/plugin_pb.js";
import { type BeforeToolCallPayload as WireToolCall, BeforeToolCallPayloadSchema, ToolSchema } from "../gen/hookgate/types/v1/types_pb.js";
import type { Storage } from "../host/index.js";
import { type JsonValue, writeJsonBytes } from "../json.js";
import type { Logger } from "../logger.js";
import type { ResponseWindow } from "../payload.js";
import type { Plugin } from "../plugin.js";
import { type PointName, type PointOffer, fieldsOf } from "../point.js";
import type { AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch, HookReply, Reply } from "../reply.js";
import type { Schema } from "../schema.js";
import { PluginHost } from "../server/plugin-host.js";
import { ToolError } from "../tool.js";
import { asGateway } from "./call-error.js";
import { InProcessConnection, recode } from "./in-process.js";
import { checkManifest, checkTools } from "./manifest-rules.js";
import {
  type TestLlmRequest,
  type TestResponse,
  type TestToolCall,
  type TestToolResult,
  llmRequestToWire,
  responseToWire,
  toolCallToWire,
  toolResultToWire,
} from "./payloads.js";
import { type PointResponse, type TestTool, factsOf, hookReplyFromWire, replyFromWire, toolFromWire } from "./replies.js";
import { LIMITS, checkHookReply, checkPointReply, checkReplySize, checkResultSize } from "./reply-rules.js";
import { TestCall } from "./test-call.js";
import { TestHost } from "./test-host.js";
import { type WindowedResponse, Windows } from "./windows.js";

const GATEWAY = "test";

/** What a value must be before its schema has checked it and added defaults; without a schema, `{}`. */
export type InputOf<S extends Schema | undefined> = S extends Schema
  ? StandardSchemaV1.InferInput<S>
  : { readonly [member: string]: never };

/** How a plugin is started for a test. */
export interface TestPluginOptions {
  /** The gateway's services. By default new ones. */
  readonly host?: TestHost;
  /** Where the SDK says what happens in the process. By default nowhere. */
  readonly logger?: Logger;
}

/** The context of calls, and the trace that they belong to. */
export interface TestCallContext extends Partial<Caller> {
  /** The gateway's id of the invocation. */
  readonly requestId?: string;
  /** W3C trace context. */
  readonly traceparent?: string;
  /** W3C trace state. */
  readonly tracestate?: string;
}

const POINTS = {
  beforeLlmRequest: { request: wire.BeforeLlmRequestRequestSchema, response: wire.BeforeLlmRequestResponseSchema },
  beforeToolCall: { request: wire.BeforeToolCallRequestSchema, response: wire.BeforeToolCallResponseSchema },
  afterToolResult: { request: wire.AfterToolResultRequestSchema, response: wire.AfterToolResultResponseSchema },
  beforeResponse: { request: wire.BeforeResponseRequestSchema, response: wire.BeforeResponseResponseSchema },
} as const;

type WireWindow = MessageInitShape<typeof wire.ResponseWindowSchema>;

const SILENT: Logger = { info() {}, warn() {}, error() {} };

/** A plugin that was described and initialised. */
interface StartedPlugin {
  readonly plugin: Plugin<any, any>;
  readonly pluginHost: PluginHost;
  readonly host: TestHost;
  readonly tools: readonly TestTool[];
}

/**
 * A plugin that was described and initialised, ready for calls. They go through the SDK as a gateway's do, with messages encoded and
 * decoded, and what a gateway rejects is an error.
 *
 * The `with` methods return another handle to the same instance, for another tenant, configuration or limit. Calls fail with a
 * {@link CallError}.
 *
 * ```ts
 * const plugin = await TestPlugin.start(noShell, { refused_tools: ["shell.exec"] });
 * const reply = await plugin.withTenant("acme").beforeToolCall({ toolName: "shell.exec", args: { cmd: "ls" } });
 * assert.equal(reply.cancelled?.code, "TOOL_NOT_ALLOWED");
 * ```
 */
export class TestPlugin<C extends Schema | undefined = any, T extends Schema | undefined = any> {
  readonly #started: StartedPlugin;
  readonly #call: TestCall;

  private constructor(started: StartedPlugin, call: TestCall) {
    this.#started = started;
    this.#call = call;
  }

  /**
   * Checks the plugin's manifest, then starts the plugin with a plugin-level configuration.
   *
   * @throws {CallError} FAILED_PRECONDITION if a gateway would reject the manifest or the tools, INVALID_ARGUMENT if the configuration
   *   doesn't fit its schema, and otherwise the error of `initialize`.
   */
  static async start<C extends Schema | undefined, T extends Schema | undefined>(
    plugin: Plugin<C, T>,
    config: InputOf<C>,
    { host = new TestHost(), logger = SILENT }: TestPluginOptions = {},
  ): Promise<TestPlugin<C, T>> {
    const pluginHost = new PluginHost(plugin, logger, () => new InProcessConnection(host.services));
    const manifest = recode(wire.DescribeResponseSchema, pluginHost.describe());
    checkManifest(manifest);
    const { capabilities } = manifest;
    const hasServices = capabilities.length > 0;
    const text = writeJsonBytes(config, "config");
    const configDigest = digestOf(text);
    const request = create(wire.InitializeRequestSchema, {
      config: text,
      configDigest,
      capabilities,
      gatewayInstanceId: GATEWAY,
      // As of a gateway, which offers its services only to plugins with capabilities.
      hostEndpoint: hasServices ? "test" : "",
      hostToken: hasServices ? host.services.issueToken({ plugin: plugin.name, capabilities: plugin.manifest.capabilities ?? [] }) : "",
      limits: LIMITS,
    });
    const initialized = await asGateway(() => pluginHost.initialize(recode(wire.InitializeRequestSchema, request)));
    const tools = initialized.tools.map((tool) => recode(ToolSchema, tool));
    checkTools(manifest.tools, tools);
    return new TestPlugin<C, T>({ plugin, pluginHost, host, tools: tools.map(toolFromWire) }, new TestCall({ configDigest }));
  }

  /** Calls for this tenant. The default is `test-tenant`. */
  withTenant(tenant: string): TestPlugin<C, T> {
    return this.withContext({ tenant });
  }

  /** Calls with this tenant-level configuration. The default is `{}`. */
  withTenantConfig(config: InputOf<T>): TestPlugin<C, T> {
    const tenantConfig = writeJsonBytes(config, "tenantConfig");
    return this.#with({ tenantConfig, tenantConfigDigest: digestOf(tenantConfig) });
  }

  /** Calls with these members of the context, besides those so far. */
  withContext({ traceparent, tracestate, ...caller }: TestCallContext): TestPlugin<C, T> {
    const trace = Object.entries({ traceparent, tracestate }).filter((entry): entry is [string, string] => entry[1] !== undefined);
    const { context, metadata } = this.#call.settings;
    return this.#with({ context: { ...context, ...caller }, metadata: { ...metadata, ...Object.fromEntries(trace) } });
  }

  /** Calls it as an observer, after a chain that ended like this. */
  withChainResult(result: Partial<ChainResult>): TestPlugin<C, T> {
    return this.#with({ chainResult: result });
  }

  /** Gives each call this many milliseconds. Then `ctx.signal` is aborted; the test still gets the reply. By default there is no limit. */
  withTimeLeft(ms: number): TestPlugin<C, T> {
    return this.#with({ timeLeftMs: ms });
  }

  /** Aborts `ctx.signal` when this signal is aborted, as if the agent hung up. */
  withSignal(signal: AbortSignal): TestPlugin<C, T> {
    return this.#with({ signal });
  }

  /** The gateway's services that the plugin uses. */
  get host(): TestHost {
    return this.#started.host;
  }

  /** The plugin's data for the tenant, to prepare or to read. It doesn't need the plugin's capabilities. */
  get storage(): Storage {
    return this.host.storageOf(this.#started.plugin.name, this.#call.settings.context.tenant);
  }

  /** The plugin's own data, which belongs to no tenant, to prepare or to read. It doesn't need the plugin's capabilities. */
  get ownStorage(): Storage {
    return this.host.storageOf(this.#started.plugin.name);
  }

  /** The tools that the plugin provides with its configuration. */
  get tools(): readonly TestTool[] {
    return this.#started.tools;
  }

  /** Calls it at `beforeLlmRequest`. */
  beforeLlmRequest(payload: TestLlmRequest): Promise<Reply<BeforeLlmRequestPatch>> {
    return this.#reply("beforeLlmRequest", llmRequestToWire(payload));
  }

  /** Calls it at `beforeToolCall`. */
  beforeToolCall(payload: TestToolCall): Promise<Reply<BeforeToolCallPatch>> {
    return this.#reply("beforeToolCall", toolCallToWire(payload));
  }

  /** Calls it at `afterToolResult`. */
  afterToolResult(payload: TestToolResult): Promise<Reply<AfterToolResultPatch>> {
    return this.#reply("afterToolResult", toolResultToWire(payload));
  }

  /**
   * Calls it at `beforeResponse`.
   *
   * @param options `window` says which part of the answer's text `content` is. By default it is the whole text.
   */
  beforeResponse(
    payload: TestResponse,
    { window }: { readonly window?: Partial<ResponseWindow> } = {},
  ): Promise<Reply<BeforeResponsePatch>> {
    return this.#reply("beforeResponse", responseToWire(payload), window && { ...window, offset: BigInt(window.offset ?? 0) });
  }

  /**
   * Calls it at `beforeResponse` with an answer in windows, as a gateway does while the model writes. It keeps what the plugin hasn't
   * consumed, and shows it again with the next piece behind it. Call it with the same text in other pieces to test that nothing depends on
   * the cuts.
   *
   * @param pieces The text, cut anywhere between characters; a string is a piece per character. The last piece is in the last window.
   * @param rest `reasoning` is shown whole, in the first window, and `tokenUsage` and `stopReason` in the last one.
   * @throws {CallError} If a gateway would reject one of the replies.
   */
  async beforeResponseInWindows(pieces: Iterable<string>, rest: Omit<TestResponse, "content"> = {}): Promise<WindowedResponse> {
    const windows = new Windows(pieces, rest.reasoning);
    for (const { content, window } of windows) {
      const payload: { -readonly [Name in keyof TestResponse]: TestResponse[Name] } = { ...rest, content };
      if (window.seq > 0) delete payload.reasoning;
      if (!window.last) {
        delete payload.tokenUsage;
        delete payload.stopReason;
      }
      windows.take(await this.beforeResponse(payload, { window }));
    }
    return windows.response();
  }

  /**
   * Runs one of the plugin's tools, as a gateway does after all other plugins have let the call pass.
   *
   * @param args A JSON object.
   * @returns What the tool returned, after its way as JSON.
   * @throws {ToolError} What the model sees as the tool's error: the tool's own, or TOOL_ARGS_INVALID for arguments that don't fit `input`.
   * @throws {CallError} Any other error of the tool, or NOT_FOUND if the plugin doesn't provide it.
   */
  async runTool(name: string, args: object = {}): Promise<JsonValue> {
    const response = await this.#callPoint("beforeToolCall", toolCallToWire({ toolName: name, args }), { runTool: true });
    const { cancelled } = replyFromWire("beforeToolCall", response);
    if (cancelled?.result !== undefined) return cancelled.result as JsonValue;
    throw new ToolError(cancelled?.message ?? "", cancelled?.code);
  }

  /** Calls it at a lifecycle hook. The rules for the bodies of known hooks are not checked. */
  async onHook(hook: string, body: object = {}): Promise<HookReply> {
    const payload = { hook, body: writeJsonBytes(body, "body") };
    const message = create(wire.OnHookRequestSchema, { call: this.#message(false), payload });
    const request = recode(wire.OnHookRequestSchema, message);
    const response = await asGateway(() => this.#call.within((info) => this.#started.pluginHost.onHook(request, info)));
    const received = recode(wire.OnHookResponseSchema, response);
    checkHookReply(received);
    return hookReplyFromWire(received);
  }

  /** Shuts the plugin down, as a gateway does at its end. Calls fail afterwards. */
  async shutdown(): Promise<void> {
    await this.#started.pluginHost.release(GATEWAY);
  }

  #with(change: Partial<TestCall["settings"]>): TestPlugin<C, T> {
    return new TestPlugin<C, T>(this.#started, new TestCall({ ...this.#call.settings, ...change }));
  }

  async #reply<Patch>(point: PointName, payload: object & { readonly content?: string }, window?: WireWindow): Promise<Reply<Patch>> {
    const { plugin } = this.#started;
    const response = await this.#callPoint(point, this.#withoutUnread(point, payload), { runTool: false, window });
    checkReplySize(toBinary(POINTS[point].response, response).length);
    checkPointReply(plugin.name, point, plugin.manifest.points?.[point]?.access ?? "modify", factsOf(response));
    return replyFromWire<Patch>(point, response, payload.content);
  }

  /** A gateway doesn't send large members that the plugin doesn't read. */
  #withoutUnread(point: PointName, payload: object): object {
    const offer: PointOffer = this.#started.plugin.manifest.points?.[point] ?? {};
    const { reads = fieldsOf(point) } = offer;
    const isSent = (name: string) => !fieldsOf(point).some((field) => field === name && !reads.includes(field));
    return Object.fromEntries(Object.entries(payload).filter(([name]) => isSent(name)));
  }

  async #callPoint(
    point: PointName,
    payload: object,
    { runTool, window }: { runTool: boolean; window?: WireWindow | undefined },
  ): Promise<PointResponse> {
    const { request, response } = POINTS[point];
    const call = { ...this.#message(runTool), ...(window === undefined ? {} : { window }) };
    const message = create(request, { call, payload } as MessageInitShape<typeof request>);
    const received = recode(request, message);
    const answer = await asGateway(() => this.#call.within((info) => this.#started.pluginHost.callPoint(point, received, info)));
    const replied = recode(response, answer as PointResponse);
    const { verdict } = replied;
    if (point === "beforeToolCall" && verdict.case === "cancel") {
      checkResultSize(verdict.value.result.length, toBinary(BeforeToolCallPayloadSchema, received.payload as WireToolCall).length);
    }
    return replied;
  }

  #message(runTool: boolean): MessageInitShape<typeof wire.CallSchema> {
    const { plugin, host } = this.#started;
    const { capabilities = [] } = plugin.manifest;
    const { tenant } = this.#call.settings.context;
    const hostToken = capabilities.length > 0 ? host.services.issueToken({ plugin: plugin.name, tenant, capabilities }) : "";
    return this.#call.toWire({ hostToken, runTool });
  }
}

/** Digests are opaque to a plugin, so the text itself can serve as its digest. */
function digestOf(text: Uint8Array): string {
  return new TextDecoder().decode(text);
}
