/**
 * The parts of a model's answer. Texts that a reader sees apart are parts of their own, so that no pattern of a plugin crosses
 * from one into another, and each change goes back to its own place. Knows no agent library and no gateway.
 */

/** The texts and the thoughts of an answer, each in their order. None is empty. */
export interface AnswerParts {
  readonly texts: readonly string[];
  /** The reasoning, as far as it is text. */
  readonly thoughts: readonly string[];
}

/** For each part of an answer its new text, or `undefined` if it stays. The first one of an answer that had none is an added one. */
export type PartsPatch = { readonly [Kind in keyof AnswerParts]: readonly (string | undefined)[] };

/** Gets a text or a thought, and returns what takes its place. If that is empty, the part goes. */
export type PartChange = (kind: keyof AnswerParts, text: string) => string;

/** An answer of one library with all its texts and thoughts changed, one after another. */
export type AnswerEdit<Answer> = (change: PartChange) => Answer;

/** What an edit finds in an answer. */
export function findParts(edit: AnswerEdit<unknown>): AnswerParts {
  const parts = { texts: [] as string[], thoughts: [] as string[] };
  edit((kind, text) => {
    if (text !== "") parts[kind].push(text);
    return text;
  });
  return parts;
}

/** An answer as plugins left it, and what they added to one without texts or without thoughts. */
export interface PatchedAnswer<Answer> {
  readonly answer: Answer;
  readonly addedText: string | undefined;
  readonly addedThought: string | undefined;
}

/** Changes the parts that {@link findParts} found with the same edit. */
export function patchParts<Answer>({ texts, thoughts }: PartsPatch, edit: AnswerEdit<Answer>): PatchedAnswer<Answer> {
  const remaining = { texts: [...texts], thoughts: [...thoughts] };
  const answer = edit((kind, text) => (text === "" ? text : (remaining[kind].shift() ?? text)));
  return { answer, addedText: remaining.texts[0], addedThought: remaining.thoughts[0] };
}
