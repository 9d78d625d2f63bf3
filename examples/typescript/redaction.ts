/**
 * Masks e-mail addresses and card numbers in tools' results and in answers, so that neither the model nor the user sees them. It masks
 * values, not the names of members. A tenant may choose the kinds.
 */
import { type JsonValue, type Notice, definePlugin, proceed } from "@hookgate/sdk";
import { z } from "zod";

const KINDS = ["email", "card"] as const;

type Kind = (typeof KINDS)[number];

const PATTERNS: { readonly [K in Kind]: RegExp } = {
  // Begins where an address can begin, so that a long text without one takes linear time.
  email: /(?<![\p{L}\p{N}_.%+-])[\p{L}\p{N}_.%+-]+@[\p{L}\p{N}_-]+(?:\.[\p{L}\p{N}_-]+)+/gu,
  // Digits, also in groups. A number of a card may be a part of them.
  card: /\d(?:[\s.-]{0,2}\d){12,}/g,
};

/** Masks values, and counts what it found. */
class Redactor {
  readonly found: { [K in Kind]?: number } = {};

  constructor(private readonly kinds: readonly Kind[]) {}

  /** The value without what must not be seen. The same value if there is nothing. */
  redact(value: JsonValue): JsonValue {
    switch (typeof value) {
      case "string":
        return this.redactText(value);
      case "number":
      case "bigint": {
        const text = String(value);
        const redacted = this.redactText(text);
        return redacted === text ? value : redacted;
      }
      case "object":
        if (value === null) return null;
        if (Array.isArray(value)) return value.map((item) => this.redact(item));
        return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, this.redact(member)]));
      default:
        return value;
    }
  }

  redactText(text: string): string {
    return this.kinds.reduce((rest, kind) => {
      return rest.replace(PATTERNS[kind], (match) => (kind === "card" ? this.#maskCards(match) : this.#mask(kind)));
    }, text);
  }

  /** A notice that says how much was masked, and nothing else. */
  get notices(): Notice[] {
    if (Object.keys(this.found).length === 0) return [];
    return [{ kind: "info", code: "REDACTED", message: "Personal data was masked.", details: this.found }];
  }

  #mask(kind: Kind): string {
    this.found[kind] = (this.found[kind] ?? 0) + 1;
    return `[${kind}]`;
  }

  /** Groups of digits with a mask in place of those that are the number of a card. */
  #maskCards(text: string): string {
    const groups = [...text.matchAll(/\d+/g)];
    let [masked, end] = ["", 0];
    for (let first = 0; first < groups.length; first += 1) {
      const last = lastOfCard(groups, first);
      if (last === undefined) continue;
      masked += text.slice(end, groups[first]?.index) + this.#mask("card");
      end = (groups[last]?.index ?? 0) + (groups[last]?.[0].length ?? 0);
      first = last;
    }
    return masked + text.slice(end);
  }
}

/** The last of the groups of digits that are the number of a card and begin with `first`; `undefined` if none are. */
function lastOfCard(groups: readonly RegExpMatchArray[], first: number): number | undefined {
  let [digits, last]: [string, number | undefined] = ["", undefined];
  for (let at = first; at < groups.length && digits.length <= 19; at += 1) {
    digits += groups[at]?.[0];
    if (digits.length >= 13 && digits.length <= 19 && isCardNumber(digits)) last = at;
  }
  return last;
}

/** Whether the last digit checks the others (Luhn), as in numbers of cards. */
function isCardNumber(text: string): boolean {
  const digits = [...text].reverse().map(Number);
  const sum = digits.reduce((total, digit, index) => total + (index % 2 === 0 ? digit : digit * 2 - (digit > 4 ? 9 : 0)), 0);
  return sum % 10 === 0;
}

const offer = { access: "modify", sideEffects: "none" } as const;

export default definePlugin({
  name: "redaction",
  version: "1.0.0",
  tenantConfig: z.strictObject({
    kinds: z
      .array(z.enum(KINDS))
      .default([...KINDS])
      .describe("What is masked."),
  }),
  points: { afterToolResult: offer, beforeResponse: offer },

  afterToolResult({ result }, ctx) {
    const redactor = new Redactor(ctx.tenantConfig.kinds);
    const redacted = redactor.redact(result);
    // An unchanged result stays out of the patch, byte for byte as it was.
    return redactor.notices.length === 0 ? proceed() : proceed({ result: redacted }, { notices: redactor.notices });
  },

  beforeResponse({ content, reasoning }, ctx) {
    const redactor = new Redactor(ctx.tenantConfig.kinds);
    const patch = {
      content: redactor.redactText(content),
      ...(reasoning === undefined ? {} : { reasoning: redactor.redactText(reasoning) }),
    };
    return redactor.notices.length === 0 ? proceed() : proceed(patch, { notices: redactor.notices });
  },
});
