/**
 * Calls Hookgate from an agent over HTTP with `fetch`, for edge runtimes that have no HTTP/2 client. Needs nothing of Node
 * but `node:async_hooks`.
 *
 * ```ts
 * import { FetchAgent } from "@hookgate/sdk/agent-fetch";
 *
 * const gateway = new FetchAgent("https://hookgate.example.com", { token: env.HOOKGATE_TOKEN });
 * const { payload } = await gateway.beforeToolCall({ toolName: "shell.exec", args: { cmd: "ls" } });
 * ```
 *
 * @module @hookgate/sdk/agent-fetch
 */
import { formatAddress, parseAddress } from "../address.js";
import { GatewayClient } from "./client.js";
import { HttpTransport } from "./http-transport.js";
import type { AgentOptions } from "./options.js";

export * from "./exports.js";

/** What holds for every call of a {@link FetchAgent}. */
export interface FetchAgentOptions extends AgentOptions {
  /** Used instead of the runtime's `fetch`. */
  readonly fetch?: typeof fetch | undefined;
}

/** Calls a gateway over HTTP. The runtime keeps the connections. */
export class FetchAgent extends GatewayClient {
  /**
   * @param gateway Where the gateway listens: `http://host:port` or `https://host:port`.
   * @throws {TypeError} If the address or an option is wrong.
   */
  constructor(gateway: string, options: FetchAgentOptions = {}) {
    const address = parseAddress(gateway);
    if (address.kind === "unix") {
      throw new TypeError(`fetch can't connect to ${gateway}: use Agent of "@hookgate/sdk/agent", or an address of http or https`);
    }
    const { fetch = (input, init) => globalThis.fetch(input, init), ...others } = options;
    super(new HttpTransport(formatAddress(address), fetch), others);
  }
}
