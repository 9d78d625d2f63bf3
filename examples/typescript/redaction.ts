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
  email: /(?<![\w.%+-])[\w.%+-]+@[\w-]+(?:\.[\w-]+)+/g,
  // 13 to 19 digits, also in groups.
  card: /(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)/g,
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
    return this.kinds.reduce((rest, kind) => rest.replace(PATTERNS[kind], (match) => this.#mask(kind, match)), text);
  }

  /** A notice that says how much was masked, and nothing else. */
  get notices(): Notice[] {
    if (Object.keys(this.found).length === 0) return [];
    return [{ kind: "info", code: "REDACTED", message: "Personal data was masked.", details: this.found }];
  }

  #mask(kind: Kind, match: string): string {
    if (kind === "card" && !isCardNumber(match)) return match;
    this.found[kind] = (this.found[kind] ?? 0) + 1;
    return `[${kind}]`;
  }
}

/** Whether the last digit checks the others (Luhn), as in numbers of cards. */
function isCardNumber(text: string): boolean {
  const digits = [...text.replace(/\D/g, "")].reverse().map(Number);
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
