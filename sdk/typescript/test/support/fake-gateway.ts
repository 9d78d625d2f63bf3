/**
 * Scripted gateways on real sockets, one that speaks gRPC and one that speaks HTTP/JSON. Scripts and received calls have the
 * form of the HTTP API. Over gRPC it is translated with the generated descriptors, so nothing here depends on the client.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import {
  type DescEnum,
  type DescField,
  type DescMessage,
  type Message,
  ScalarType,
  create,
  isFieldSet,
  toBinary,
} from "@bufbuild/protobuf";
import { BinaryWriter } from "@bufbuild/protobuf/wire";
import {
  Metadata,
  type MethodDefinition,
  Server,
  ServerCredentials,
  type ServiceDefinition,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { Agent, type GatewayClient } from "../../src/agent/index.js";
import { FetchAgent } from "../../src/agent/fetch.js";
import type { AgentOptions } from "../../src/agent/options.js";
import { ChainReportSchema, ExtensionPointService, HookService, ToolService } from "../../src/gen/hookgate/gateway/v1/gateway_pb.js";
import { serviceDefinition } from "../../src/grpc.js";
import { type JsonObject, type JsonValue, parseJson, writeJson } from "../../src/json.js";

/** A call that arrived. */
export interface ReceivedCall {
  readonly method: string;
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** The message in the form of the HTTP API, for a hook with the member `hook`. */
  readonly body: JsonObject;
  /** The caller's end of the connection. */
  readonly peer: string;
  /** Resolves when the caller goes away before an answer. */
  readonly abandoned: Promise<void>;
}

/** An error of the gateway. */
export interface GatewayError {
  readonly code: string;
  /** HTTP status, from which that of gRPC follows. */
  readonly status: number;
  readonly detail: string;
  readonly retryAfterMs?: number;
  readonly errors?: readonly { pointer: string; message: string }[];
  readonly plugin?: string;
  readonly binding?: string;
  readonly reason?: string;
  readonly steps?: readonly JsonObject[];
}

/** How the gateway answers a call. */
export type Reply =
  | { readonly answer: JsonObject }
  | { readonly error: GatewayError }
  | { readonly hang: true }
  | { readonly dropConnection: true }
  | { readonly http: HttpReply; readonly grpc: Uint8Array | { readonly code: status; readonly details: string } };

/** What an HTTP server may send. */
export interface HttpReply {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array;
}

/** A gateway that answers as it is told. */
export interface FakeGateway extends AsyncDisposable {
  readonly transport: "grpc" | "http";
  readonly url: string;
  readonly calls: ReceivedCall[];
  /** Answers calls from now on. Without it, payloads come back as they are, and hooks contribute nothing. */
  reply(next: Reply | ((call: ReceivedCall) => Reply | Promise<Reply>)): void;
  /** An agent of this gateway. */
  agent(options?: AgentOptions): GatewayClient;
  close(): Promise<void>;
}

/** Members of every answer. */
export const FACTS = { notices: [], steps: [], plan_digest: "plan", revision: 7, request_id: "id" } as const;

/** An answer that goes on with this payload. */
export function continues(payload: JsonObject, others: JsonObject = {}): { answer: JsonObject } {
  return { answer: { decision: "continue", payload, modified: false, ...FACTS, notices: [], steps: [], ...others } };
}

const PATHS: Readonly<Record<string, string>> = {
  "/v1/before-llm-request": "beforeLlmRequest",
  "/v1/before-tool-call": "beforeToolCall",
  "/v1/after-tool-result": "afterToolResult",
  "/v1/before-response": "beforeResponse",
  "/v1/tools": "listTools",
};

/** What the gateways have in common. */
class Script {
  readonly calls: ReceivedCall[] = [];
  #next: (call: ReceivedCall) => Reply | Promise<Reply> = echo;

  set(next: Reply | ((call: ReceivedCall) => Reply | Promise<Reply>)): void {
    this.#next = typeof next === "function" ? next : () => next;
  }

  async answer(call: ReceivedCall): Promise<Reply> {
    this.calls.push(call);
    return this.#next(call);
  }
}

function echo({ method, body }: ReceivedCall): Reply {
  if (method === "runHook") return { answer: { contributions: [], ...FACTS, notices: [], steps: [] } };
  if (method === "listTools") return { answer: { tools: [], plan_digest: "plan", revision: 7 } };
  return continues(body["payload"] as JsonObject);
}

/** Starts a gateway that speaks HTTP/JSON. */
export async function startHttp(port = 0): Promise<FakeGateway> {
  const script = new Script();
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length === 0 ? {} : (parseJson(Buffer.concat(chunks)) as JsonObject);
    const hook = /^\/v1\/hooks\/(.+)$/.exec(request.url ?? "")?.[1];
    const reply = await script.answer({
      method: hook === undefined ? (PATHS[request.url ?? ""] ?? `${request.url}`) : "runHook",
      headers: request.headers as Record<string, string>,
      body: hook === undefined ? body : { hook, ...body },
      peer: `${request.socket.remotePort}`,
      abandoned: new Promise((resolve) => response.on("close", () => response.writableFinished || resolve())),
    });
    if ("hang" in reply) return;
    if ("dropConnection" in reply) return void request.socket.destroy();
    const { status, headers, body: sent } = httpReply(reply);
    response.writeHead(status, headers).end(sent);
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return fakeGateway("http", url, script, (options) => new FetchAgent(url, options), close);
}

