/** Answers of the AI SDK's models, whole or streamed: what plugins see of them, and how their changes get back. */
import type { GatewayClient } from "../agent/client.js";
import type { CallParameters, Part } from "./ai-prompt.js";
import { type ModelCall, type ModelResponse, type ModelResponsePatch, guardModelResponse } from "./guard.js";
import { isRecord } from "../values.js";

/** What `doGenerate` gives, as far as adapters look at it. */
export interface GenerateResult {
  readonly content: readonly Part[];
  readonly finishReason: unknown;
  readonly usage: unknown;
  readonly providerMetadata?: unknown;
  readonly response?: { readonly body?: unknown } | undefined;
}

/** What `doStream` gives, as far as adapters look at it. */
export interface StreamResult {
  readonly stream: ReadableStream<Part>;
}

/**
 * Asks the gateway before an answer is shown.
 *
 * @returns The answer as plugins left it.
 * @throws {Blocked} A plugin stopped the run, or an answer that must be JSON.
 * @throws {NoDecision} No decision could be made.
 */
export async function guardGenerated(
  gateway: GatewayClient,
  result: GenerateResult,
  params: CallParameters,
  call: ModelCall,
): Promise<GenerateResult> {
  const { content, finishReason, usage } = result;
  const parts = {
    text: joined(content, "text", "text"),
    reasoning: joined(content, "reasoning", "text"),
    hasToolCalls: hasToolCalls(content),
  };
  const patch = await guardModelResponse(gateway, responseOf(parts, finishReason, usage, params), call);
  if (patch === undefined) return result;
  const { providerMetadata: _, ...others } = result;
  const patched = { ...others, content: patchContent(content, patch), finishReason: patch.blocked ? stopLike(finishReason) : finishReason };
  if (result.response === undefined) return patched;
  // The provider's own body has the text as it was.
  const { body: __, ...response } = result.response;
  return { ...patched, response };
}

/**
 * Reads a whole stream, and asks the gateway before any of it is shown.
 *
 * @returns A stream of the answer as plugins left it. If they changed nothing, it has the same parts.
 * @throws {Blocked} A plugin stopped the run, or an answer that must be JSON.
 * @throws {NoDecision} No decision could be made.
 * @throws Whatever broke the stream.
 */
export async function guardStreamed(
  gateway: GatewayClient,
  result: StreamResult,
  params: CallParameters,
  call: ModelCall,
): Promise<StreamResult> {
  const parts = await readAll(result.stream);
  const finish: Partial<Part> = parts.find(({ type }) => type === "finish") ?? {};
  const whole = {
    text: joined(parts, "text-delta", "delta"),
    reasoning: joined(parts, "reasoning-delta", "delta"),
    hasToolCalls: hasToolCalls(parts),
  };
  const patch = await guardModelResponse(gateway, responseOf(whole, finish["finishReason"], finish["usage"], params), call);
  return { ...result, stream: streamOf(patch === undefined ? parts : patchStream(parts, patch)) };
}

function responseOf(
  { text, reasoning, hasToolCalls }: { text: string; reasoning: string; hasToolCalls: boolean },
  finishReason: unknown,
  usage: unknown,
  params: CallParameters,
): ModelResponse {
  const { inputTokens, outputTokens } = isRecord(usage) ? usage : {};
  const tokenUsage = { input: tokenCount(inputTokens), output: tokenCount(outputTokens) };
  const isStructured = params.responseFormat?.type === "json";
  return { content: text, reasoning, tokenUsage, stopReason: stopReasonOf(finishReason), hasToolCalls, isStructured };
}

/** A number in specification v2, and an object since v3. */
function tokenCount(tokens: unknown): number | undefined {
  const total = isRecord(tokens) ? tokens["total"] : tokens;
  return typeof total === "number" ? total : undefined;
}

/** A text in specification v2, and an object with the provider's words since v3. */
function stopReasonOf(finishReason: unknown): string | undefined {
  if (!isRecord(finishReason)) return typeof finishReason === "string" ? finishReason : undefined;
  return stopReasonOf(finishReason["raw"] ?? finishReason["unified"]);
}

/** The ordinary end, in the form of another one. */
function stopLike(finishReason: unknown): unknown {
  return isRecord(finishReason) ? { unified: "stop", raw: undefined } : "stop";
}

