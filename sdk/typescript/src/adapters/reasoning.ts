/**
 * The reasoning of models, which each provider gives in a form of its own: Anthropic, OpenAI, Bedrock, OpenRouter and LangChain.
 * Knows no agent library.
 */
import type { PartWalk } from "./answer-parts.js";
import { isRecord } from "../values.js";

/** The members of reasoning that hold text, directly or in parts. */
const MEMBERS = [
  "thinking",
  "reasoning",
  "reasoning_content",
  "reasoningContent",
  "reasoningText",
  "reasoning_text",
  "text",
  "summary",
  "content",
];

/** The members that a changed object keeps beside its texts. */
const KEPT = ["type", "id", "index", "format"];

/**
 * A provider's reasoning with each of its thoughts changed; `undefined` if nothing is left. What isn't changed stays the same
 * object. What becomes empty goes, and so does a signed object with a changed thought: the provider wouldn't take it. Another object
 * loses what may hold a copy of its changed thought, such as the encrypted form.
 */
export function editReasoning(reasoning: unknown, thoughts: PartWalk): unknown {
  if (typeof reasoning === "string") return reasoning === "" ? reasoning : thoughts.next(reasoning) || undefined;
  if (Array.isArray(reasoning)) return editList(reasoning, thoughts);
  return isRecord(reasoning) ? editObject(reasoning, thoughts) : reasoning;
}

function editList(items: readonly unknown[], thoughts: PartWalk): unknown {
  const edited = items.map((item) => editReasoning(item, thoughts));
  if (edited.every((item, index) => item === items[index])) return items;
  const remaining = edited.filter((item) => item !== undefined);
  return remaining.length === 0 ? undefined : remaining;
}

function editObject(reasoning: Record<string, unknown>, thoughts: PartWalk): unknown {
  const names = MEMBERS.filter((name) => name in reasoning);
  const members = names.map((name) => [name, editReasoning(reasoning[name], thoughts)] as const);
  if (members.every(([name, value]) => value === reasoning[name])) return reasoning;
  if (isSigned(reasoning) || members.every(([, value]) => isEmpty(value))) return undefined;
  // An empty member keeps its type.
  const texts = members.map(([name, value]) => [name, value === undefined ? emptyLike(reasoning[name]) : value] as const);
  const kept = Object.entries(reasoning).filter(([name]) => KEPT.includes(name));
  return Object.fromEntries([...kept, ...texts]);
}

function isSigned(reasoning: Record<string, unknown>): boolean {
  const { signature, extras } = reasoning;
  return Boolean(signature) || (isRecord(extras) && Boolean(extras["signature"]));
}

function isEmpty(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return isRecord(value) ? Object.keys(value).length === 0 : !value;
}

function emptyLike(value: unknown): unknown {
  if (Array.isArray(value)) return [];
  return isRecord(value) ? {} : "";
}
