/** Results that plugins return, as plain JSON: the next plugin, and the gateway, get copies of them. */
import { isDeepStrictEqual } from "node:util";
import type { AfterToolResultPayload } from "@hookgate/sdk";
import { type TextResult, checkTextResult, isTextResult } from "../tool-result.js";

/** @throws {TypeError} If a plugin returned something else, or data without a JSON form. */
export function plainResult(returned: unknown, where: string): TextResult {
  const { content, isError, data } = checkTextResult(returned, where);
  return {
    content,
    ...(isError === undefined ? {} : { isError }),
    ...(data === undefined ? {} : { data: plainData(data, where) }),
  };
}

function plainData(data: unknown, where: string): unknown {
  let text: string | undefined;
  try {
    text = JSON.stringify(data);
  } catch (error) {
    throw new TypeError(`${where} returned \`data\` that has no JSON form`, { cause: error });
  }
  if (text === undefined) throw new TypeError(`${where} returned \`data\` that has no JSON form`);
  return JSON.parse(text);
}

/** Whether the result that came is the one that a wrapper answered with. An agent may keep only the text of it. */
export function isAnswered(answered: TextResult, came: TextResult, { result }: AfterToolResultPayload): boolean {
  const same = answered.content === came.content && (answered.isError ?? false) === (came.isError ?? false);
  return same && (!isTextResult(result) || isDeepStrictEqual(answered.data, came.data));
}