function joined(parts: readonly Part[], type: string, member: string): string {
  return parts
    .filter((part) => part.type === type)
    .map((part) => String(part[member] ?? ""))
    .join("");
}

function hasToolCalls(parts: readonly Part[]): boolean {
  return parts.some(({ type }) => type === "tool-call");
}

/**
 * The parts of an answer with the new texts. Each stands in one part, without what the provider said about the old one,
 * such as a signature. Reasoning without text, such as encrypted one, stays.
 */
function patchContent(content: readonly Part[], { content: text, reasoning, blocked }: ModelResponsePatch): Part[] {
  if (blocked !== undefined) return textParts("text", text);
  const isReasoning = ({ type, text }: Part) => type === "reasoning" && text !== "";
  const isText = ({ type }: Part) => type === "text";
  const isCall = ({ type }: Part) => type === "tool-call";
  const patched = reasoning === undefined ? content : replaceParts(content, isReasoning, textParts("reasoning", reasoning), () => true);
  return text === undefined ? [...patched] : replaceParts(patched, isText, textParts("text", text), isCall);
}

function textParts(type: "text" | "reasoning", text = ""): Part[] {
  return text === "" ? [] : [{ type, text }];
}

/** What remains of a stream even if a block takes the answer's place. */
const FRAME: ReadonlySet<string> = new Set(["stream-start", "response-metadata", "finish", "error", "ping"]);
/** What may stand before the answer. */
const HEAD: ReadonlySet<string> = new Set(["stream-start", "response-metadata", "ping"]);
/** What follows a text. */
const TAIL: ReadonlySet<string> = new Set(["tool-input-start", "tool-call", "finish", "error"]);

function patchStream(parts: readonly Part[], { content: text, reasoning, blocked }: ModelResponsePatch): Part[] {
  const isBlocked = blocked !== undefined;
  // Raw parts have the text as it was.
  const kept = parts.filter(({ type }) => (isBlocked ? FRAME.has(type) : type !== "raw"));
  let patched = kept.map((part) => (part.type === "finish" ? patchFinish(part, isBlocked) : part));
  const isReasoning = ({ type }: Part) => /^reasoning-(start|delta|end)$/.test(type);
  const isText = ({ type }: Part) => /^text-(start|delta|end)$/.test(type);
  if (reasoning !== undefined) {
    patched = replaceParts(patched, isReasoning, streamedText("reasoning", reasoning), ({ type }) => !HEAD.has(type));
  }
  return text === undefined ? patched : replaceParts(patched, isText, streamedText("text", text), ({ type }) => TAIL.has(type));
}

function patchFinish({ providerMetadata: _, ...finish }: Part, isBlocked: boolean): Part {
  const { finishReason } = finish;
  return { ...finish, type: "finish", ...(isBlocked ? { finishReason: stopLike(finishReason) } : {}) };
}

function streamedText(kind: "text" | "reasoning", text: string): Part[] {
  const id = `hookgate-${kind}`;
  if (text === "") return [];
  return [
    { type: `${kind}-start`, id },
    { type: `${kind}-delta`, id, delta: text },
    { type: `${kind}-end`, id },
  ];
}

/** Puts new parts in place of the old ones. If there are none, they go before the first later part, or to the end. */
function replaceParts(
  parts: readonly Part[],
  isOld: (part: Part) => boolean,
  replacement: readonly Part[],
  isLater: (part: Part) => boolean,
): Part[] {
  const found = parts.findIndex(isOld);
  const later = parts.findIndex(isLater);
  const at = found !== -1 ? found : later !== -1 ? later : parts.length;
  const before = parts.slice(0, at);
  return [...before, ...replacement, ...parts.slice(at).filter((part) => !isOld(part))];
}

async function readAll(stream: ReadableStream<Part>): Promise<Part[]> {
  const reader = stream.getReader();
  const parts: Part[] = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value);
  return parts;
}

function streamOf(parts: readonly Part[]): ReadableStream<Part> {
  let index = 0;
  return new ReadableStream<Part>({
    pull(controller) {
      const part = parts[index];
      index += 1;
      if (part === undefined) controller.close();
      else controller.enqueue(part);
    },
  });
}
