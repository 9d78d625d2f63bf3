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

/** A walk through all texts of an answer, or through all its thoughts. */
export class PartWalk {
  /** The parts so far. */
  readonly found: string[] = [];
  readonly #changes: readonly (string | undefined)[];
  /** For each part the places of it and of its repeats. */
  readonly #places = new Map<string, number[]>();
  readonly #repeats = new Map<string, number>();

  /** @param changes What the parts become. `undefined` stays, as do those after the last change. */
  constructor(changes: readonly (string | undefined)[] = []) {
    this.#changes = changes;
  }

  /** What plugins added to an answer without any part. */
  get added(): string | undefined {
    return this.found.length === 0 ? this.#changes[0] : undefined;
  }

  /** Begins a member of the answer that may repeat the earlier ones. A copy is the same part. */
  beginMember(): void {
    this.#repeats.clear();
  }

  /** What takes the place of the next part. If that is empty, the part goes. An empty text is no part. */
  next(part: string): string {
    if (part === "") return part;
    const repeat = this.#repeats.get(part) ?? 0;
    this.#repeats.set(part, repeat + 1);
    const places = this.#places.get(part) ?? [];
    const place = places[repeat] ?? this.found.push(part) - 1;
    places[repeat] = place;
    this.#places.set(part, places);
    return this.#changes[place] ?? part;
  }
}

/** The walks through an answer. */
export type AnswerWalk = { readonly [Kind in keyof AnswerParts]: PartWalk };

/** An answer of one library with all its texts and thoughts changed, one after another. */
export type AnswerEdit<Answer> = (walk: AnswerWalk) => Answer;

/** What an edit finds in an answer. */
export function findParts(edit: AnswerEdit<unknown>): AnswerParts {
  const walk = { texts: new PartWalk(), thoughts: new PartWalk() };
  edit(walk);
  return { texts: walk.texts.found, thoughts: walk.thoughts.found };
}

/** An answer as plugins left it, and what they added to one without texts or without thoughts. */
export interface PatchedAnswer<Answer> {
  readonly answer: Answer;
  readonly addedText: string | undefined;
  readonly addedThought: string | undefined;
}

/** Changes the parts that {@link findParts} found with the same edit. */
export function patchParts<Answer>({ texts, thoughts }: PartsPatch, edit: AnswerEdit<Answer>): PatchedAnswer<Answer> {
  const walk = { texts: new PartWalk(texts), thoughts: new PartWalk(thoughts) };
  const answer = edit(walk);
  return { answer, addedText: walk.texts.added, addedThought: walk.thoughts.added };
}
