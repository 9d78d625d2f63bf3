/** Channels to a gateway. Knows no service. */
import * as tls from "node:tls";
import { type ChannelCredentials, type ClientOptions, Client, credentials } from "@grpc/grpc-js";
import { type Address, grpcTarget } from "./address.js";

/** Certificates for an `https://` address, in PEM form. */
export interface TlsFiles {
  /** The CAs to trust. Without it, those that Node and the machine trust. */
  readonly ca?: string | undefined;
  /** The client certificate, for a server that asks for one. Needs `key`. */
  readonly certificate?: string | undefined;
  /** The private key of the client certificate, not encrypted. */
  readonly key?: string | undefined;
}

/** The largest request limit of a gateway (16 MiB), and the 1 MiB that a message may add to it. */
const MAX_RECEIVE_BYTES = 17 * 1024 * 1024;

const OPTIONS: ClientOptions = {
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // A connection that broke while idle is found before a call needs it.
  "grpc.keepalive_permit_without_calls": 1,
  "grpc.max_receive_message_length": MAX_RECEIVE_BYTES,
  // grpc-js fails calls at once during its backoff. With its defaults of 1 s to 2 min, a gateway that has come back would be out of
  // reach for minutes.
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2_000,
  // A gateway runs beside its callers: a proxy for the internet doesn't reach it, and its DNS holds no service configs.
  "grpc.enable_http_proxy": 0,
  "grpc.service_config_disable_resolution": 1,
};

/**
 * Makes a client for an address. It connects with the first call, and again after a lost connection. Close it after use.
 *
 * @throws If the certificates can't be used.
 */
export function dial(address: Address, files: TlsFiles = {}): Client {
  const options = address.kind === "unix" ? { ...OPTIONS, "grpc.default_authority": "localhost" } : OPTIONS;
  return new Client(grpcTarget(address), credentialsFor(address, files), options);
}

function credentialsFor(address: Address, files: TlsFiles): ChannelCredentials {
  const isTls = address.kind === "tcp" && address.tls;
  return isTls ? credentials.createFromSecureContext(secureContext(files)) : credentials.createInsecure();
}

/**
 * What TLS needs to connect to a server.
 *
 * @throws If the certificates can't be used.
 */
export function secureContext({ ca, certificate: cert, key }: TlsFiles): tls.SecureContext {
  return tls.createSecureContext({ ca: ca ?? trustedRoots(), cert, key });
}

/** The roots of Node and of the machine; `undefined`, so only Node's, before Node 22.15. */
function trustedRoots(): string[] | undefined {
  const { getCACertificates } = tls as { getCACertificates?: (store: "default" | "system") => string[] };
  return getCACertificates && [...getCACertificates("default"), ...getCACertificates("system")];
}
