/**
 * The one mechanism of all adapters: what an agent owes at the four points (docs/protocol.md, section 4). Knows no agent
 * library. An adapter translates its library's values, and does what comes back.
 *
 * Whatever these functions throw must end the run: a {@link Blocked} with the scope `run` or before a model is asked, a
 * {@link NoDecision}, a {@link PatchError}, and the errors of requests that can't be sent.
 */
import type { GatewayClient } from "../agent/client.js";
import { Blocked } from "../agent/errors.js";
import type { PointCallOptions } from "../agent/options.js";
import type { BeforeLlmRequestPayload, Media, TokenUsage } from "../agent/types.js";
import type { JsonObject, JsonValue } from "../json.js";
import type { AnswerParts, PartsPatch } from "./answer-parts.js";
import { isSameMedium } from "./media.js";
import { PatchError, endsRun, noteRunEnd, throwNestedRunEnd } from "./run-end.js";
import { isSameJson, mergeList, messageOf, toJson, toJsonList } from "../values.js";

export { PatchError, findGatewayError } from "./run-end.js";

/** Which model is asked, and the signal that cancels the run. */
export interface ModelCall {
  readonly provider?: string | undefined;
  readonly model?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** What a model is about to be asked. */
export interface ModelRequest {
  /** Text of the last user message. */
  readonly text: string;
  readonly systemPrompt?: string | undefined;
  /** The conversation without the system prompt, in a form that plugins can read. */
  readonly messages: readonly unknown[];
  /** The tools offered to the model. */
  readonly tools?: readonly unknown[] | undefined;
  /** Images and files of the last user message. */
  readonly media?: readonly Media[] | undefined;
  /** What else the model gets to read. */
  readonly extra?: object | undefined;
}

/** A list that plugins changed, for `mergeList`. */
export interface ListPatch {
  readonly sent: readonly JsonValue[];
  readonly returned: readonly JsonValue[];
}

/** What plugins changed in a {@link ModelRequest}, for {@link patchMessages}. What is absent stays. */
export interface ModelRequestPatch {
  readonly messages?: ListPatch | undefined;
  readonly text?: string | undefined;
  readonly systemPrompt?: string | undefined;
  readonly tools?: ListPatch | undefined;
  /** Those of the request's media that plugins left out. */
  readonly droppedMedia?: readonly Media[] | undefined;
  readonly extra?: JsonObject | undefined;
}

/**
 * Asks the gateway before a model is asked.
 *
 * @throws {Blocked} A plugin stopped the request, with either scope.
 * @throws {NoDecision} No decision could be made.
 * @throws {PatchError} A plugin added or changed an image or a file.
 */
export async function guardModelRequest(gateway: GatewayClient, request: ModelRequest, call: ModelCall): Promise<ModelRequestPatch> {
  const { text, systemPrompt, media = [], extra } = request;
  const messages = toJsonList(request.messages);
  const tools = request.tools === undefined ? undefined : toJsonList(request.tools);
  const images = media.filter(isImage);
  const files = media.filter((medium) => !isImage(medium));
  const sent = {
    text,
    systemPrompt,
    messages,
    tools,
    images,
    files,
    extra: extra === undefined ? undefined : (toJson(extra) as JsonObject),
  };
  const { payload, modified } = await decision(gateway.beforeLlmRequest(sent, callOptions(call)));
  if (!modified) return {};
  return {
    messages: listPatch(messages, payload.messages),
    text: payload.text === text ? undefined : payload.text,
    systemPrompt: (payload.systemPrompt ?? "") === (systemPrompt ?? "") ? undefined : (payload.systemPrompt ?? ""),
    tools: listPatch(tools, payload.tools),
    droppedMedia: droppedMedia(media, payload),
    extra: isSameJson(sent.extra ?? {}, payload.extra ?? {}) ? undefined : (payload.extra ?? {}),
  };
}

/** How one library's messages are changed. */
export interface MessageEditor<Message> {
  /** Makes a message of one that a plugin left; see `mergeList`. */
  decode(json: JsonValue, original: Message | undefined): Message;
  /** The messages with this text in the last one of the user, or in a new one. */
  withText(messages: readonly Message[], text: string): Message[];
  /** The messages without these images and files in the last one of the user. */
  withoutMedia(messages: readonly Message[], dropped: readonly Media[]): Message[];
}

/** The messages of a request as plugins left them. If nobody changed them, they are the same list. */
export function patchMessages<Message>(
  messages: readonly Message[],
  { messages: list, text, droppedMedia }: ModelRequestPatch,
  editor: MessageEditor<Message>,
): readonly Message[] {
  let patched = messages;
  if (list !== undefined) patched = mergeList(messages, list.sent, list.returned, editor.decode);
  if (text !== undefined) patched = editor.withText(patched, text);
  if (droppedMedia !== undefined) patched = editor.withoutMedia(patched, droppedMedia);
  return patched;
}

/** What a model answered. */
export interface ModelResponse extends AnswerParts {
  readonly tokenUsage?: { readonly input?: number | undefined; readonly output?: number | undefined } | undefined;
  readonly stopReason?: string | undefined;
  /** Whether the model also calls tools. Then an answer without text or reasoning isn't shown to anybody, and passes. */
  readonly hasToolCalls: boolean;
  /** Whether the text must have a form, such as JSON of a schema. Then no message can replace it. */
  readonly isStructured: boolean;
}

/** What plugins changed in a {@link ModelResponse}, for `patchParts`. */
export interface ModelResponsePatch extends PartsPatch {
  /** Set if a block stopped the answer. Its message is the only text, nothing else of the answer remains, and no tool is called. */
  readonly blocked?: Blocked | undefined;
}

/**
 * Asks the gateway before an answer is shown: once for the first text and the first thought, once for the second ones, and so on.
 *
 * @returns What to change; `undefined` if nothing.
 * @throws {Blocked} A plugin stopped the run, or an answer in which no message can stand.
 * @throws {NoDecision} No decision could be made.
 */
export async function guardModelResponse(
  gateway: GatewayClient,
  response: ModelResponse,
  call: ModelCall,
): Promise<ModelResponsePatch | undefined> {
  const { texts, thoughts, stopReason, hasToolCalls, isStructured } = response;
  if (texts.length === 0 && thoughts.length === 0 && hasToolCalls) return undefined;
  const { provider, model } = call;
  const patch = { texts: [] as (string | undefined)[], thoughts: [] as (string | undefined)[] };
  for (let index = 0; index < Math.max(texts.length, thoughts.length, 1); index += 1) {
    const [content, reasoning] = [texts[index], thoughts[index]];
    // Plugins that count tokens must count them once.
    const usage = index === 0 ? tokenUsage(response) : undefined;
    const sent = { content: content ?? "", reasoning, provider, model, tokenUsage: usage, stopReason };
    const answer = await orBlock(gateway.beforeResponse(sent, callOptions(call)));
    if (answer instanceof Blocked) {
      if (isStructured) throw answer;
      return { texts: [answer.message], thoughts: [], blocked: answer };
    }
    const payload = answer.modified ? answer.payload : sent;
    patch.texts.push(changedPart(index, content, payload.content));
    patch.thoughts.push(changedPart(index, reasoning, payload.reasoning));
  }
  return [...patch.texts, ...patch.thoughts].some((change) => change !== undefined) ? patch : undefined;
}

/** What a part becomes; `undefined` if it stays. An added part has a place only in an answer without any. */
function changedPart(index: number, part: string | undefined, returned = ""): string | undefined {
  const hasPlace = part !== undefined || index === 0;
  return hasPlace && returned !== (part ?? "") ? returned : undefined;
}

/** A tool that is about to run. */
export interface ToolCall {
  readonly toolName: string;
  /** The arguments, any value that {@link toJson} takes. */
  readonly args: unknown;
  /** The model's id of this call. */
  readonly callId?: string | undefined;
  /** Cancels the run. */
  readonly signal?: AbortSignal | undefined;
}

/** What a tool gave. */
export interface ToolOutput<Value> {
  /** For the agent library. */
  readonly value: Value;
  /** What the model gets to read of it, any value that {@link toJson} takes. */
  readonly result: unknown;
  /** Whether the tool succeeded. */
  readonly success: boolean;
}

/**
 * How a guarded tool run ended:
 *
 * - `own`: as the tool left it. Go on with the value.
 * - `failed`: the tool threw, and nobody changed that. Do what the library does with such an error.
 * - `replaced`: a plugin gave or changed the result. Without `success`, it is the tool's error.
 * - `blocked`: give the model the message as the tool's error.
 */
export type ToolOutcome<Value> =
  | { readonly kind: "own"; readonly value: Value }
  | { readonly kind: "failed"; readonly error: unknown }
  | { readonly kind: "replaced"; readonly result: JsonValue; readonly success: boolean }
  | { readonly kind: "blocked"; readonly blocked: Blocked };

/**
 * Runs a tool between `before_tool_call` and `after_tool_result`. Takes results of plugins instead of running the tool.
 *
 * @param run Runs the tool of this name, which a plugin may have changed, with these arguments. They are the call's own if
 *   no plugin changed them, and JSON otherwise.
 * @param isControlFlow Whether an error that `run` throws is no failure of the tool but the library's way to leave it. It
 *   is thrown on, and no `after_tool_result` follows. So are the errors below, if `run` throws them.
 * @throws {Blocked} A plugin ended the run, or one within the tool.
 * @throws {NoDecision} No decision could be made, here or within the tool. If that is after the tool ran, its result must not
 *   be used.
 * @throws {PatchError} A plugin changed something that the agent library can't take, here or within the tool.
 */
export async function guardToolRun<Value>(
  gateway: GatewayClient,
  call: ToolCall,
  run: (toolName: string, args: unknown) => Promise<ToolOutput<Value>>,
  isControlFlow: (error: unknown) => boolean = () => false,
): Promise<ToolOutcome<Value>> {
  const { toolName, callId, signal } = call;
  const sent = toJson(call.args);
  const before = await orBlock(gateway.beforeToolCall({ toolName, args: sent, callId }, { takesResults: true, signal }));
  if (before instanceof Blocked) return { kind: "blocked", blocked: before };
  const { payload } = before;
  const isAnswer = before.decision === "answer";
  const args = isSameJson(sent, payload.args) ? call.args : payload.args;
  const start = performance.now();
  const output = isAnswer
    ? { value: undefined, result: before.result, success: true }
    : await settle(() => run(payload.toolName, args), isControlFlow);
  const durationMs = isAnswer ? undefined : performance.now() - start;

  const result = toJson(output.result);
  const ran = { toolName: payload.toolName, args: payload.args, success: output.success };
  const after = await orBlock(gateway.afterToolResult({ ...ran, result, callId, durationMs }, { signal }));
  if (after instanceof Blocked) return { kind: "blocked", blocked: after };
  const { modified, payload: judged } = after;
  if (isAnswer || (modified && !isSameJson(result, judged.result))) {
    return { kind: "replaced", result: judged.result, success: ran.success };
  }
  return "error" in output ? { kind: "failed", error: output.error } : { kind: "own", value: output.value as Value };
}

/**
 * A tool's output, also if it throws. The end of a run within the tool is no failure of the tool: it also ends this run,
 * whatever the tool, the library or plugins would make of it as a result.
 */
async function settle<Value>(
  run: () => Promise<ToolOutput<Value>>,
  isControlFlow: (error: unknown) => boolean,
): Promise<ToolOutput<Value> | (ToolOutput<undefined> & { readonly error: unknown })> {
  try {
    return await throwNestedRunEnd(run);
  } catch (error) {
    if (isControlFlow(error) || endsRun(error)) throw error;
    return { value: undefined, result: messageOf(error), success: false, error };
  }
}

/** What a call at a point gives, or the block that stops this one action. */
async function orBlock<Answer>(answer: Promise<Answer>): Promise<Answer | Blocked> {
  try {
    return await decision(answer);
  } catch (error) {
    if (error instanceof Blocked && error.scope === "step") return error;
    throw error;
  }
}

/** What a call at a point gives. Outer tools hear of what ends the run. */
async function decision<Answer>(answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Error) noteRunEnd(error);
    throw error;
  }
}

function callOptions({ provider, model, signal }: ModelCall): PointCallOptions {
  return { signal, context: { provider, model } };
}

function tokenUsage({ tokenUsage }: ModelResponse): TokenUsage | undefined {
  const { input, output } = tokenUsage ?? {};
  return isCount(input) && isCount(output) ? { input, output } : undefined;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function listPatch(sent: readonly JsonValue[] | undefined, returned: readonly JsonValue[] = []): ListPatch | undefined {
  const before = sent ?? [];
  return isSameJson([...before], [...returned]) ? undefined : { sent: before, returned };
}

function isImage({ mimeType }: Media): boolean {
  return /^image(\/|$)/.test(mimeType);
}

function droppedMedia(media: readonly Media[], { images = [], files = [] }: BeforeLlmRequestPayload): readonly Media[] | undefined {
  const remaining = new Set<Media>();
  for (const returned of [...images, ...files]) {
    const own = media.find((medium) => !remaining.has(medium) && isSameMedium(medium, returned));
    if (own === undefined) throw new PatchError("a plugin added or changed an image or a file: this adapter can only leave them out");
    remaining.add(own);
  }
  const dropped = media.filter((medium) => !remaining.has(medium));
  return dropped.length === 0 ? undefined : dropped;
}
