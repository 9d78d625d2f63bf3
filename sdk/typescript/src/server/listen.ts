/** Listens at an address: a Unix socket or a TCP port. */
import { chmod, unlink } from "node:fs/promises";
import { connect } from "node:net";
import { type Server as GrpcServer, ServerCredentials } from "@grpc/grpc-js";
import { type Address, formatAddress, grpcTarget } from "../address.js";

/** TLS of a TCP address, each in PEM. */
export interface TlsOptions {
  /** The certificate, with those between it and its authority. */
  readonly cert: string | Buffer;
  /** The certificate's key. */
  readonly key: string | Buffer;
  /** Accept only clients with a certificate of these authorities. */
  readonly clientCa?: string | Buffer;
}

/**
 * Binds the server to the address, and returns the address with the actual port. A stale socket file is replaced, one in use is not.
 * The new file has the mode 0660.
 */
export async function listen(server: GrpcServer, address: Address, tls: TlsOptions | undefined): Promise<Address> {
  const secure = address.kind === "tcp" && address.tls;
  if (secure !== (tls !== undefined)) {
    throw new TypeError(
      secure ? `${formatAddress(address)} needs a certificate and a key` : "a certificate and a key need an https:// address",
    );
  }
  try {
    if (address.kind === "unix") await removeStaleSocket(address.path);
    const port = await bind(server, grpcTarget(address), credentials(tls));
    if (address.kind === "tcp") return { ...address, port };
    await chmod(address.path, 0o660);
    return address;
  } catch (error) {
    throw new Error(`can't listen at ${formatAddress(address)}: ${(error as Error).message}`, { cause: error });
  }
}

function credentials(tls: TlsOptions | undefined): ServerCredentials {
  if (tls === undefined) return ServerCredentials.createInsecure();
  const pair = { cert_chain: Buffer.from(tls.cert), private_key: Buffer.from(tls.key) };
  return ServerCredentials.createSsl(tls.clientCa ? Buffer.from(tls.clientCa) : null, [pair], tls.clientCa !== undefined);
}

function bind(server: GrpcServer, target: string, serverCredentials: ServerCredentials): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(target, serverCredentials, (error, port) => (error ? reject(error) : resolve(port)));
  });
}

async function removeStaleSocket(path: string): Promise<void> {
  const failure = await new Promise<string | undefined>((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => resolve(undefined)).once("error", (error: NodeJS.ErrnoException) => resolve(error.code));
    socket.once("connect", () => socket.destroy());
  });
  if (failure === undefined) throw new Error("another process listens there");
  if (failure === "ECONNREFUSED") await unlink(path);
}
