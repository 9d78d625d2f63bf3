/** A tool's result as Master Mind and drover know it, a text and whether it is an error; at the gateway it is any JSON value. */
import { isDeepStrictEqual } from "node:util";
import {
  type AfterToolResultPayload,
  type JsonObject,
  type JsonValue,
  type Notice,
  type Reply,
  ToolError,
  cancel,
  parseJson,
  proceed,
  writeJson,
} from "@hookgate/sdk";
import { cut } from "./notices.js";
import { exactIntegers, plainNumbers } from "./numbers.js";

/** What a tool returned. */
export interface TextResult {
  readonly content: string;
  readonly isError?: boolean;
  /** Facts beside the text; only in drover. */
  readonly data?: unknown;
}

/** The members that a system's own results have. */
export type ResultForm = readonly string[];

export const DROVER_FORM: ResultForm = ["content", "isError", "data"];
export const MASTER_MIND_FORM: ResultForm = ["content", "isError"];

/** Whether the agent sent a result with a text, and perhaps with members that a plugin wouldn't see in its own form. */
export function hasContent(result: JsonValue): result is JsonObject & { content: string } {
  return result !== null && typeof result === "object" && !Array.isArray(result) && typeof result.content === "string";
}

/** Whether the agent sent a result in the form of the plugin's system: a plugin sees all of it. */
export function isTextResult(result: JsonValue, form: ResultForm = DROVER_FORM): result is JsonObject & { content: string } {
  if (!hasContent(result)) return false;
  return Object.keys(result).every((name) => form.includes(name) && (name !== "isError" || typeof result.isError === "boolean"));
}

/** The result of a call as a plugin sees it. What isn't in its form is JSON text, so that a plugin that redacts sees every member. */
export function textResultOf({ result, success }: AfterToolResultPayload, form: ResultForm = DROVER_FORM): TextResult {
  if (isTextResult(result, form)) {
    const { content, isError, data } = result;
    return {
      content,
      isError: typeof isError === "boolean" ? isError : !success,
      ...(data === undefined ? {} : { data: plainNumbers(data) }),
    };
  }
  const isError = hasContent(result) && typeof result.isError === "boolean" ? result.isError : !success;
  return { content: typeof result === "string" ? result : writeJson(result), isError };
}

/** @throws {TypeError} If a plugin returned something else. */
export function checkTextResult(returned: unknown, where: string): TextResult {
  const { content, isError } = (returned ?? {}) as { content?: unknown; isError?: unknown };
  if (typeof content !== "string" || (isError !== undefined && typeof isError !== "boolean")) {
    throw new TypeError(`${where} returned no result: it must be an object with the text \`content\`, and perhaps \`isError\``);
  }
  return returned as TextResult;
}

/**
 * The reply that replaces a call's result with what the plugin made of it. The form stays that of the agent's result. A result that has no
 * place for it becomes an error by a block, whose message the model sees.
 */
export function replyWithResult(
  { result }: AfterToolResultPayload,
  before: TextResult,
  after: TextResult,
  notices: readonly Notice[] = [],
  form: ResultForm = DROVER_FORM,
): Reply<any> {
  if (isTextResult(result, form)) return proceed(patchOfObject(result, before, after), { notices });
  if (after.isError && !before.isError) return cancel("TOOL_FAILED", cut(after.content), { notices });
  if (after.content === before.content) return proceed({}, { notices });
  return proceed({ result: typeof result === "string" ? after.content : jsonOrText(after.content) }, { notices });
}

function patchOfObject(result: JsonObject, before: TextResult, after: TextResult): { result?: object } {
  const patched: { [name: string]: unknown } = { ...result, content: after.content };
  if ((after.isError ?? false) !== (before.isError ?? false)) patched.isError = after.isError ?? false;
  if (after.data === undefined) delete patched.data;
  else if (!isDeepStrictEqual(after.data, before.data)) patched.data = exactIntegers(after.data, result.data);
  return isDeepStrictEqual(patched, result) ? {} : { result: patched };
}

/** What a redacted JSON text is: still JSON if it can be. */
function jsonOrText(text: string): JsonValue {
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}

/** The result of a plugin's own tool. @throws {ToolError} If it is an error, which the model sees. */
export function ownToolResult(returned: TextResult): TextResult {
  if (returned.isError) throw new ToolError(cut(returned.content));
  return returned;
}
