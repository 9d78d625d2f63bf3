/** Endpoints of a gateway's host services, with the TLS files that the environment names. */
import { readFileSync } from "node:fs";
import type { Client } from "@grpc/grpc-js";
import { type Address, parseAddress } from "../address.js";
import { type TlsFiles, dial, secureContext } from "../channel.js";

/** Names a PEM file with the CAs to trust at `https://` endpoints. Without it, those that Node and the machine trust. */
const CA_FILE = "HOOKGATE_HOST_CA_FILE";
/** Name the PEM files of a client certificate and its private key, for a gateway with `server.tls.client_ca_file`. */
const CERT_FILE = "HOOKGATE_HOST_CERT_FILE";
const KEY_FILE = "HOOKGATE_HOST_KEY_FILE";

/** Why an endpoint can't be used, and what to do. */
export class DialError extends Error {
  override name = "DialError";
}

/** An endpoint that can be connected to. */
export interface Endpoint {
  readonly address: Address;
  readonly files: TlsFiles;
}

/**
 * Reads `unix:///path`, `http://host:port` or `https://host:port`, and the TLS files for it.
 *
 * @throws {DialError} If the text is malformed, or a file can't be used.
 */
export function readEndpoint(endpoint: string, environment: NodeJS.ProcessEnv = process.env): Endpoint {
  try {
    const address = parseAddress(endpoint);
    const files = address.kind === "tcp" && address.tls ? readTlsFiles(environment) : {};
    return { address, files };
  } catch (error) {
    if (error instanceof DialError) throw error;
    throw new DialError((error as Error).message, { cause: error });
  }
}

/**
 * Makes a client for an endpoint.
 *
 * @throws {DialError} If the endpoint can't be used.
 */
export function dialEndpoint(endpoint: string): Client {
  const { address, files } = readEndpoint(endpoint);
  return dial(address, files);
}

function readTlsFiles(environment: NodeJS.ProcessEnv): TlsFiles {
  const files = {
    ca: readPem(environment, CA_FILE, "-----BEGIN CERTIFICATE-----", "certificate"),
    certificate: readPem(environment, CERT_FILE, "-----BEGIN CERTIFICATE-----", "certificate"),
    key: readPem(environment, KEY_FILE, "PRIVATE KEY-----", "private key"),
  };
  if ((files.certificate === undefined) !== (files.key === undefined)) {
    const missing = files.key === undefined ? KEY_FILE : CERT_FILE;
    throw new DialError(`${CERT_FILE} and ${KEY_FILE} belong together; ${missing} is not set`);
  }
  if (files.key?.includes("ENCRYPTED")) {
    throw new DialError(`${KEY_FILE}: ${environment[KEY_FILE]} is encrypted; name a file with the key in plaintext`);
  }
  checkTlsFiles(files);
  return files;
}

function readPem(environment: NodeJS.ProcessEnv, variable: string, marker: string, content: string): string | undefined {
  const file = environment[variable];
  if (file === undefined) return undefined;
  let pem: string;
  try {
    pem = readFileSync(file, "utf8");
  } catch (error) {
    throw new DialError(`${variable}: can't read ${file}: ${(error as Error).message}`, { cause: error });
  }
  if (!pem.includes(marker)) throw new DialError(`${variable}: ${file} has no ${content} in PEM form`);
  return pem;
}

function checkTlsFiles(files: TlsFiles): void {
  try {
    secureContext(files);
  } catch (error) {
    const reason = `TLS can't be used for the host services: ${(error as Error).message}`;
    throw new DialError(`${reason}; check the files that ${CA_FILE}, ${CERT_FILE} and ${KEY_FILE} name`, { cause: error });
  }
}