function httpReply(reply: Exclude<Reply, { hang: true } | { dropConnection: true }>): HttpReply {
  if ("http" in reply) return reply.http;
  if ("error" in reply) {
    const { status, code, detail, retryAfterMs, ...others } = reply.error;
    const members = { type: `urn:hookgate:error:${code}`, title: "Error", status, detail, code, request_id: "error-id", ...others };
    const retryAfter = retryAfterMs === undefined ? {} : { "retry-after": String(Math.ceil(retryAfterMs / 1000)) };
    return { status, headers: { "content-type": "application/problem+json", ...retryAfter }, body: writeJson(members) };
  }
  const { decision, block } = reply.answer;
  const decided: Record<string, string> = decision === undefined ? {} : { "hookgate-decision": String(decision) };
  const headers = { "content-type": "application/json", ...decided };
  const problem = { type: "urn:hookgate:block:X", title: "Forbidden", status: 403, detail: "no", code: "X" };
  const body = writeJson(block === undefined ? reply.answer : { ...problem, ...reply.answer });
  return { status: decision === "block" ? 403 : 200, headers, body };
}

/** Starts a gateway that speaks gRPC. */
export async function startGrpc(address = "127.0.0.1:0"): Promise<FakeGateway> {
  const script = new Script();
  const server = new Server({ "grpc.max_receive_message_length": 17 << 20 });
  for (const service of [ExtensionPointService, HookService, ToolService]) {
    const definition: ServiceDefinition = Object.fromEntries(
      Object.entries(serviceDefinition(service)).map(([name, method]) => [name, sendingBytes(method)]),
    );
    const handlers = service.methods.map(({ localName, input, output }) => [localName, grpcHandler(script, localName, input, output)]);
    server.addService(definition, Object.fromEntries(handlers));
  }
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, bound) => (error ? reject(error) : resolve(bound)));
  });
  const url = address.startsWith("unix:") ? address.replace("unix:", "unix://") : `http://127.0.0.1:${port}`;
  const close = async () => server.forceShutdown();
  return fakeGateway("grpc", url, script, (options) => new Agent(url, options), close);
}

/** Sends bytes as they are, so that a script can send what is no message. */
function sendingBytes<I, O>(method: MethodDefinition<I, O>): MethodDefinition<I, O> {
  const responseSerialize = (message: O) => (message instanceof Uint8Array ? Buffer.from(message) : method.responseSerialize(message));
  return { ...method, responseSerialize };
}

interface GrpcCall {
  readonly request: object;
  readonly metadata: Metadata;
  getPeer(): string;
  getDeadline(): unknown;
  on(event: "cancelled", listener: () => void): void;
}

function grpcHandler(script: Script, method: string, input: DescMessage, output: DescMessage) {
  return async (call: GrpcCall, respond: (error: Partial<ServiceError> | null, answer?: object) => void) => {
    const abandoned = new Promise<void>((resolve) => call.on("cancelled", resolve));
    const headers = { ...(call.metadata.getMap() as Record<string, string>), "grpc-timeout": String(call.getDeadline()) };
    const body = parseJson(messageToJson(input, call.request as Record<string, unknown>)) as JsonObject;
    const reply = await script.answer({ method, headers, body, peer: call.getPeer(), abandoned });
    if ("hang" in reply) return;
    if ("dropConnection" in reply) return respond({ code: status.UNAVAILABLE, details: "dropped" });
    if ("error" in reply) return respond(grpcError(reply.error));
    if ("answer" in reply) return respond(null, messageFromJson(output, reply.answer));
    return reply.grpc instanceof Uint8Array ? respond(null, reply.grpc) : respond(reply.grpc);
  };
}

