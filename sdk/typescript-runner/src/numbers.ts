/**
 * Numbers as plugins of other systems know them.
 *
 * The SDK gives integers beyond 2^53 as BigInts, which `JSON.stringify` refuses. These plugins get what `JSON.parse` would have given them,
 * and what they don't change goes back exactly.
 */
import type { JsonValue } from "@hookgate/sdk";

/** A JSON value without BigInts. */
export type PlainJson = null | boolean | number | string | PlainJson[] | PlainObject;

/** A JSON object without BigInts. */
export type PlainObject = { [name: string]: PlainJson };

/** A copy without BigInts, which the plugin may change. */
export function plainNumbers(value: JsonValue): PlainJson {
  if (typeof value === "bigint") return Number(value);
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(plainNumbers);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plainNumbers(member)]));
}

/** The value with the exact integers of the original, wherever the plugin moved them. */
export function exactIntegers(value: unknown, original: JsonValue | undefined): unknown {
  const exact = new Map<number, bigint | undefined>();
  collect(original, exact);
  return exact.size === 0 ? value : restore(value, original, exact);
}

/** Two integers that JavaScript rounds to the same number are ambiguous, and `undefined`. */
function collect(value: JsonValue | undefined, exact: Map<number, bigint | undefined>): void {
  if (typeof value === "bigint") {
    const rounded = Number(value);
    exact.set(rounded, exact.has(rounded) && exact.get(rounded) !== value ? undefined : value);
  } else if (value !== null && typeof value === "object") {
    for (const member of Object.values(value)) collect(member, exact);
  }
}

function restore(value: unknown, original: unknown, exact: ReadonlyMap<number, bigint | undefined>): unknown {
  if (typeof value === "number") {
    if (typeof original === "bigint" && Number(original) === value) return original;
    return exact.get(value) ?? value;
  }
  if (value === null || typeof value !== "object" || "toJSON" in value) return value;
  const at = (name: string) =>
    original !== null && typeof original === "object" ? (original as Record<string, unknown>)[name] : undefined;
  if (Array.isArray(value)) return value.map((item, index) => restore(item, at(String(index)), exact));
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, restore(member, at(name), exact)]));
}
