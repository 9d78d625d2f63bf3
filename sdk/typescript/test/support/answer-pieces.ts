/** Answers of models as lists of texts, thoughts and calls, whichever library has them, and a redactor of such answers. */
import * as fc from "fast-check";
import { type PointReply, patch } from "./point-script.js";

/** A text, a thought, or a call of the tool with this name. */
export interface Piece {
  readonly kind: "text" | "thought" | "call";
  readonly text: string;
}

export const text = (text: string): Piece => ({ kind: "text", text });
export const thought = (text: string): Piece => ({ kind: "thought", text });
export const call = (text: string): Piece => ({ kind: "call", text });

/** Lists of pieces whose texts would be redacted otherwise if they were joined. */
export const anyPieces: fc.Arbitrary<Piece[]> = fc.array(
  fc.record({
    kind: fc.constantFrom("text", "text", "thought", "call"),
    text: fc.constantFrom("Card 4111111111111111", "2 cards found", "I write to ada@example.com", "Next I read.", "SPAM", "", " ", "é"),
  }),
  { maxLength: 7 },
);

/** A text without numbers of cards, without addresses, and without spam. */
export function redact(text: string): string {
  const redacted = text.replaceAll(/\b\d{16}\b/g, "[CARD]").replaceAll(/[\w.]+@[\w.]+/g, "[EMAIL]");
  return redacted.replaceAll("SPAM", "");
}

/** Redacts the text and the reasoning of an answer. */
export const redactor: PointReply = patch(({ content, reasoning }) => ({
  content: redact(String(content ?? "")),
  ...(reasoning === undefined ? {} : { reasoning: redact(String(reasoning)) }),
}));

/** Pieces next to each other that are of one kind, such as parts of one message. */
export function runsOf(pieces: readonly Piece[]): Piece[][] {
  const runs: Piece[][] = [];
  for (const piece of pieces) {
    const run = runs.at(-1);
    if (run?.[0]?.kind === piece.kind) run.push(piece);
    else runs.push([piece]);
  }
  return runs;
}
