/** Items of the OpenAI Agents SDK: what plugins see of them, and how their changes get back. */
import type { AgentInputItem, AgentOutputItem, AssistantMessageItem, ReasoningItem, UserMessageItem } from "@openai/agents";
import type { Media } from "../agent/types.js";
import type { JsonValue } from "../json.js";
import { type AnswerWalk, type PartWalk, patchParts } from "./answer-parts.js";
import { type ModelResponsePatch, PatchError } from "./guard.js";
import { dropMedia, mediumFrom } from "./media.js";
import { fromJson, isRecord } from "../values.js";

type AssistantContent = AssistantMessageItem["content"][number];
type UserContent = Exclude<UserMessageItem["content"], string>[number];

/** The items of a request's input. A text is a message of the user. */
export function inputItems(input: string | readonly AgentInputItem[]): readonly AgentInputItem[] {
  return typeof input === "string" ? [{ role: "user", content: input }] : input;
}

/** The last message of the user. */
export function questionIn(items: readonly AgentInputItem[]): UserMessageItem | undefined {
  return items.findLast(isQuestion);
}

/** The text of a user's message, that of several parts one below the other. */
export function textOf(question: UserMessageItem | undefined): string {
  if (typeof question?.content === "string") return question.content;
  return (question?.content ?? []).flatMap((part) => (part.type === "input_text" ? [part.text] : [])).join("\n");
}

/** The items with this text in the last message of the user, whose other parts stay. */
export function withText(items: readonly AgentInputItem[], text: string): AgentInputItem[] {
  const question = questionIn(items);
  if (question === undefined) return [...items, { role: "user", content: text }];
  const { content } = question;
  if (typeof content === "string") return items.with(items.indexOf(question), { ...question, content: text });
  const first = content.findIndex(({ type }) => type === "input_text");
  const others = content.filter(({ type }) => type !== "input_text");
  const part: UserContent = { type: "input_text", text };
  return items.with(items.indexOf(question), { ...question, content: others.toSpliced(Math.max(first, 0), 0, part) });
}

/** The images and files of a message, as far as they aren't the provider's own references. */
export function mediaOf(question: UserMessageItem | undefined): Media[] {
  return partsOf(question).flatMap((part) => mediumOf(part) ?? []);
}

/** The items without these images and files in the last message of the user. */
export function withoutMedia(items: readonly AgentInputItem[], dropped: readonly Media[]): AgentInputItem[] {
  const question = questionIn(items);
  if (question === undefined) return [...items];
  return items.with(items.indexOf(question), { ...question, content: dropMedia(partsOf(question), dropped, mediumOf) });
}

/**
 * The item that a plugin left.
 *
 * @throws {PatchError} If it is no object.
 */
export function decodeItem(json: JsonValue): AgentInputItem {
  const item = fromJson(json);
  if (!isRecord(item)) throw new PatchError("a plugin left a message that is no object");
  return item as unknown as AgentInputItem;
}

/** Whether an item is a call of a tool or of another agent. */
export function isToolCall({ type }: AgentOutputItem): boolean {
  return type?.endsWith("_call") === true;
}

/**
 * The items of an answer with their texts changed, refusals included, and their thoughts: those of the summary, then those of the
 * reasoning itself. A changed part loses what the provider said about the old one, and changed reasoning its encrypted form and its id.
 */
export function editOutput(output: readonly AgentOutputItem[], { texts, thoughts }: AnswerWalk): AgentOutputItem[] {
  return output.flatMap((item): AgentOutputItem[] => {
    if (isMessage(item)) return editMessage(item, texts);
    return item.type === "reasoning" ? editReasoning(item, thoughts) : [item];
  });
}

function editMessage(message: AssistantMessageItem, texts: PartWalk): AssistantMessageItem[] {
  const content = message.content.flatMap((part): AssistantContent[] => {
    const text = part.type === "output_text" ? part.text : part.type === "refusal" ? part.refusal : "";
    const changed = texts.next(text);
    if (changed === text) return [part];
    if (changed === "") return [];
    return [part.type === "refusal" ? { type: "refusal", refusal: changed } : { type: "output_text", text: changed }];
  });
  if (isSameList(content, message.content)) return [message];
  const { providerData: _, ...others } = message;
  return content.length === 0 ? [] : [{ ...others, content }];
}

