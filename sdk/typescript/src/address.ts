/** Addresses as the gateway's configuration writes them: `unix:///path`, `http://host:port` or `https://host:port`. */

/** A Unix socket, or a TCP port with or without TLS. */
export type Address =
  | { readonly kind: "unix"; readonly path: string }
  | { readonly kind: "tcp"; readonly host: string; readonly port: number; readonly tls: boolean };

/**
 * Parses an address.
 *
 * @throws {TypeError} If it is malformed. The message says what is expected.
 */
export function parseAddress(text: string): Address {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === "unix:" && text.startsWith("unix:///") && text.length > "unix:///".length) {
    return { kind: "unix", path: text.slice("unix://".length) };
  }
  const tls = url?.protocol === "https:";
  const bare = url !== undefined && url.pathname === "/" && url.search === "" && url.hash === "" && url.username === "";
  if (bare && (tls || url.protocol === "http:")) {
    return { kind: "tcp", host: url.hostname, port: Number(url.port || (tls ? 443 : 80)), tls };
  }
  throw new TypeError(`the address ${JSON.stringify(text)} is neither unix:///path, http://host:port nor https://host:port`);
}

/** The address as text. */
export function formatAddress(address: Address): string {
  if (address.kind === "unix") return `unix://${address.path}`;
  return `${address.tls ? "https" : "http"}://${address.host}:${address.port}`;
}

/** The address as gRPC names it: what a channel connects to, or a server listens at. */
export function grpcTarget(address: Address): string {
  return address.kind === "unix" ? `unix:${address.path}` : `${address.host}:${address.port}`;
}
