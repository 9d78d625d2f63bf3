/** What a handler may say of a window of an answer. */
import { countCharacters, splitsCharacter } from "../characters.js";
import { PluginError } from "../errors.js";
import type { ResponseWindow } from "../gen/hookgate/plugin/v1/plugin_pb.js";
import type { PointName } from "../point.js";
import type { Reply } from "../reply.js";

/** How much of a window may come again. */
const MAX_REST_BYTES = 64 << 10;

/**
 * How many characters go on, as the gateway counts them; `undefined` for all of them.
 *
 * @param payload The message of the call.
 * @throws {PluginError} If the gateway would refuse the reply.
 */
export function consumedInWindow(
  point: PointName,
  { consumed, cancelled }: Reply<unknown>,
  payload: unknown,
  window: ResponseWindow | undefined,
): number | undefined {
  if (consumed === undefined || cancelled !== undefined) return undefined;
  if (point !== "beforeResponse") throw PluginError.internal(`\`consumed\` is only for beforeResponse, not for ${point}`);
  if (!Number.isInteger(consumed) || consumed < 0) {
    throw PluginError.internal(`\`consumed\` must be a length, as of \`content.slice(0, consumed)\`, not ${String(consumed)}`);
  }
  const { content } = payload as { readonly content: string };
  // A whole answer is its own last window: what isn't consumed would pass unjudged.
  checkRange(consumed, content, window === undefined || window.last);
  return countCharacters(content.slice(0, consumed));
}

function checkRange(consumed: number, content: string, isLast: boolean): void {
  const is = `\`consumed\` is ${consumed}`;
  if (consumed > content.length) throw PluginError.internal(`${is}, but \`content\` has only the length ${content.length}`);
  if (splitsCharacter(content, consumed)) throw PluginError.internal(`${is}, which splits a character of two UTF-16 units`);
  if (isLast && consumed < content.length) {
    throw PluginError.internal(`${is}, but nothing follows: all must go on, the length ${content.length}`);
  }
  const rest = Buffer.byteLength(content.slice(consumed));
  if (rest > MAX_REST_BYTES) {
    throw PluginError.internal(`${is}, which leaves ${rest} bytes of \`content\` to come again, ${MAX_REST_BYTES} are allowed`);
  }
}
