/**
 * The blocks of an answer of LangChain's models: which hold a text or a thought, and the same blocks with others. Knows the forms of
 * the providers, but neither messages nor plugins.
 */
import type { AnswerWalk, PartWalk } from "./answer-parts.js";
import { editReasoning } from "./reasoning.js";
import { isRecord } from "../values.js";

/** What an answer's content has: a block, or a text without one. */
export type AnswerBlock = string | BlockMembers;

type BlockMembers = { readonly [name: string]: unknown };

/** Blocks that have one text together, or a single one. */
type BlockRun = [AnswerBlock, ...AnswerBlock[]];

const REASONING_MEMBERS = ["thinking", "reasoning", "reasoning_content", "reasoningContent"];

/** Where Bedrock has a text with its citations. */
const CITED_MEMBERS = ["citations_content", "citationsContent"];

/** The texts of all other blocks. */
const TEXT_MEMBERS = ["text", "refusal"];

/** The blocks with their texts, refusals included, and their thoughts changed. What becomes empty goes. */
export function editBlocks(blocks: readonly AnswerBlock[], walk: AnswerWalk): AnswerBlock[] {
  return runsIn(blocks).flatMap((run) => {
    const [first] = run;
    if (isText(first)) return editText(run, walk.texts);
    const edited = typeof first === "string" ? first : editBlock(first, walk);
    return edited === undefined ? [] : [edited];
  });
}

/** The blocks of an answer. Those whose texts are one are together: the provider cut them apart to cite. */
function runsIn(blocks: readonly AnswerBlock[]): BlockRun[] {
  const runs: BlockRun[] = [];
  for (const block of blocks) {
    const run = runs.at(-1);
    if (run !== undefined && goesOn(run, block)) run.push(block);
    else runs.push([block]);
  }
  return runs;
}

/** Whether a block belongs to the ones before it, which have one text together. */
function goesOn([first, ...others]: BlockRun, block: AnswerBlock): boolean {
  const last = others.at(-1) ?? first;
  const isCut = isReference(last) || isCited(last) || isCited(block);
  return isText(first) && (isReference(block) || (isText(block) && isCut));
}

/** The provider's own block, which LangChain wraps if it has no form for it. */
function unwrapped(block: AnswerBlock): AnswerBlock {
  const value = wrappedIn(block);
  return value === undefined ? block : unwrapped(value);
}

function wrappedIn(block: AnswerBlock): AnswerBlock | undefined {
  if (typeof block === "string" || block["type"] !== "non_standard") return undefined;
  const { value } = block;
  return typeof value === "string" || isRecord(value) ? value : undefined;
}

/** Whether a block is nothing but text. A refusal is something else. */
function isText(wrapped: AnswerBlock): boolean {
  const block = unwrapped(wrapped);
  if (typeof block === "string" || citedIn(block) !== undefined) return true;
  if ("type" in block) return block["type"] === "text";
  return "text" in block && !isReasoning(block) && !("refusal" in block);
}

function isReasoning(block: BlockMembers): boolean {
  return /reasoning|thinking/.test(String(block["type"])) || REASONING_MEMBERS.some((name) => name in block);
}

/** Whether a block is a citation of Mistral's, which stands between the texts that it cuts. */
function isReference(wrapped: AnswerBlock): boolean {
  const block = unwrapped(wrapped);
  return typeof block !== "string" && block["type"] === "reference";
}

/**
 * Whether the provider cut the text here to cite. OpenAI doesn't: its citations point into a text, and don't have the text that they
 * cite.
 */
function isCited(wrapped: AnswerBlock): boolean {
  const block = unwrapped(wrapped);
  if (typeof block === "string") return false;
  const { citations, annotations } = block;
  if (citedIn(block) !== undefined || (Array.isArray(citations) && citations.length > 0)) return true;
  return Array.isArray(annotations) && annotations.some((entry) => isRecord(entry) && ("cited_text" in entry || "citedText" in entry));
}

/** What Bedrock has in place of a text. */
function citedIn(block: BlockMembers): BlockMembers | undefined {
  return CITED_MEMBERS.map((name) => block[name]).find(isRecord);
}

/** Blocks with one text with that text changed. References stay. */
function editText(run: BlockRun, texts: PartWalk): AnswerBlock[] {
  const text = run.map(textIn).join("");
  const changed = texts.next(text);
  if (changed === text) return run;
  const references = run.filter(isReference);
  return changed === "" ? references : [withText(run[0], changed), ...references];
}

/** The text of a block that is nothing else. */
function textIn(wrapped: AnswerBlock): string {
  const block = unwrapped(wrapped);
  if (typeof block === "string") return block;
  if (isReference(block)) return "";
  const pieces = citedIn(block)?.["content"] ?? block["text"];
  if (!Array.isArray(pieces)) return typeof pieces === "string" ? pieces : "";
  return pieces.map((piece: unknown) => (typeof piece === "string" || isRecord(piece) ? textIn(piece) : "")).join("");
}

/** A text in place of a block. What the provider said about the old one is left out, such as citations. */
function withText(block: AnswerBlock, text: string): AnswerBlock {
  const value = wrappedIn(block);
  if (value !== undefined) return wrapperOf(withText(value, text));
  const isTyped = typeof block === "string" || "type" in block;
  return isTyped ? { type: "text", text } : { text };
}

function wrapperOf(value: AnswerBlock): AnswerBlock {
  return { type: "non_standard", value };
}

/** A block that isn't only text, with what it says or thinks changed; `undefined` if nothing is left. */
function editBlock(block: AnswerBlock, walk: AnswerWalk): AnswerBlock | undefined {
  if (typeof block === "string") return block;
  const value = wrappedIn(block);
  if (value === undefined) return isReasoning(block) ? (editReasoning(block, walk.thoughts) as BlockMembers) : editTexts(block, walk.texts);
  const edited = editBlock(value, walk);
  if (edited === value) return block;
  return edited === undefined ? undefined : wrapperOf(edited);
}

function editTexts(block: BlockMembers, texts: PartWalk): BlockMembers | undefined {
  const members = TEXT_MEMBERS.flatMap((name) => {
    const text = block[name];
    return typeof text === "string" ? [[name, texts.next(text)] as const] : [];
  });
  if (members.every(([name, text]) => text === block[name])) return block;
  const remaining = members.filter(([, text]) => text !== "");
  if (remaining.length === 0) return undefined;
  return { ...("type" in block ? { type: block["type"] } : {}), ...Object.fromEntries(remaining) };
}
