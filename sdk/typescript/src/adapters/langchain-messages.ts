/** Messages of LangChain: what plugins see of them, and how their changes get back. */
import { AIMessage, type BaseMessage, ChatMessage, HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import type { Media } from "../agent/types.js";
import type { JsonValue } from "../json.js";
import { type PartChange, patchParts } from "./answer-parts.js";
import { type ModelResponsePatch, PatchError } from "./guard.js";
import { dropMedia, mediumFrom } from "./media.js";
import { fromJson, isRecord } from "../values.js";

/** A block of a message's content. */
type Block = { readonly type: string } & { readonly [name: string]: unknown };

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

/** What of an answer has texts and thoughts. */
type AnswerContent = Pick<AIMessage, "content" | "additional_kwargs">;

/** Where providers put reasoning beside the content. Some repeat it in several. */
const REASONING_FIELDS = ["reasoning_content", "reasoning", "reasoning_details"];

/**
 * The content of an answer with its texts and thoughts changed, and its reasoning beside the content. A changed text loses what the
 * provider said about the old one, such as citations.
 */
export function editAnswer(answer: AIMessage, change: PartChange): AnswerContent {
  const { content, additional_kwargs } = answer;
  const fields = REASONING_FIELDS.filter((name) => name in additional_kwargs);
  const known = new Map<string, string>();
  const changeOnce: PartChange = (kind, text) => {
    const changed = known.get(text) ?? change(kind, text);
    known.set(text, changed);
    return changed;
  };
  const reasoning = fields.map((name) => [name, editReasoning(additional_kwargs[name], changeOnce)] as const);
  return {
    additional_kwargs: Object.fromEntries(reasoning.filter(([, value]) => value !== undefined)),
    content: typeof content === "string" ? change("texts", content) : (editBlocks(answer, change) as AIMessage["content"]),
  };
}

/** The answer as plugins left it, with the same id. Only what can't hold a copy of a text remains of what the provider said about it. */
export function patchAnswer(answer: AIMessage, patch: ModelResponsePatch): AIMessage {
  const { id, name, usage_metadata } = answer;
  const common = {
    ...(id === undefined ? {} : { id }),
    ...(name === undefined ? {} : { name }),
    ...(usage_metadata === undefined ? {} : { usage_metadata }),
  };
  const rest = remainder(answer);
  if (patch.blocked !== undefined)
    return new AIMessage({ ...common, content: patch.blocked.message, response_metadata: rest.response_metadata });
  const { answer: edited, addedText, addedThought } = patchParts(patch, (change) => editAnswer(answer, change));
  const { content, additional_kwargs } = edited;
  const hasPlace = addedThought !== undefined && additional_kwargs["reasoning_content"] === "";
  return new AIMessage({
    ...common,
    content: addedText === undefined ? content : typeof content === "string" ? addedText : replaceText(content as Block[], addedText),
    tool_calls: answer.tool_calls ?? [],
    invalid_tool_calls: answer.invalid_tool_calls ?? [],
    response_metadata: rest.response_metadata,
    additional_kwargs: { ...rest.additional_kwargs, ...additional_kwargs, ...(hasPlace ? { reasoning_content: addedThought } : {}) },
  } as ConstructorParameters<typeof AIMessage>[0] & object);
}

function editBlocks(answer: AIMessage, change: PartChange): Block[] {
  const edited = runsIn(answer).flatMap((run) => {
    const text = run.map(shownText).join("");
    const changed = change("texts", text);
    if (changed !== text) return changed === "" ? [] : [{ type: "text", text: changed }];
    return run.flatMap((block) =>
      /reasoning|thinking/.test(String(block.type)) ? ((editReasoning(block, change) as Block) ?? []) : [block],
    );
  });
  return edited.length === 0 && blocksOf(answer).some(isText) ? [{ type: "text", text: "" }] : edited;
}

/** The blocks of an answer. Those whose texts are one are together: Anthropic cuts a text where it cites something. */
function runsIn(answer: AIMessage): Block[][] {
  // OpenAI cites within a text.
  const isOpenAi = /openai/.test(String(answer.response_metadata["model_provider"]));
  const isCited = ({ type, citations, annotations }: Block) =>
    type === "citations_content" || [citations, isOpenAi ? [] : annotations].some((list) => Array.isArray(list) && list.length > 0);
  const runs: Block[][] = [];
  for (const block of blocksOf(answer)) {
    const before = runs.at(-1)?.at(-1);
    const isNext = before !== undefined && isText(before) && isText(block) && (isCited(before) || isCited(block));
    if (isNext) runs.at(-1)?.push(block);
    else runs.push([block]);
  }
  return runs;
}

/** Whether a block is text, also in the form in which Bedrock cites. */
function isText({ type }: Block): boolean {
  return type === "text" || type === "citations_content";
}

function shownText({ type, text, citationsContent }: Block): string {
  if (type === "text") return typeof text === "string" ? text : "";
  return type === "citations_content" && isRecord(citationsContent) ? textsIn(citationsContent["content"]).join("") : "";
}

function blocksOf(message: BaseMessage | undefined): readonly Block[] {
  return message === undefined || typeof message.content === "string" ? [] : (message.content as Block[]);
}

/** The blocks with this text in place of all. */
function replaceText(blocks: readonly Block[], text: string): Block[] {
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
function remainder({ additional_kwargs, response_metadata }: BaseMessage) {
  const isKept = (name: string) => name === "tool_calls" || name === "function_call" || name.startsWith("__");
  return {
    additional_kwargs: Object.fromEntries(Object.entries(additional_kwargs).filter(([name]) => isKept(name))),
    response_metadata: Object.fromEntries(Object.entries(response_metadata).filter(([, value]) => typeof value !== "object")),
  };
}

/**
 * A provider's reasoning with its thoughts changed. An object with a changed one goes, and the result is `undefined`: providers sign
 * or encrypt it as a whole, and take no other in its place.
 */
function editReasoning(reasoning: unknown, change: PartChange): unknown {
  if (typeof reasoning === "string") return change("thoughts", reasoning);
  if (Array.isArray(reasoning)) return reasoning.map((item) => editReasoning(item, change)).filter((item) => item !== undefined);
  const thoughts = textsIn(reasoning);
  const changed = thoughts.map((thought) => change("thoughts", thought));
  return changed.every((thought, index) => thought === thoughts[index]) ? reasoning : undefined;
}

/** The members of reasoning that hold text, directly or in parts. */
const REASONING_MEMBERS = ["thinking", "reasoning", "reasoningText", "text", "summary", "content"];

/** The texts of a provider's reasoning, in the forms of Anthropic, OpenAI, Bedrock, and LangChain itself. */
function textsIn(reasoning: unknown): string[] {
  if (typeof reasoning === "string") return [reasoning];
  if (Array.isArray(reasoning)) return reasoning.flatMap(textsIn);
  return isRecord(reasoning) ? REASONING_MEMBERS.flatMap((name) => textsIn(reasoning[name])) : [];
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
