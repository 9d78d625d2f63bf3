/** Lines that a plugin logs: at the gateway where the plugin may write there, else in the process's own log. */
import { type Attributes, type Capability, type Log, stderrLogger } from "@hookgate/sdk";
import { currentScope } from "./scope.js";

export type LogLevel = "debug" | "info" | "warn" | "error";

const MAX_ATTRIBUTES = 32;

/** Writes a line of the plugin and the call whose code runs. */
export function logLine(level: LogLevel, message: unknown, details: unknown, capabilities: readonly Capability[]): void {
  const { plugin, ctx, host } = currentScope() ?? {};
  const text = String(message) || "(no text)";
  const attributes = { ...attributesOf(details), ...(ctx?.caller.sessionId === undefined ? {} : { session_id: ctx.caller.sessionId }) };
  const log: Log | undefined = capabilities.includes("log") ? (ctx?.log ?? host?.log) : undefined;
  if (log !== undefined) log[level](text, attributes);
  else if (level !== "debug") stderrLogger[level](text, { plugin, tenant: ctx?.tenant, ...attributes });
}

/** Attributes within the gateway's rules, which would drop the whole line. */
function attributesOf(details: unknown): Attributes {
  if (details instanceof Error) return { error: details };
  if (details === null || typeof details !== "object") return details === undefined ? {} : { details: String(details) };
  // One place is for the session.
  const members = Object.entries(details).slice(0, MAX_ATTRIBUTES - 1);
  return Object.fromEntries(members.map(([name, value]) => [attributeName(name), attributeValue(value)]));
}

function attributeName(name: string): string {
  const safe = name.replace(/[^A-Za-z0-9_.-]/g, "_").slice(0, 64) || "_";
  return safe === "left_out" ? "left_out_" : safe;
}

function attributeValue(value: unknown): Attributes[string] {
  if (typeof value === "symbol") return String(value);
  if (value === null || typeof value !== "object" || value instanceof Error) return value as Attributes[string];
  try {
    return JSON.stringify(value, (_, member) => (typeof member === "bigint" ? String(member) : member)) ?? String(value);
  } catch {
    return "[an object without a JSON form]";
  }
}
