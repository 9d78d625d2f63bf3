/** Sources of bearer tokens for Node and Bun: a file, or short-lived tokens that are signed here. */
import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { CallContext } from "./call-context.js";

/** The minimum length of an HS256 secret (RFC 7518, section 3.2; docs/protocol.md, section 5). */
const MIN_SECRET_BYTES = 32;
const DEFAULT_TTL_SECONDS = 60;
/** Tokens that are kept. More tenants than this at a time only cost signatures. */
const MAX_KEPT_TOKENS = 1024;

/**
 * The token in a file, such as a projected service account token. The file is read for each call, so a new token counts at
 * once. White space around the token is ignored.
 */
export function tokenFile(path: string | URL): () => Promise<string> {
  return async () => {
    const token = (await readFile(path, "utf8")).trim();
    if (token === "") throw new Error(`the token file ${String(path)} is empty`);
    return token;
  };
}

/** What a signer puts into tokens. */
export interface SignerOptions {
  /** At least 32 bytes. */
  readonly secret: string | Uint8Array;
  /** `iss`: an issuer that the gateway is configured with. */
  readonly issuer: string;
  /** `aud`: the gateway's audience. */
  readonly audience: string;
  /** `sub`: who acts for the tenant. */
  readonly operator: string;
  /** `tenant_id`: the tenant of calls whose context names none. */
  readonly tenant?: string | undefined;
  /** How long a token is valid, in whole seconds, at least 1; the default is 60. Keep it short: a token can't be revoked. */
  readonly ttlSeconds?: number | undefined;
  /** `kid`: names the key, if the gateway knows several. */
  readonly keyId?: string | undefined;
}

/**
 * Signs tokens with HS256 for the tenant of the call's context. They have the scope `hookgate:invoke`, and are used until a
 * fifth of their life is left.
 *
 * @throws {TypeError} If the secret has fewer than 32 bytes, or the time to live isn't a whole number of seconds.
 */
export function hs256Signer(options: SignerOptions): (context: CallContext) => string {
  const { secret, ttlSeconds = DEFAULT_TTL_SECONDS } = options;
  const key = Buffer.from(secret as Uint8Array);
  if (key.length < MIN_SECRET_BYTES) {
    throw new TypeError(`the secret has ${key.length} bytes; HS256 wants at least ${MIN_SECRET_BYTES}`);
  }
  if (!Number.isInteger(ttlSeconds) || ttlSeconds < 1) {
    throw new TypeError(`ttlSeconds must be a whole number from 1, is ${ttlSeconds}`);
  }
  const kept = new Map<string, { token: string; renewAt: number }>();
  return ({ tenant = options.tenant }) => {
    if (tenant === undefined) throw new Error("no tenant: name it in `withContext`, in the call's context, or for the signer");
    const current = kept.get(tenant);
    const now = performance.now();
    if (current !== undefined && now < current.renewAt) return current.token;
    const token = sign(key, tenant, ttlSeconds, options);
    kept.delete(tenant);
    if (kept.size >= MAX_KEPT_TOKENS) kept.delete(kept.keys().next().value as string);
    kept.set(tenant, { token, renewAt: now + ttlSeconds * 800 });
    return token;
  };
}

function sign(key: Buffer, tenant: string, ttlSeconds: number, { issuer, audience, operator, keyId }: SignerOptions): string {
  const now = Math.floor(Date.now() / 1000);
  const header = { typ: "JWT", alg: "HS256", kid: keyId };
  const who = { iss: issuer, aud: audience, sub: operator, tenant_id: tenant };
  const claims = { ...who, scope: "hookgate:invoke", iat: now, exp: now + ttlSeconds };
  const signed = `${base64url(header)}.${base64url(claims)}`;
  return `${signed}.${createHmac("sha256", key).update(signed).digest("base64url")}`;
}

function base64url(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}
