/** Lines that a plugin logs: at the gateway where the plugin may write there, else in the process's own log. */
import { type Attributes, type Capability, type Log, stderrLogger } from "@hookgate/sdk";
import { type Scope, currentScope } from "./scope.js";
import { anyText, attempt, stackText } from "./text.js";

export type LogLevel = "debug" | "info" | "warn" | "error";

const MAX_ATTRIBUTES = 32;

/** Writes a line of the plugin and the call whose code runs, or of another scope. Never throws, whatever the plugin logs. */
export function logLine(
  level: LogLevel,
  message: unknown,
  details: unknown,
  capabilities: readonly Capability[],
  { plugin, ctx, host }: Partial<Scope> = currentScope() ?? {},
): void {
  const text = anyText(message) || "(no text)";
  const attributes = { ...attributesOf(details), ...(ctx?.caller.sessionId === undefined ? {} : { session_id: ctx.caller.sessionId }) };
  const log: Log | undefined = capabilities.includes("log") ? (ctx?.log ?? host?.log) : undefined;
  if (log !== undefined) log[level](text, attributes);
  else if (level !== "debug") {
    const plain = Object.entries(attributes).map(([name, value]) => [name, (value as unknown) instanceof Error ? stackText(value) : value]);
    stderrLogger[level](text, { ...Object.fromEntries(plain), plugin, tenant: ctx?.tenant });
  }
}

/** Attributes within the gateway's rules, which would drop the whole line. */
function attributesOf(details: unknown): Attributes {
  if (details instanceof Error) return { error: details };
  if (details === null || typeof details !== "object") return details === undefined ? {} : { details: anyText(details) };
  // One place is for the session.
  const names = attempt(
    () => Object.keys(details),
    () => [],
  );
  const value = (name: string) =>
    attempt<unknown>(
      () => (details as Record<string, unknown>)[name],
      () => "[a member that throws]",
    );
  return Object.fromEntries(names.slice(0, MAX_ATTRIBUTES - 1).map((name) => [attributeName(name), attributeValue(value(name))]));
}

function attributeName(name: string): string {
  const safe = name.replace(/[^A-Za-z0-9_.-]/g, "_").slice(0, 64) || "_";
  return safe === "left_out" ? "left_out_" : safe;
}

function attributeValue(value: unknown): Attributes[string] {
  if (typeof value === "symbol" || typeof value === "function") return anyText(value);
  if (value === null || typeof value !== "object" || value instanceof Error) return value as Attributes[string];
  try {
    return JSON.stringify(value, (_, member) => (typeof member === "bigint" ? String(member) : member)) ?? String(value);
  } catch {
    return "[an object without a JSON form]";
  }
}
