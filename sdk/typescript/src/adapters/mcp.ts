/**
 * Puts tools of the Model Context Protocol behind the gateway, at the client or at the server. Takes those of the package
 * `@modelcontextprotocol/sdk`, and of `@modelcontextprotocol/client` and `@modelcontextprotocol/server`.
 *
 * ```ts
 * import { Client } from "@modelcontextprotocol/sdk/client/index.js";
 * import { guardClient } from "@hookgate/sdk/mcp";
 *
 * const client = guardClient(gateway, new Client({ name: "agent", version: "1.0.0" }));
 * const result = await client.callTool({ name: "read", arguments: { path: "/etc/hosts" } });
 * ```
 *
 * Where it doesn't reach: resources, prompts, sampling, elicitation, and notifications.
 *
 * @module @hookgate/sdk/mcp
 */
import type { GatewayClient } from "../agent/client.js";
import { Blocked } from "../agent/errors.js";
import type { JsonValue } from "../json.js";
import { type ToolOutcome, findGatewayError, guardToolRun } from "./guard.js";
import { fromJson, isRecord, toText } from "../values.js";

export { PatchError, findGatewayError } from "./guard.js";

/** A client, as far as {@link guardClient} uses it. */
export interface McpClient {
  /** Calls a tool. */
  callTool(...args: any[]): Promise<any>;
  /** Sends any request, and waits for its result. */
  request(...args: any[]): Promise<any>;
}

/** A server without `McpServer` around it, as far as {@link guardServer} uses it. */
export interface McpProtocol {
  /** Answers requests that have no handler. */
  fallbackRequestHandler?: unknown;
  /** Sets the handler of a method. */
  setRequestHandler(...args: any[]): void;
  /** Throws if the method has a handler. */
  assertCanSetRequestHandler(method: any): void;
  /** Gets errors that the other side isn't told about. */
  onerror?: ((error: Error) => void) | undefined;
}

/** A server, as far as {@link guardServer} uses it: an `McpServer`, or a `Server`. */
export type AnyMcpServer =
  | McpProtocol
  | {
      /** The server within. */
      readonly server: McpProtocol;
    };

const CALL_TOOL = "tools/call";

interface CallParams {
  readonly name: string;
  readonly arguments?: Record<string, unknown> | undefined;
}

/**
 * Puts the tools that a client calls behind the gateway: `before_tool_call` before each call is sent, `after_tool_result` on
 * success and on failure. It changes the client itself, so that everything that holds it is guarded.
 *
 * - A plugin may change the arguments and the tool's name. It may give the result instead of the server, or change it.
 * - After a block the result is the message, with `isError`.
 * - A block with the scope `run` throws the `Blocked`, a missing decision the `NoDecision`.
 * - Calls that run as tasks are refused: their results come another way.
 *
 * @returns The same client.
 */
export function guardClient<C extends McpClient>(gateway: GatewayClient, client: C): C {
  const callTool = client.callTool.bind(client);
  const request = client.request.bind(client);
  /** Parameters that were judged: `callTool` makes a request of them. */
  const judged = new WeakSet<object>();
  const guard = (params: CallParams, rest: unknown[], send: (changed: CallParams) => Promise<unknown>) => {
    if ([params, ...rest].some(isTask)) throw refusedTask(params.name);
    return guardCall(gateway, params, { signal: signalIn(rest) }, (changed) => {
      judged.add(changed);
      return send(changed);
    });
  };
  const guarded: McpClient = {
    callTool: async (params: CallParams, ...rest: unknown[]) => guard(params, rest, (changed) => callTool(changed, ...rest)),
    request: async (message: { method: string; params?: CallParams }, ...rest: unknown[]) => {
      const { method, params } = message;
      if (method !== CALL_TOOL || params === undefined || judged.has(params)) return request(message, ...rest);
      return guard(params, rest, (changed) => request({ ...message, params: changed }, ...rest));
    },
  };
  return Object.assign(client, guarded);
}

/**
 * Puts the tools of a server behind the gateway: `before_tool_call` before each runs, `after_tool_result` on success and on
 * failure. It changes the server itself. Call it before the first tool is registered.
 *
 * - A plugin may change the arguments, which the server then validates, and the tool's name. It may give the result instead
 *   of the tool, or change it.
 * - After a block the client gets the message as the result, with `isError`.
 * - A block with the scope `run` is a JSON-RPC error with the code 40300 and the message. It can't end the client's run.
 * - A missing decision is a JSON-RPC error with the code 50300, which doesn't say why. The server's `onerror` gets the
 *   `NoDecision`.
 * - Both also stand for what ends a run within a tool, such as that of an agent, whatever the tool makes of it.
 * - Calls that run as tasks are refused: their results come another way.
 *
 * @returns The same server.
 * @throws {TypeError} If it already has tools, or declares them among its capabilities: leave that to `registerTool`.
 */
export function guardServer<S extends AnyMcpServer>(gateway: GatewayClient, server: S): S {
  const protocol: McpProtocol = "server" in server ? server.server : server;
  try {
    protocol.assertCanSetRequestHandler(CALL_TOOL);
  } catch (cause) {
    throw new TypeError("the server already has tools: guard it before, and don't declare tools among its capabilities", { cause });
  }
  const setRequestHandler = protocol.setRequestHandler.bind(protocol);
  protocol.setRequestHandler = (...args: unknown[]) => {
    const handler = args.at(-1);
    if (typeof handler !== "function") return setRequestHandler(...args);
    // With three arguments, the handler gets the parameters in place of the request.
    const [method, ...between] = args.slice(0, -1);
    const guarded =
      method === CALL_TOOL && between.length > 0
        ? guardParams(gateway, protocol, handler as ParamsHandler)
        : guardHandler(gateway, protocol, handler as RequestHandler);
    return setRequestHandler(method, ...between, guarded);
  };
  guardFallback(gateway, protocol);
  return server;
}