function fakeGateway(
  transport: FakeGateway["transport"],
  url: string,
  script: Script,
  connect: (options: AgentOptions) => GatewayClient,
  closeServer: () => Promise<void>,
): FakeGateway {
  const agents: GatewayClient[] = [];
  const close = async () => {
    for (const agent of agents) agent.close();
    await closeServer();
  };
  return {
    transport,
    url,
    calls: script.calls,
    reply: (next) => script.set(next),
    agent: (options = {}) => {
      const agent = connect({ token: "token", ...options });
      agents.push(agent);
      return agent;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Statuses of gRPC by those of HTTP (docs/errors.md), as far as the tests need them. */
const GRPC_STATUSES: Readonly<Record<number, status>> = {
  400: status.INVALID_ARGUMENT,
  401: status.UNAUTHENTICATED,
  409: status.ABORTED,
  429: status.RESOURCE_EXHAUSTED,
  502: status.INTERNAL,
  503: status.UNAVAILABLE,
  504: status.DEADLINE_EXCEEDED,
};

function grpcError(error: GatewayError): Partial<ServiceError> {
  const { plugin, binding, reason, retryAfterMs, errors, steps } = error;
  const details = [detail("google.rpc.ErrorInfo", errorInfo(error.code, { plugin, binding, step_reason: reason }))];
  if (retryAfterMs !== undefined) {
    const delay = new BinaryWriter()
      .tag(1, 0)
      .int64(Math.floor(retryAfterMs / 1000))
      .finish();
    details.push(detail("google.rpc.RetryInfo", new BinaryWriter().tag(1, 2).bytes(delay).finish()));
  }
  if (errors !== undefined) {
    const writer = new BinaryWriter();
    for (const { pointer, message } of errors) writer.tag(1, 2).bytes(pair(pointer, message));
    details.push(detail("google.rpc.BadRequest", writer.finish()));
  }
  if (steps !== undefined) {
    const report = messageFromJson(ChainReportSchema, { steps: [...steps] });
    details.push(detail("hookgate.gateway.v1.ChainReport", toBinary(ChainReportSchema, create(ChainReportSchema, report))));
  }
  const code = GRPC_STATUSES[error.status] ?? status.UNKNOWN;
  const rpcStatus = new BinaryWriter().tag(1, 0).int32(code).tag(2, 2).string(error.detail);
  for (const any of details) rpcStatus.tag(3, 2).bytes(any);
  const metadata = new Metadata();
  metadata.set("grpc-status-details-bin", Buffer.from(rpcStatus.finish()));
  metadata.set("x-request-id", "error-id");
  return { code, details: error.detail, metadata };
}

function detail(type: string, value: Uint8Array): Uint8Array {
  return new BinaryWriter().tag(1, 2).string(`type.googleapis.com/${type}`).tag(2, 2).bytes(value).finish();
}

function errorInfo(reason: string, metadata: Readonly<Record<string, string | undefined>>): Uint8Array {
  const writer = new BinaryWriter().tag(1, 2).string(reason).tag(2, 2).string("hookgate");
  for (const [key, value] of Object.entries(metadata)) if (value !== undefined) writer.tag(3, 2).bytes(pair(key, value));
  return writer.finish();
}

function pair(first: string, second: string): Uint8Array {
  return new BinaryWriter().tag(1, 2).string(first).tag(2, 2).string(second).finish();
}

/** The JSON text of a message as the HTTP API has it. */
function messageToJson(schema: DescMessage, message: Record<string, unknown>): string {
  const members = schema.fields
    .filter((field) => isFieldSet(message as Message, field))
    .map((field) => `"${field.name}":${fieldToJson(field, valueIn(field, message))}`);
  return `{${members.join(",")}}`;
}

function valueIn({ oneof, localName }: DescField, message: Record<string, unknown>): unknown {
  return oneof === undefined ? message[localName] : (message[oneof.localName] as { value?: unknown }).value;
}

function fieldToJson(field: DescField, value: unknown): string {
  if (field.fieldKind === "map") return JSON.stringify(value);
  if (field.fieldKind === "list") {
    return `[${(value as never[]).map((item) => messageToJson(field.message as DescMessage, item)).join(",")}]`;
  }
  if (field.fieldKind === "message") return messageToJson(field.message, value as Record<string, unknown>);
  if (field.scalar !== ScalarType.BYTES) return typeof value === "bigint" ? String(value) : JSON.stringify(value);
  return field.oneof ? `"${Buffer.from(value as Uint8Array).toString("base64")}"` : new TextDecoder().decode(value as Uint8Array);
}

/** What `create` takes for a message whose HTTP form this is. */
function messageFromJson(schema: DescMessage, json: JsonObject): Record<string, unknown> {
  const message: Record<string, unknown> = {};
  for (const field of schema.fields) {
    const member = json[field.name];
    if (member === undefined) continue;
    const value = fieldFromJson(field, member);
    if (field.oneof) message[field.oneof.localName] = { case: field.localName, value };
    else message[field.localName] = value;
  }
  return create(schema, message as never);
}

function fieldFromJson(field: DescField, member: JsonValue): unknown {
  if (field.fieldKind === "list") return (member as JsonObject[]).map((item) => messageFromJson(field.message as DescMessage, item));
  if (field.fieldKind === "message") return messageFromJson(field.message, member as JsonObject);
  if (field.fieldKind === "enum") return enumNumber(field.enum, String(member));
  if (field.scalar === ScalarType.UINT64) return BigInt(member as number);
  if (field.scalar !== ScalarType.BYTES) return member;
  return field.oneof ? Buffer.from(String(member), "base64") : new TextEncoder().encode(writeJson(member));
}

/** A name that the enum doesn't have becomes a number that it doesn't have. */
function enumNumber({ values, sharedPrefix }: DescEnum, name: string): number {
  return values.find((value) => value.name === `${sharedPrefix?.toUpperCase()}${name.toUpperCase()}`)?.number ?? 77;
}
