/** Cuts an answer into windows as a gateway does, and puts together what goes out. */
import { countCharacters } from "../characters.js";
import type { ResponseWindow } from "../payload.js";
import type { BeforeResponsePatch, Cancel, Notice, Reply } from "../reply.js";

/** How many of the consumed characters a window shows. */
const MAX_BEFORE = 1024;

/** What comes of an answer that a plugin judged in windows. */
export interface WindowedResponse {
  /** The text that goes out; up to a cancel, what went out before it. */
  readonly content: string;
  /** The reasoning that goes out. */
  readonly reasoning: string | undefined;
  /** Why the answer stops; `undefined` if all of it goes out. */
  readonly cancelled: Cancel | undefined;
  /** The remarks of all windows, in order. */
  readonly notices: readonly Notice[];
}

/** The windows of an answer. Each takes its reply before the next one is made. */
export class Windows {
  readonly #pieces: readonly string[];
  /** Of the current window. */
  #content = "";
  /** As the plugin got it. */
  #consumed = "";
  #sent = "";
  #reasoning: string | undefined;
  #cancelled: Cancel | undefined;
  readonly #notices: Notice[] = [];

  /** @throws {TypeError} If a piece isn't well-formed text: a gateway doesn't cut a character in two. */
  constructor(pieces: Iterable<string>, reasoning: string | undefined) {
    const cut = [...pieces];
    const broken = cut.findIndex((piece) => !piece.isWellFormed());
    if (broken >= 0) throw new TypeError(`the piece ${broken} has half of a character: cut \`[...text]\`, not \`text\``);
    this.#pieces = cut.length === 0 ? [""] : cut;
    this.#reasoning = reasoning;
  }

  /** Each window with its `content`, up to a cancel. */
  *[Symbol.iterator](): Generator<{ content: string; window: ResponseWindow }> {
    for (const [seq, piece] of this.#pieces.entries()) {
      this.#content += piece;
      const last = seq === this.#pieces.length - 1;
      const window = { seq, before: endOf(this.#consumed), offset: countCharacters(this.#consumed), last };
      yield { content: this.#content, window };
      if (this.#cancelled !== undefined) return;
    }
  }

  /** Sends what the plugin consumed, and keeps the rest. */
  take({ cancelled, patch, notices, consumed: length = this.#content.length }: Reply<BeforeResponsePatch>): void {
    this.#notices.push(...notices);
    this.#cancelled = cancelled;
    if (cancelled !== undefined) return;
    const consumed = this.#content.slice(0, length);
    this.#content = this.#content.slice(length);
    this.#consumed += consumed;
    this.#sent += patch?.content ?? consumed;
    this.#reasoning = patch?.reasoning ?? this.#reasoning;
  }

  /** What came of the answer. */
  response(): WindowedResponse {
    return { content: this.#sent, reasoning: this.#reasoning, cancelled: this.#cancelled, notices: this.#notices };
  }
}

function endOf(text: string): string {
  // A character has at most two units. If the first one here is half of a character, it is one too many.
  return [...text.slice(-2 * MAX_BEFORE)].slice(-MAX_BEFORE).join("");
}
