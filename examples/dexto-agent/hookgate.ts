/** A Dexto plugin that asks the plugins of a Hookgate gateway at Dexto's four points. */
import { readFileSync } from "node:fs";
import {
  Agent,
  Blocked,
  type CallContext,
  type Continue,
  type Media,
  type PointCallOptions,
  fromJson,
  hs256Signer,
  toJson,
  tokenFile,
} from "@hookgate/sdk/agent";

/** Dexto gives a plugin 5 s. The gateway gets less, so that its own reason is the one that shows. */
const MAX_TIMEOUT_MS = 4500;
/** For texts without white space. */
const BASE64 = /^[A-Za-z0-9+/]+=*$/;

/** Where a secret is. It is never in agent.yml itself. */
type SecretSource = { env: string } | { file: string };

/** `config` of the plugin in agent.yml. */
interface Config {
  /** Where the gateway listens, such as `http://127.0.0.1:8080` or `unix:///run/hookgate.sock`. */
  url: string;
  /** The token for calls without a `tenantId`. */
  token?: SecretSource;
  /** The tokens for calls with a `tenantId`. */
  tokens?: Record<string, SecretSource>;
  /** Signs tokens for any `tenantId`, instead of `tokens`. */
  signer?: { secret: SecretSource; issuer: string; audience: string; operator: string };
  timeoutMs?: number;
}

/** What this plugin reads of Dexto's execution context. */
interface Execution {
  sessionId?: string | undefined;
  userId?: string | undefined;
  tenantId?: string | null | undefined;
  llmConfig?: { provider?: string; model?: string };
  abortSignal?: AbortSignal | undefined;
}

interface DextoNotice {
  kind: "allow" | "block" | "warn" | "info";
  code?: string;
  message: string;
  details?: Record<string, unknown>;
}

interface DextoResult {
  ok: boolean;
  modify?: Record<string, unknown>;
  cancel?: boolean;
  message?: string;
  notices: DextoNotice[];
}

interface LlmRequest {
  text: string;
  imageData?: { image: string; mimeType: string };
  fileData?: { data: string; mimeType: string; filename?: string };
}

interface ToolCall {
  toolName: string;
  args: unknown;
  callId?: string;
}

interface ToolOutcome {
  toolName: string;
  result: unknown;
  success: boolean;
  callId?: string;
}

interface Response {
  content: string;
  reasoning?: string;
  provider?: string;
  model?: string;
  router?: string;
  tokenUsage?: { input: number; output: number };
}

export default class Hookgate {
  #agent: Agent | undefined;

  /** An error here ends Dexto's start. */
  async initialize(config: Config): Promise<void> {
    const { url, timeoutMs = MAX_TIMEOUT_MS, ...tokens } = checked(config);
    this.#agent = new Agent(url, { token: tokenSource(tokens), timeoutMs });
  }

  async cleanup(): Promise<void> {
    this.#agent?.close();
  }