/** What a server knows of a request. The two versions of the SDK have it in different places. */
interface RequestExtra {
  readonly signal?: AbortSignal | undefined;
  readonly requestId?: unknown;
  readonly mcpReq?: { readonly signal?: AbortSignal | undefined; readonly id?: unknown } | undefined;
}

type RequestHandler = (request: { method?: string; params?: CallParams }, extra: RequestExtra) => unknown;

/** A handler of the parameters of `tools/call`. */
type ParamsHandler = (params: CallParams, extra: RequestExtra) => unknown;

function guardParams(gateway: GatewayClient, protocol: McpProtocol, handler: ParamsHandler): ParamsHandler {
  const guarded = guardHandler(gateway, protocol, ({ params }, extra) => handler(params as CallParams, extra));
  return (params, extra) => guarded({ method: CALL_TOOL, params }, extra);
}

/** Guards the handler of requests that have no other, as proxies have it. */
function guardFallback(gateway: GatewayClient, protocol: McpProtocol): void {
  let handler = protocol.fallbackRequestHandler;
  Object.defineProperty(protocol, "fallbackRequestHandler", {
    configurable: true,
    enumerable: true,
    get: () => handler && guardHandler(gateway, protocol, handler as RequestHandler),
    set: (given) => (handler = given),
  });
}

function guardHandler(gateway: GatewayClient, protocol: McpProtocol, handler: RequestHandler): RequestHandler {
  return async (request, extra) => {
    const { method, params } = request;
    if (method !== CALL_TOOL || params === undefined) return handler(request, extra);
    if (isTask(params)) throw refusedTask(params.name);
    const { signal = extra.mcpReq?.signal, requestId = extra.mcpReq?.id } = extra;
    const callId = requestId === undefined ? undefined : String(requestId);
    const send = async (changed: CallParams) => handler({ ...request, params: changed }, extra);
    try {
      return await guardCall(gateway, params, { callId, signal }, send);
    } catch (error) {
      throw rpcErrorOf(error, protocol);
    }
  };
}

/** A call of a tool between the gateway's two points. A result with `isError` is the tool's failure. */
async function guardCall<Params extends CallParams>(
  gateway: GatewayClient,
  params: Params,
  { callId, signal }: { readonly callId?: string | undefined; readonly signal?: AbortSignal | undefined },
  send: (params: Params) => Promise<unknown>,
): Promise<unknown> {
  const args = params.arguments ?? {};
  const call = { toolName: params.name, args, callId, signal };
  const run = async (name: string, changed: unknown) => {
    const value = await send({ ...params, name, ...(changed === args ? {} : { arguments: fromJson(changed as JsonValue) }) });
    return { value, result: value, success: !isRecord(value) || value["isError"] !== true };
  };
  return resultOf(await guardToolRun(gateway, call, run, isElicitation));
}

/** The code of an error that sends the user to a URL first. The tool has not failed. */
const URL_ELICITATION_REQUIRED = -32042;

function isElicitation(error: unknown): boolean {
  return isRecord(error) && error["code"] === URL_ELICITATION_REQUIRED;
}

/** The result for the client: a whole one, or one around a plugin's value. */
function resultOf(outcome: ToolOutcome<unknown>): unknown {
  if (outcome.kind === "own") return outcome.value;
  if (outcome.kind === "failed") throw outcome.error;
  if (outcome.kind === "blocked") return { content: [{ type: "text", text: outcome.blocked.message }], isError: true };
  const { result, success } = outcome;
  if (isRecord(result) && Array.isArray(result["content"])) {
    const whole = fromJson(result as JsonValue) as object;
    // A plugin may change what a failure says, and not that it is one.
    return success ? whole : { ...whole, isError: true };
  }
  const content = [{ type: "text", text: toText(result) }];
  if (!success) return { content, isError: true };
  return isRecord(result) ? { content, structuredContent: fromJson(result) } : { content };
}

/** The codes of JSON-RPC for what ends a call. They are outside of the range that JSON-RPC reserves. */
const BLOCKED_CODE = 40300;
const NO_DECISION_CODE = 50300;

/** An error that the SDK sends as it is. */
class RpcError extends Error {
  override readonly name = "RpcError";
  readonly code: number;
  readonly data: unknown;

  constructor(message: string, code: number, data: unknown, cause?: unknown) {
    super(message, { cause });
    this.code = code;
    this.data = data;
  }
}

/** What the client gets for an error. Why there was no decision is for the operator of the server, not for the client. */
function rpcErrorOf(error: unknown, protocol: McpProtocol): unknown {
  const found = findGatewayError(error);
  if (found === undefined) return error;
  if (found instanceof Blocked) return new RpcError(found.message, BLOCKED_CODE, { code: found.code, scope: found.scope });
  protocol.onerror?.(found);
  return new RpcError("no decision about this call", NO_DECISION_CODE, { code: found.code ?? null }, found);
}

function isTask(value: unknown): boolean {
  return isRecord(value) && value["task"] !== undefined;
}

function refusedTask(name: string): Error {
  return new RpcError(`the tool ${name} can't run as a task, because its result would not be judged`, -32600, undefined);
}

function signalIn(options: readonly unknown[]): AbortSignal | undefined {
  for (const option of options) if (isRecord(option) && option["signal"] instanceof AbortSignal) return option["signal"];
  return undefined;
}
