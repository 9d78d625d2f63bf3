/** Calls plugins as a gateway does. */
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { Client, Metadata, type ServiceError, credentials } from "@grpc/grpc-js";
import {
  type InitializeRequestSchema,
  type InitializeResponse,
  PluginService,
} from "../../../typescript/dist/gen/hookgate/plugin/v1/plugin_pb.js";
import type {
  AfterToolResultPayloadSchema,
  BeforeLlmRequestPayloadSchema,
  BeforeResponsePayloadSchema,
} from "../../../typescript/dist/gen/hookgate/types/v1/types_pb.js";
import { callUnary } from "../../../typescript/dist/grpc.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** JSON text that JavaScript would write differently. */
export class RawJson {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** JSON text in bytes. */
export function bytes(value: unknown): Uint8Array<ArrayBuffer> {
  return encoder.encode(value instanceof RawJson ? value.text : JSON.stringify(value));
}

export function text(value: Uint8Array | undefined): string | undefined {
  return value === undefined || value.length === 0 ? undefined : decoder.decode(value);
}

/** Who calls, and how. */
export interface CallOptions {
  readonly tenant?: string;
  readonly user?: string;
  readonly session?: string;
  readonly run?: string;
  readonly callId?: string;
  readonly labels?: { readonly [name: string]: string };
  readonly hostToken?: string;
  readonly runTool?: boolean;
  readonly timeoutMs?: number;
  readonly success?: boolean;
  readonly args?: unknown;
  readonly extra?: unknown;
  readonly requestId?: string;
  readonly depth?: number;
  readonly parentRun?: string;
}

/** A reply in plain values: JSON values as text. */
export interface PlainReply {
  readonly verdict: "continue" | "cancel";
  readonly code?: string;
  readonly message?: string;
  readonly result?: string | undefined;
  readonly modify: { readonly [name: string]: unknown };
  readonly notices: readonly { readonly code?: string | undefined; readonly message: string }[];
}

type Methods = typeof PluginService.method;

/** One plugin at an address. */
export class PluginClient {
  readonly #client: Client;
  readonly #plugin: string;
  digest = "d";

  constructor(address: string, plugin: string) {
    this.#client = new Client(address.replace("unix://", "unix:").replace("http://", ""), credentials.createInsecure());
    this.#plugin = plugin;
  }

  close(): void {
    this.#client.close();
  }

  call<Name extends keyof Methods>(
    name: Name,
    request: MessageInitShape<Methods[Name]["input"]>,
    timeoutMs = 10_000,
  ): Promise<MessageShape<Methods[Name]["output"]>> {
    const metadata = new Metadata();
    metadata.set("hookgate-plugin", this.#plugin);
    const method = PluginService.method[name] as unknown as Methods["describe"];
    const options = { metadata, options: { deadline: Date.now() + timeoutMs }, signal: undefined };
    const answer: Promise<MessageShape<DescMessage>> = callUnary(this.#client, method, request as never, options as never);
    return answer as Promise<MessageShape<Methods[Name]["output"]>>;
  }

  initialize(config: unknown = {}, more: MessageInitShape<typeof InitializeRequestSchema> = {}): Promise<InitializeResponse> {
    const request = { config: bytes(config), configDigest: this.digest, gatewayInstanceId: "g", capabilities: [], ...more };
    return this.call("initialize", request as never);
  }

  async llmRequest(payload: MessageInitShape<typeof BeforeLlmRequestPayloadSchema>, options: CallOptions = {}): Promise<PlainReply> {
    return plain(await this.call("beforeLlmRequest", { call: this.#call(options), payload }, options.timeoutMs));
  }

  async toolCall(toolName: string, args: unknown, options: CallOptions = {}): Promise<PlainReply> {
    const payload = { toolName, args: bytes(args), ...callIdOf(options), ...extraOf(options) };
    return plain(await this.call("beforeToolCall", { call: this.#call(options), payload }, options.timeoutMs));
  }

  async toolResult(toolName: string, result: unknown, options: CallOptions = {}): Promise<PlainReply> {
    const payload: MessageInitShape<typeof AfterToolResultPayloadSchema> = {
      toolName,
      result: bytes(result),
      success: options.success ?? true,
      ...callIdOf(options),
      ...extraOf(options),
      ...(options.args === undefined ? {} : { args: bytes(options.args) }),
    };
    return plain(await this.call("afterToolResult", { call: this.#call(options), payload }, options.timeoutMs));
  }

  async response(payload: MessageInitShape<typeof BeforeResponsePayloadSchema>, options: CallOptions = {}): Promise<PlainReply> {
    return plain(await this.call("beforeResponse", { call: this.#call(options), payload }, options.timeoutMs));
  }

  async hook(hook: string, body: unknown, options: CallOptions = {}): Promise<{ kind: string; value: unknown }[]> {
    const { contributions } = await this.call(
      "onHook",
      { call: this.#call(options), payload: { hook, body: bytes(body) } },
      options.timeoutMs,
    );
    return contributions.map(({ kind, value }) => ({ kind, value: JSON.parse(text(value) ?? "null") }));
  }

  #call({
    tenant = "acme",
    user,
    session,
    run,
    labels = {},
    hostToken = "",
    runTool = false,
    requestId = "r-1",
    depth,
    parentRun,
  }: CallOptions) {
    const context = {
      tenant,
      operator: "op",
      requestId,
      labels: { ...labels },
      provider: "openai",
      model: "gpt",
      ...(user === undefined ? {} : { userId: user }),
      ...(session === undefined ? {} : { sessionId: session }),
      ...(run === undefined ? {} : { runId: run }),
      ...(depth === undefined ? {} : { depth }),
      ...(parentRun === undefined ? {} : { parentRunId: parentRun }),
    };
    return { context, configDigest: this.digest, hostToken, runTool };
  }
}

function callIdOf({ callId }: CallOptions): { callId?: string } {
  return callId === undefined ? {} : { callId };
}

function extraOf({ extra }: CallOptions): { extra?: Uint8Array<ArrayBuffer> } {
  return extra === undefined ? {} : { extra: bytes(extra) };
}

/** The status of a call that fails. */
export async function failure(call: Promise<unknown>): Promise<{ code: number; details: string }> {
  return call.then(
    (answer) =>
      Promise.reject(new Error(`answered ${JSON.stringify(answer, (_, value) => (typeof value === "bigint" ? String(value) : value))}`)),
    ({ code, details }: ServiceError) => ({ code, details }),
  );
}

function plain(reply: { verdict: any; modify?: any; notices: any[] }): PlainReply {
  const { case: verdict, value } = reply.verdict;
  const members = Object.entries(reply.modify ?? {}).filter(([name, member]) => !name.startsWith("$") && member !== undefined);
  const modify = Object.fromEntries(members.map(([name, member]) => [name, member instanceof Uint8Array ? text(member) : member]));
  for (const [name, member] of Object.entries(modify)) if (member === undefined) delete modify[name];
  const notices = reply.notices.map(({ code, message }) => ({ code, message }));
  if (verdict !== "cancel") return { verdict, modify, notices };
  return { verdict, code: value.code, message: value.message, result: text(value.result), modify, notices };
}
