/** Calls a plugin as a gateway does, over a real socket. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { Client, Metadata, type ServiceError, credentials } from "@grpc/grpc-js";
import { grpcTarget, parseAddress } from "../../src/address.js";
import { type InitializeRequestSchema, PluginService } from "../../src/gen/hookgate/plugin/v1/plugin_pb.js";
import { callUnary } from "../../src/grpc.js";
import { type Logger, type Plugin, type ServeOptions, type Server, serve } from "../../src/index.js";

const encoder = new TextEncoder();

/** JSON text in bytes, without the SDK's own rules. */
export function bytes(value: unknown): Uint8Array<ArrayBuffer> {
  return encoder.encode(typeof value === "string" ? value : JSON.stringify(value));
}

/** A folder that the test removes. */
export function temporaryFolder(test: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "hookgate-test-"));
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A log that a test reads. */
export class TestLogger implements Logger {
  readonly lines: string[] = [];

  info(message: string, attributes?: object): void {
    this.#add(message, attributes);
  }

  warn(message: string, attributes?: object): void {
    this.#add(message, attributes);
  }

  error(message: string, attributes?: object): void {
    this.#add(message, attributes);
  }

  #add(message: string, attributes: object = {}): void {
    const texts = Object.values(attributes).map((value) => (value instanceof Error ? value.message : String(value)));
    this.lines.push([message, ...texts].join(" "));
  }
}

type Methods = typeof PluginService.method;

/** A connection to a plugin. */
export class GatewayClient {
  constructor(
    readonly client: Client,
    readonly pluginName: string | undefined,
  ) {}

  static connect(address: string, pluginName?: string, channelCredentials = credentials.createInsecure()): GatewayClient {
    return new GatewayClient(new Client(grpcTarget(parseAddress(address)), channelCredentials), pluginName);
  }

  call<Name extends keyof Methods>(
    name: Name,
    request: MessageInitShape<Methods[Name]["input"]>,
    options: { timeoutMs?: number; signal?: AbortSignal } = {},
  ): Promise<MessageShape<Methods[Name]["output"]>> {
    const metadata = new Metadata();
    if (this.pluginName !== undefined) metadata.set("hookgate-plugin", this.pluginName);
    const method = PluginService.method[name] as unknown as Methods["describe"];
    const deadline = Date.now() + (options.timeoutMs ?? 5_000);
    const answer: Promise<MessageShape<DescMessage>> = callUnary(this.client, method, request as never, {
      metadata,
      options: { deadline },
      signal: options.signal,
    });
    return answer as Promise<MessageShape<Methods[Name]["output"]>>;
  }

  initialize(digest: string, config: unknown = {}, gateway = "gateway-1", more: MessageInitShape<typeof InitializeRequestSchema> = {}) {
    return this.call("initialize", { config: bytes(config), configDigest: digest, gatewayInstanceId: gateway, ...more });
  }

  /** Calls at `before_tool_call`. */
  toolCall(
    toolName: string,
    args: unknown,
    more: { digest?: string; tenantConfig?: unknown; runTool?: boolean; timeoutMs?: number; signal?: AbortSignal } = {},
  ) {
    const { digest = "d", tenantConfig, runTool = false } = more;
    const call = {
      context: { tenant: "acme", operator: "op", requestId: "r-1", labels: {} },
      configDigest: digest,
      runTool,
      ...(tenantConfig === undefined ? {} : { tenantConfig: bytes(tenantConfig), tenantConfigDigest: JSON.stringify(tenantConfig) }),
    };
    return this.call("beforeToolCall", { call, payload: { toolName, args: bytes(args) } }, more);
  }

  /** The status of a call that fails. */
  async failure(call: Promise<unknown>): Promise<ServiceError> {
    return call.then(
      (answer) =>
        Promise.reject(new Error(`answered ${JSON.stringify(answer, (_, value) => (typeof value === "bigint" ? String(value) : value))}`)),
      (error: ServiceError) => error,
    );
  }
}

/** Serves plugins for a test, and connects to the first. */
export async function served(
  test: TestContext,
  plugins: Plugin<any, any> | Plugin<any, any>[],
  options: ServeOptions & { address?: string } = {},
): Promise<{ client: GatewayClient; server: Server; logger: TestLogger }> {
  const logger = new TestLogger();
  const { address = `unix://${temporaryFolder(test)}/s` } = options;
  const server = await serve(plugins, address, { signals: false, drainMs: 500, logger, ...options });
  const client = GatewayClient.connect(server.address);
  test.after(async () => {
    client.client.close();
    await server.stop();
  });
  return { client, server, logger };
}
