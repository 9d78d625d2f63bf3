/** Prompts of the AI SDK: what plugins see of them, and how their changes get back. Knows the specifications v2 to v4. */
import type { GatewayClient } from "../agent/client.js";
import type { Media } from "../agent/types.js";
import type { JsonValue } from "../json.js";
import { type ModelCall, PatchError, guardModelRequest, patchMessages } from "./guard.js";
import { dropMedia, mediumFrom } from "./media.js";
import { fromJson, isRecord, mergeList } from "../values.js";

/** A part of a message. */
export type Part = { readonly type: string } & { readonly [name: string]: unknown };

/** A message of a prompt. The content of a system message is a text. */
export interface PromptMessage {
  readonly role: string;
  readonly content: string | readonly Part[];
  readonly providerOptions?: unknown;
}

/** The options of a model call, as far as adapters look at them. */
export interface CallParameters {
  readonly prompt: readonly PromptMessage[];
  readonly tools?: readonly object[] | undefined;
  readonly responseFormat?: { readonly type: string } | undefined;
  readonly abortSignal?: AbortSignal | undefined;
}

/**
 * Asks the gateway before a model is asked.
 *
 * @returns The options as plugins left them.
 * @throws {Blocked} A plugin stopped the request.
 * @throws {NoDecision} No decision could be made.
 */
export async function guardPrompt<Params extends CallParameters>(gateway: GatewayClient, params: Params, call: ModelCall): Promise<Params> {
  const { prompt, tools } = params;
  const start = prompt.findIndex(({ role }) => role !== "system");
  const system = prompt.slice(0, start === -1 ? prompt.length : start);
  const messages = prompt.slice(system.length);
  const question = messages.findLast(isQuestion);
  const systemPrompt = system.length === 0 ? undefined : system.map(textOf).join("\n\n");
  const media = partsOf(question).flatMap((part) => mediumOf(part) ?? []);
  const patch = await guardModelRequest(gateway, { text: textOf(question), systemPrompt, messages, tools, media }, call);

  const patched = patchMessages(messages, patch, { decode: decodeMessage, withText, withoutMedia });
  const patchedSystem = patch.systemPrompt === undefined ? system : withSystemPrompt(system, patch.systemPrompt);
  const result = { ...params, prompt: [...patchedSystem, ...patched] };
  if (patch.tools === undefined) return result;
  const remainingTools = mergeList(tools ?? [], patch.tools.sent, patch.tools.returned, decodeTool);
  return remainingTools.length > 0 ? { ...result, tools: remainingTools } : { ...result, tools: undefined, toolChoice: undefined };
}

function isQuestion({ role }: PromptMessage): boolean {
  return role === "user";
}

function partsOf(message: PromptMessage | undefined): readonly Part[] {
  return message === undefined || typeof message.content === "string" ? [] : message.content;
}

function isText({ type }: Part): boolean {
  return type === "text";
}

function textOf(message: PromptMessage | undefined): string {
  if (typeof message?.content === "string") return message.content;
  const texts = partsOf(message).filter(isText);
  return texts.map(({ text }) => String(text)).join("\n");
}

/** The messages with this text in the last one of the user, whose other parts stay. */
function withText(messages: readonly PromptMessage[], text: string): PromptMessage[] {
  const index = messages.findLastIndex(isQuestion);
  const question = messages[index];
  if (question === undefined) return [...messages, { role: "user", content: [{ type: "text", text }] }];
  const parts = partsOf(question);
  const first = parts.findIndex(isText);
  const others = parts.filter((part) => !isText(part));
  const content = others.toSpliced(Math.max(first, 0), 0, { ...parts[first], type: "text", text });
  return messages.with(index, { ...question, content });
}

function withoutMedia(messages: readonly PromptMessage[], dropped: readonly Media[]): PromptMessage[] {
  const index = messages.findLastIndex(isQuestion);
  const question = messages[index];
  if (question === undefined) return [...messages];
  return messages.with(index, { ...question, content: dropMedia(partsOf(question), dropped, mediumOf) });
}

/** One message with this text in place of all. It has the options of the last one, such as for caching. */
function withSystemPrompt(system: readonly PromptMessage[], text: string): PromptMessage[] {
  return text === "" ? [] : [{ ...system.at(-1), role: "system", content: text }];
}

/** The medium that a part is. A provider's own reference to a file is none. */
function mediumOf({ type, mediaType, filename, data }: Part): Media | undefined {
  const medium = type === "file" && typeof mediaType === "string" ? mediumIn(data, mediaType) : undefined;
  return medium === undefined || typeof filename !== "string" ? medium : { ...medium, filename };
}

function mediumIn(data: unknown, mimeType: string): Media | undefined {
  if (data instanceof Uint8Array) return { data, mimeType };
  if (data instanceof URL) return { url: data.href, mimeType };
  if (typeof data === "string") return mediumFrom(data, mimeType);
  // Specification v4 says what the data is.
  if (!isRecord(data)) return undefined;
  if (data["type"] === "text") return { data: new TextEncoder().encode(String(data["text"])), mimeType };
  return mediumIn(data["type"] === "url" ? data["url"] : data["data"], mimeType);
}

function decodeMessage(json: JsonValue): PromptMessage {
  const message = fromJson(json);
  if (!isRecord(message) || typeof message["role"] !== "string") throw new PatchError("a plugin left a message without a role");
  const { content } = message;
  const decoded = Array.isArray(content) ? { ...message, content: content.map(decodePart).map(withoutReference) } : message;
  return decoded as unknown as PromptMessage;
}

/** A part without the id under which its provider keeps the original: it would take that in place of the part. */
function withoutReference(part: unknown): unknown {
  if (!isRecord(part) || !isRecord(part["providerOptions"])) return part;
  const options = Object.entries(part["providerOptions"]).map(([provider, option]) => {
    if (!isRecord(option)) return [provider, option];
    const { itemId: _, ...others } = option;
    return [provider, others];
  });
  return { ...part, providerOptions: Object.fromEntries(options) };
}

/** URLs have become texts in JSON. */
function decodePart(part: unknown): unknown {
  if (!isRecord(part) || part["type"] !== "file") return part;
  const { data } = part;
  if (typeof data === "string" && URL.canParse(data)) return { ...part, data: new URL(data) };
  if (!isRecord(data) || data["type"] !== "url") return part;
  return { ...part, data: { ...data, url: new URL(String(data["url"])) } };
}

function decodeTool(json: JsonValue): object {
  const tool = fromJson(json);
  if (!isRecord(tool)) throw new PatchError("a plugin left a tool that is no object");
  return tool;
}