  async beforeLLMRequest(payload: LlmRequest, execution: Execution): Promise<DextoResult> {
    const { text, imageData, fileData } = payload;
    const images = imageData === undefined ? [] : [medium(imageData.image, imageData)];
    const files = fileData === undefined ? [] : [medium(fileData.data, fileData)];
    return resultOf(this.#gateway.beforeLlmRequest({ text, images, files }, options(execution)), (left) => {
      // Dexto sends its own parts to the model, and only replaces a text that there was.
      const { images: leftImages = [], files: leftFiles = [], systemPrompt, messages, tools } = left;
      if (!isSameMedia(images, leftImages) || !isSameMedia(files, leftFiles)) throw cannotApply("changed an image or a file");
      if ([systemPrompt, messages, tools].some((added) => added !== undefined)) throw cannotApply("added to the request");
      if (text === "" && left.text !== "") throw cannotApply("added a text to a request without one");
      return { text: left.text };
    });
  }

  async beforeToolCall({ toolName, args, callId }: ToolCall, execution: Execution): Promise<DextoResult> {
    const call = { toolName, args: toJson(args), callId };
    return resultOf(this.#gateway.beforeToolCall(call, options(execution)), (left) => {
      // Dexto only looks at the arguments, and would run the tool of the old name.
      if (left.toolName !== toolName) throw cannotApply("renamed the tool");
      return { args: fromJson(left.args) };
    });
  }

  async afterToolResult({ toolName, result, success, callId }: ToolOutcome, execution: Execution): Promise<DextoResult> {
    const outcome = { toolName, result: toJson(result), success, callId };
    return resultOf(this.#gateway.afterToolResult(outcome, options(execution)), (left) => ({ result: fromJson(left.result) }));
  }

  async beforeResponse(payload: Response, execution: Execution): Promise<DextoResult> {
    const { content, reasoning, provider, model, router, tokenUsage } = payload;
    const response = { content, reasoning, provider, model, router, tokenUsage };
    return resultOf(this.#gateway.beforeResponse(response, options(execution)), (left) => ({
      content: left.content,
      ...(left.reasoning === undefined ? {} : { reasoning: left.reasoning }),
    }));
  }

  get #gateway(): Agent {
    if (this.#agent === undefined) throw new Error("the plugin isn't initialized");
    return this.#agent;
  }
}

/**
 * What the gateway decided, for Dexto. Without a decision this throws: Dexto then stops, with a failure and not with a denial. It would
 * go on after an `ok: false` without `cancel`.
 *
 * @param modify What Dexto has to change, if the gateway's plugins changed the payload.
 */
async function resultOf<P>(call: Promise<Continue<P>>, modify: (left: P) => Record<string, unknown>): Promise<DextoResult> {
  try {
    const { payload, modified, notices } = await call;
    return { ok: true, notices: noticesOf(notices), ...(modified ? { modify: modify(payload) } : {}) };
  } catch (error) {
    if (!(error instanceof Blocked)) throw error;
    const { code, message } = error;
    const notices = noticesOf(error.notices);
    // Dexto derives the status of its own answer from the code of a notice.
    const hasCode = notices.some((notice) => notice.kind === "block" && notice.code === code);
    return { ok: false, cancel: true, message, notices: hasCode ? notices : [...notices, { kind: "block", code, message }] };
  }
}

function noticesOf(notices: Blocked["notices"]): DextoNotice[] {
  return notices.map(({ kind, code, message, details }) => ({
    kind: kind === "unknown" ? "info" : kind,
    message,
    ...(code === undefined ? {} : { code }),
    ...(details === undefined ? {} : { details: fromJson(details) as Record<string, unknown> }),
  }));
}

function cannotApply(what: string): Error {
  return new Error(`a plugin of the gateway ${what}, and Dexto can't apply that`);
}

function options({ sessionId, userId, tenantId, llmConfig = {}, abortSignal }: Execution): PointCallOptions {
  const { provider, model } = llmConfig;
  return { context: { tenant: tenantId ?? undefined, sessionId, userId, provider, model }, signal: abortSignal };
}

/** An image or a file as Dexto has it: base64, a data URL, or where it is. */
function medium(content: string, { mimeType, filename }: { mimeType: string; filename?: string }): Media {
  const base64 = content.replace(/^data:[^,]*;base64,/, "").replace(/\s+/g, "");
  const where = BASE64.test(base64) ? { data: Buffer.from(base64, "base64") } : { url: content };
  return { ...where, mimeType, ...(filename === undefined ? {} : { filename }) };
}

function isSameMedia(sent: readonly Media[], left: readonly Media[]): boolean {
  const form = ({ data, url, mimeType, filename }: Media) =>
    JSON.stringify([data && Buffer.from(data).toString("base64"), url, mimeType, filename]);
  return sent.map(form).join() === left.map(form).join();
}