function editReasoning(item: ReasoningItem, thoughts: PartWalk): ReasoningItem[] {
  const content = editThoughts(item.content, thoughts);
  const rawContent = editThoughts(item.rawContent ?? [], thoughts);
  if (isSameList(content, item.content) && isSameList(rawContent, item.rawContent ?? [])) return [item];
  if (content.length + rawContent.length === 0) return [];
  return [{ type: "reasoning", content, ...(rawContent.length === 0 ? {} : { rawContent }) }];
}

function editThoughts<Thought extends { readonly type: string; readonly text: string }>(
  parts: readonly Thought[],
  thoughts: PartWalk,
): Thought[] {
  return parts.flatMap((part) => {
    const text = thoughts.next(part.text);
    if (text === part.text) return [part];
    return text === "" ? [] : [{ type: part.type, text } as Thought];
  });
}

function isSameList(list: readonly unknown[], other: readonly unknown[]): boolean {
  return list.length === other.length && list.every((item, index) => item === other[index]);
}

/** The answer as plugins left it. */
export function patchOutput(output: readonly AgentOutputItem[], patch: ModelResponsePatch): AgentOutputItem[] {
  const remaining = patch.blocked === undefined ? output : [];
  const { answer, addedText, addedThought } = patchParts(patch, (walk) => editOutput(remaining, walk));
  const withText = addedText === undefined ? answer : withAnswer(answer, addedText);
  return addedThought === undefined ? withText : withReasoning(withText, addedThought);
}

/** The items with a text in place of messages without any. If there are none, it goes before the calls of tools. */
function withAnswer(items: readonly AgentOutputItem[], text: string): AgentOutputItem[] {
  const first = items.find(isMessage);
  const place = items.findIndex((item) => (first === undefined ? isToolCall(item) : item === first));
  const others: AgentOutputItem[] = items.filter((item) => !isMessage(item));
  return others.toSpliced(place === -1 ? others.length : place, 0, assistantMessage(text, first));
}

/** The items with a thought in place of reasoning without text. */
function withReasoning(items: readonly AgentOutputItem[], text: string): AgentOutputItem[] {
  const first = items.findIndex(({ type }) => type === "reasoning");
  const others = items.filter(({ type }) => type !== "reasoning");
  return others.toSpliced(Math.max(first, 0), 0, { type: "reasoning", content: [{ type: "input_text", text }] });
}

function assistantMessage(text: string, original: AssistantMessageItem | undefined): AssistantMessageItem {
  const { id, phase } = original ?? {};
  const known = { ...(id === undefined ? {} : { id }), ...(phase === undefined ? {} : { phase }) };
  return { ...known, type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text }] };
}

function isQuestion(item: AgentInputItem): item is UserMessageItem {
  return "role" in item && item.role === "user";
}

function isMessage(item: AgentOutputItem): item is AssistantMessageItem & AgentOutputItem {
  return "role" in item && item.role === "assistant";
}

function partsOf(question: UserMessageItem | undefined): readonly UserContent[] {
  return question === undefined || typeof question.content === "string" ? [] : question.content;
}

function mediumOf(part: UserContent): Media | undefined {
  if (part.type === "input_image") return mediumIn(part.image, "image/*");
  if (part.type === "audio") return mediumIn(part.audio, part.format ? `audio/${part.format}` : "audio/*");
  if (part.type !== "input_file") return undefined;
  const medium = mediumIn(part.file, "application/octet-stream");
  return medium === undefined || part.filename === undefined ? medium : { ...medium, filename: part.filename };
}

/** An object holds a URL, or the provider's own id, which stands for no medium here. */
function mediumIn(source: string | object | undefined, mimeType: string): Media | undefined {
  const text = isRecord(source) ? source["url"] : source;
  return typeof text === "string" ? mediumFrom(text, mimeType) : undefined;
}
