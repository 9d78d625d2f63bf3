/** Answers of the AI SDK's models, whole or streamed: what plugins see of them, and how their changes get back. */
import type { GatewayClient } from "../agent/client.js";
import type { CallParameters, Part } from "./ai-prompt.js";
import { type AnswerWalk, findParts, patchParts } from "./answer-parts.js";
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
  const patch = await guardModelResponse(gateway, responseOf(content, finishReason, usage, params), call);
  if (patch === undefined) return result;
  const { providerMetadata: _, ...others } = result;
  const patched = {
    ...others,
    content: patchPassages(patch.blocked ? [] : content, patch, false),
    finishReason: patch.blocked ? stopLike(finishReason) : finishReason,
  };
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
  const response = responseOf(parts, finish["finishReason"], finish["usage"], params);
  const patch = await guardModelResponse(gateway, response, call);
  return { ...result, stream: streamOf(patch === undefined ? parts : patchStream(parts, patch)) };
}

function responseOf(parts: readonly Part[], finishReason: unknown, usage: unknown, params: CallParameters): ModelResponse {
  const { inputTokens, outputTokens } = isRecord(usage) ? usage : {};
  return {
    ...findParts((walk) => editPassages(parts, walk)),
    tokenUsage: { input: tokenCount(inputTokens), output: tokenCount(outputTokens) },
    stopReason: stopReasonOf(finishReason),
    hasToolCalls: parts.some(({ type }) => type === "tool-call"),
    isStructured: params.responseFormat?.type === "json",
  };
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

/** A text or a thought: one part of an answer, or those of a stream from a start with an id to the next one. */
interface Passage {
  readonly type: "text" | "reasoning";
  /** Only in a stream. */
  readonly id: string | undefined;
  /** Index of its first part. */
  readonly start: number;
  text: string;
}

/** For each part of an answer or of a stream the passage to which it belongs, if any. */
function passagesIn(parts: readonly Part[]): (Passage | undefined)[] {
  const open = new Map<string, Passage>();
  return parts.map((part, start) => {
    const [, type, step] = /^(text|reasoning)(?:-(start|delta|end))?$/.exec(part.type) ?? [];
    if (type !== "text" && type !== "reasoning") return undefined;
    if (step === undefined) return { type, id: undefined, start, text: String(part["text"] ?? "") };
    const id = String(part["id"]);
    const key = `${type} ${id}`;
    const passage = (step === "start" ? undefined : open.get(key)) ?? { type, id, start, text: "" };
    passage.text += step === "delta" ? String(part["delta"] ?? "") : "";
    open.set(key, passage);
    return passage;
  });
}

/** Passages that have one text together, or a single one. */
interface PassageRun {
  readonly passages: Passage[];
  isCited: boolean;
}

/**
 * The passages of an answer or of a stream. Texts with nothing but sources between them are together if there is a source between or
 * directly behind them: Anthropic cuts a text where it cites something, and its sources follow the cited piece.
 *
 * @param passages Those to which the parts belong.
 */
function runsIn(parts: readonly Part[], passages: readonly (Passage | undefined)[]): Passage[][] {
  const runs: PassageRun[] = [];
  let open: PassageRun | undefined;
  for (const [index, { type }] of parts.entries()) {
    const passage = passages[index];
    if (type === "source" && open !== undefined) open.isCited = true;
    if (type === "source" || UNSEEN.has(type)) continue;
    if (passage?.type !== "text") open = undefined;
    if (passage?.start !== index) continue;
    if (open === undefined) runs.push({ passages: [passage], isCited: false });
    else open.passages.push(passage);
    if (passage.type === "text") open = runs.at(-1);
  }
  return runs.flatMap((run) => (run.isCited ? [run.passages] : run.passages.map((passage) => [passage])));
}

/**
 * The parts of an answer or of a stream with their texts and thoughts changed. A changed one loses what the provider said about it,
 * such as a signature, and stands in one piece where it began. Sources stay.
 */
function editPassages(parts: readonly Part[], walk: AnswerWalk): Part[] {
  const passages = passagesIn(parts);
  const changed = new Map<Passage, string>();
  for (const run of runsIn(parts, passages)) {
    const text = run.map((passage) => passage.text).join("");
    const edited = walk[run[0]?.type === "text" ? "texts" : "thoughts"].next(text);
    if (edited === text) continue;
    for (const passage of run) changed.set(passage, passage === run[0] ? edited : "");
  }
  return parts.flatMap((part, index) => {
    const passage = passages[index];
    const text = passage === undefined ? undefined : changed.get(passage);
    if (passage === undefined || text === undefined) return [part];
    return index === passage.start ? partsFor(passage.type, text, passage.id) : [];
  });
}

/** The parts that a text is in an answer, or with an id in a stream. */
function partsFor(type: Passage["type"], text = "", id?: string): Part[] {
  if (text === "") return [];
  if (id === undefined) return [{ type, text }];
  return [
    { type: `${type}-start`, id },
    { type: `${type}-delta`, id, delta: text },
    { type: `${type}-end`, id },
  ];
}

/** The parts of an answer or of a stream as plugins left them. */
function patchPassages(parts: readonly Part[], patch: ModelResponsePatch, isStream: boolean): Part[] {
  const { answer, addedText, addedThought } = patchParts(patch, (walk) => editPassages(parts, walk));
  const added = (type: Passage["type"], text: string | undefined) => partsFor(type, text, isStream ? `hookgate-${type}` : undefined);
  const withThought = insertParts(answer, added("reasoning", addedThought), ({ type }) => !HEAD.has(type));
  return insertParts(withThought, added("text", addedText), ({ type }) => TAIL.has(type));
}

/** Puts parts before the first one that comes later, or to the end. */
function insertParts(parts: readonly Part[], added: readonly Part[], isLater: (part: Part) => boolean): Part[] {
  const later = parts.findIndex(isLater);
  return parts.toSpliced(later === -1 ? parts.length : later, 0, ...added);
}

/** What remains of a stream even if a block takes the answer's place. */
const FRAME: ReadonlySet<string> = new Set(["stream-start", "response-metadata", "finish", "error", "ping"]);
/** What may stand before the answer. */
const HEAD: ReadonlySet<string> = new Set(["stream-start", "response-metadata", "ping"]);
/** What no reader sees. It may stand within an answer. */
const UNSEEN: ReadonlySet<string> = new Set([...HEAD, "raw"]);
/** What follows a text, or may take its place if it is empty. */
const TAIL: ReadonlySet<string> = new Set(["text", "text-start", "tool-input-start", "tool-call", "finish", "error"]);

function patchStream(parts: readonly Part[], patch: ModelResponsePatch): Part[] {
  const isBlocked = patch.blocked !== undefined;
  // Raw parts have the text as it was.
  const kept = parts.filter(({ type }) => (isBlocked ? FRAME.has(type) : type !== "raw"));
  const finished = kept.map((part) => (part.type === "finish" ? patchFinish(part, isBlocked) : part));
  return patchPassages(finished, patch, true);
}

function patchFinish({ providerMetadata: _, ...finish }: Part, isBlocked: boolean): Part {
  const { finishReason } = finish;
  return { ...finish, type: "finish", ...(isBlocked ? { finishReason: stopLike(finishReason) } : {}) };
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