/** @throws {TypeError} If something in it is missing, unknown or contradictory. */
function checked(config: Config | null | undefined): Config {
  if (config === null || typeof config !== "object") throw new TypeError("config is missing");
  const known = ["url", "token", "tokens", "signer", "timeoutMs"];
  const unknown = Object.keys(config).find((name) => !known.includes(name));
  if (unknown !== undefined) throw new TypeError(`config.${unknown} is unknown: there are ${known.join(", ")}`);
  const { url, token, tokens, signer, timeoutMs = MAX_TIMEOUT_MS } = config;
  if (!isText(url)) throw new TypeError("config.url is missing");
  if (token === undefined && tokens === undefined && signer === undefined) throw new TypeError("config has no token, tokens or signer");
  if (tokens !== undefined && signer !== undefined) throw new TypeError("config has tokens and a signer: leave one of them out");
  // YAML makes a member without a value null.
  if (tokens !== undefined && Object.keys(Object(tokens)).length === 0) throw new TypeError("config.tokens names no tenant");
  if (signer !== undefined) {
    if (signer === null || typeof signer !== "object") throw new TypeError("config.signer must have secret, issuer, audience and operator");
    const missing = (["issuer", "audience", "operator"] as const).find((name) => !isText(signer[name]));
    if (missing !== undefined) throw new TypeError(`config.signer.${missing} is missing`);
  }
  if (!(timeoutMs > 0 && timeoutMs <= MAX_TIMEOUT_MS)) throw new TypeError(`config.timeoutMs must be from 1 to ${MAX_TIMEOUT_MS}`);
  return config;
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

/** The token for a call. A tenant's call never gets the token of another tenant, or the one for calls without a tenant. */
function tokenSource({ token, tokens = {}, signer }: Omit<Config, "url">): (context: CallContext) => Promise<string> {
  const own = token === undefined ? undefined : secretSource(token, "config.token");
  const ofTenants = new Map(Object.entries(tokens).map(([tenant, source]) => [tenant, secretSource(source, `config.tokens.${tenant}`)]));
  const sign = signer && named("config.signer.secret", (path) => hs256Signer({ ...signer, secret: secretNow(signer.secret, path) }));
  return async (context) => {
    const { tenant } = context;
    if (tenant === undefined) {
      if (own === undefined) throw new Error("the call has no tenantId, and config has no token for such calls");
      return own();
    }
    if (tenant === "") throw new Error("the call's tenantId is empty");
    const ofTenant = ofTenants.get(tenant);
    if (ofTenant !== undefined) return ofTenant();
    if (sign !== undefined) return sign(context);
    throw new Error("config has no token for the call's tenantId");
  };
}

/** Reads a secret for each call, so that a new one counts at once. */
function secretSource(source: SecretSource, path: string): () => Promise<string> {
  checkSource(source, path);
  if ("file" in source) return tokenFile(source.file);
  named(path, () => environment(source.env));
  return async () => environment(source.env);
}

function secretNow(source: SecretSource, path: string): string {
  checkSource(source, path);
  return "file" in source ? readFileSync(source.file, "utf8").trim() : environment(source.env);
}

/** The message doesn't quote the value: it may be the secret itself. */
function checkSource(source: unknown, path: string): void {
  const members = Object.entries(Object(source) as object);
  const isSource = members.length === 1 && members.every(([name, value]) => ["env", "file"].includes(name) && isText(value));
  if (!isSource) throw new TypeError(`${path} must be { env: NAME } or { file: PATH }`);
}

/** Says in which member of `config` a mistake is. */
function named<T>(path: string, make: (path: string) => T): T {
  try {
    return make(path);
  } catch (error) {
    const { message } = error as Error;
    throw message.startsWith(path) ? error : new TypeError(`${path}: ${message}`, { cause: error });
  }
}

function environment(name: string): string {
  const value = process.env[name]?.trim();
  if (!value) throw new Error(`the environment has no ${name}`);
  return value;
}
