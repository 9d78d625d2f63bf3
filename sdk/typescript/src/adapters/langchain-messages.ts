/** Messages of LangChain: what plugins see of them, and how their changes get back. */
import { AIMessage, type BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import type { Media } from "../agent/types.js";
import type { JsonValue } from "../json.js";
import { PatchError } from "./guard.js";
import { dropMedia, mediumFrom } from "./media.js";
import { fromJson, isRecord } from "../values.js";

/** A block of a message's content. */
export type Block = { readonly type: string } & { readonly [name: string]: unknown };

/** The roles that most providers use, by LangChain's types. */
const ROLES: Readonly<Record<string, string>> = { human: "user", ai: "assistant", system: "system", tool: "tool" };

/**
 * A message as plugins see it: `role`, `content`, `id`, `name`, and `tool_calls`, `tool_call_id` and `status` where they
 * apply. What a provider added stays here.
 */
export function encodeMessage(message: BaseMessage): object {
  const { content, id, name } = message;
  const role = ROLES[message.type] ?? (ChatMessage.isInstance(message) ? message.role : message.type);
  const common = { role, content, id, name };
  if (AIMessage.isInstance(message)) return (message.tool_calls ?? []).length > 0 ? { ...common, tool_calls: message.tool_calls } : common;
  if (!ToolMessage.isInstance(message)) return common;
  return { ...common, tool_call_id: message.tool_call_id, status: message.status };
}

/**
 * The message that a plugin left. Copies of an answer's text that a provider keeps beside it are left out.
 *
 * @throws {PatchError} If it isn't a message.
 */
export function decodeMessage(json: JsonValue, original: BaseMessage | undefined): BaseMessage {
  const message = fromJson(json);
  if (!isRecord(message) || typeof message["role"] !== "string") throw new PatchError("a plugin left a message without a role");
  const { role, ...members } = message;
  const fields = members as { content: string; tool_call_id: string };
  const isSame = original !== undefined && ROLES[original.type] === role;
  switch (role) {
    case "user":
      return new HumanMessage({ ...fields, ...(isSame ? { additional_kwargs: original.additional_kwargs } : {}) });
    case "assistant":
      // The calls that a provider repeats in `additional_kwargs` would count again.
      return new AIMessage({
        ...fields,
        tool_calls: toolCallsIn(members),
        ...(isSame ? { response_metadata: remainder(original).response_metadata } : {}),
      });
    case "system":
      return new SystemMessage(fields);
    case "tool":
      return new ToolMessage(fields);
    default:
      return new ChatMessage({ ...fields, role });
  }
}

/** The text of a message, that of several blocks one below the other. */
export function textOf(message: BaseMessage | undefined): string {
  if (typeof message?.content === "string") return message.content;
  const texts = blocksOf(message).filter(({ type }) => type === "text");
  return texts.map(({ text }) => String(text)).join("\n");
}

/** The last message of the user. */
export function questionIn(messages: readonly BaseMessage[]): BaseMessage | undefined {
  return messages.findLast((message) => HumanMessage.isInstance(message));
}

/** The messages with this text in the last one of the user, whose other blocks stay. */
export function withText(messages: readonly BaseMessage[], text: string): BaseMessage[] {
  const question = questionIn(messages);
  if (question === undefined) return [...messages, new HumanMessage(text)];
  const content = typeof question.content === "string" ? text : replaceText(blocksOf(question), text);
  return messages.with(messages.indexOf(question), withContent(question, content));
}

/** The images and files of a message, as far as they aren't a provider's own references. */
export function mediaOf(message: BaseMessage | undefined): Media[] {
  return blocksOf(message).flatMap((block) => mediumOf(block) ?? []);
}

/** The messages without these images and files in the last one of the user. */
export function withoutMedia(messages: readonly BaseMessage[], dropped: readonly Media[]): BaseMessage[] {
  const question = questionIn(messages);
  if (question === undefined) return [...messages];
  const content = dropMedia(blocksOf(question), dropped, mediumOf);
  return messages.with(messages.indexOf(question), withContent(question, content));
}

function blocksOf(message: BaseMessage | undefined): readonly Block[] {
  return message === undefined || typeof message.content === "string" ? [] : (message.content as Block[]);
}

/** The blocks with this text in place of all. */
export function replaceText(blocks: readonly Block[], text: string): Block[] {
  const first = blocks.findIndex(({ type }) => type === "text");
  const others = blocks.filter(({ type }) => type !== "text");
  const position = first === -1 ? 0 : first;
  return text === "" && others.length > 0 ? others : others.toSpliced(position, 0, { type: "text", text });
}

function withContent({ id, name, additional_kwargs, response_metadata }: BaseMessage, content: string | Block[]): HumanMessage {
  const known = { ...(id === undefined ? {} : { id }), ...(name === undefined ? {} : { name }) };
  return new HumanMessage({ ...known, additional_kwargs, response_metadata, content: content as HumanMessage["content"] });
}

/** What a provider added to an answer and what can't hold a copy of its text: tool calls, signatures, names and numbers. */
export function remainder({ additional_kwargs, response_metadata }: BaseMessage) {
  const isKept = (name: string) => name === "tool_calls" || name === "function_call" || name.startsWith("__");
  return {
    additional_kwargs: Object.fromEntries(Object.entries(additional_kwargs).filter(([name]) => isKept(name))),
    response_metadata: Object.fromEntries(Object.entries(response_metadata).filter(([, value]) => typeof value !== "object")),
  };
}

function toolCallsIn(members: Record<string, unknown>): NonNullable<AIMessage["tool_calls"]> {
  return Array.isArray(members["tool_calls"]) ? members["tool_calls"] : [];
}

const MEDIA_BLOCKS: Readonly<Record<string, string>> = {
  image: "image/*",
  audio: "audio/*",
  video: "video/*",
  file: "application/octet-stream",
};

/** The medium that a block is: one of OpenAI's `image_url`, or one of LangChain's blocks, whose names changed with 1.0. */
function mediumOf(block: Block): Media | undefined {
  if (block.type === "image_url") {
    const { image_url } = block;
    const url = isRecord(image_url) ? image_url["url"] : image_url;
    return typeof url === "string" ? mediumFrom(url, "image/*") : undefined;
  }
  const mimeType = block["mimeType"] ?? block["mime_type"] ?? MEDIA_BLOCKS[block.type];
  if (MEDIA_BLOCKS[block.type] === undefined || typeof mimeType !== "string") return undefined;
  const { url, data } = block;
  if (data instanceof Uint8Array) return { data, mimeType };
  const source = url ?? data;
  return typeof source === "string" ? mediumFrom(source, mimeType) : undefined;
}
