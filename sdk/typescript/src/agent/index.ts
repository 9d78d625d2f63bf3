/**
 * Calls Hookgate from an agent over gRPC.
 *
 * ```ts
 * import { Agent, Blocked } from "@hookgate/sdk/agent";
 *
 * const gateway = new Agent("http://127.0.0.1:8080", { token: process.env.HOOKGATE_TOKEN });
 * try {
 *   const { payload } = await gateway.beforeToolCall({ toolName: "shell.exec", args: { cmd: "ls" } });
 *   await run(payload.toolName, payload.args);
 * } catch (error) {
 *   if (!(error instanceof Blocked)) throw error;
 *   tellTheModel(error.message);
 * }
 * ```
 *
 * @module @hookgate/sdk/agent
 */
import { parseAddress } from "../address.js";
import { type TlsFiles, dial } from "../channel.js";
import { GatewayClient } from "./client.js";
import { GrpcTransport } from "./grpc-transport.js";
import type { AgentOptions } from "./options.js";

export type { TlsFiles } from "../channel.js";
export * from "./exports.js";
export { type SignerOptions, hs256Signer, tokenFile } from "./token.js";

/** What holds for every call of an {@link Agent}, and for its connection. */
export interface GrpcAgentOptions extends AgentOptions, TlsFiles {}

/** Calls a gateway over gRPC, on one connection, which begins with the first call and is made again after a loss. */
export class Agent extends GatewayClient {
  /**
   * @param gateway Where the gateway listens: `http://host:port`, `https://host:port` or `unix:///path`.
   * @throws {TypeError} If the address or an option is wrong.
   * @throws If the certificates can't be used.
   */
  constructor(gateway: string, options: GrpcAgentOptions = {}) {
    const { ca, certificate, key, ...others } = options;
    super(new GrpcTransport(dial(parseAddress(gateway), { ca, certificate, key })), others);
  }
}
