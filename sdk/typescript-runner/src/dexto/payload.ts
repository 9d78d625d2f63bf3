/** Payloads and patches: the gateway's on one side, Dexto's on the other. */
import { isDeepStrictEqual } from "node:util";
import type {
  AfterToolResultPayload,
  BeforeLlmRequestPayload,
  BeforeResponsePayload,
  BeforeToolCallPayload,
  Context,
  JsonObject,
} from "@hookgate/sdk";
import { exactIntegers, plainNumbers } from "../numbers.js";
import type { DextoPoint } from "./load.js";
import { mediaFromDexto, mediumToDexto } from "./media.js";

/** A payload in Dexto's form. */
export type DextoPayload = { [name: string]: unknown };

/** Members of a patch of the SDK. */
export type LoosePatch = { [name: string]: unknown };

interface PayloadMap<Payload> {
  /** The members that Dexto names. */
  read(call: Payload, ctx: Context, firstMediumOnly: boolean): DextoPayload;
  /** How a changed member is sent. A member that isn't here can't be changed at the gateway. */
  readonly writers: { readonly [name: string]: (value: unknown, call: Payload) => LoosePatch };
}

type AnyCall = { readonly extra: JsonObject | undefined };

const LLM_REQUEST: PayloadMap<BeforeLlmRequestPayload> = {
  read: (call, ctx, firstMediumOnly) => ({
    text: call.text,
    imageData: mediumToDexto(call.images, "image", firstMediumOnly),
    fileData: mediumToDexto(call.files, "data", firstMediumOnly),
    sessionId: ctx.caller.sessionId,
  }),
  writers: {
    text: (text) => ({ text: textOf(text, "text") }),
    imageData: (image, { images }) => ({ images: mediaFromDexto(image, "image", images) }),
    fileData: (file, { files }) => ({ files: mediaFromDexto(file, "data", files) }),
  },
};

const TOOL_CALL: PayloadMap<BeforeToolCallPayload> = {
  read: (call, ctx) => ({
    toolName: call.toolName,
    args: plainNumbers(call.args),
    sessionId: ctx.caller.sessionId,
    callId: call.callId,
  }),
  writers: {
    toolName: (name) => ({ toolName: textOf(name, "toolName") }),
    args: (args, call) => ({ args: exactIntegers(args ?? null, call.args) }),
  },
};

const TOOL_RESULT: PayloadMap<AfterToolResultPayload> = {
  read: (call, ctx) => ({
    toolName: call.toolName,
    result: plainNumbers(call.result),
    success: call.success,
    sessionId: ctx.caller.sessionId,
    callId: call.callId,
  }),
  writers: { result: (result, call) => ({ result: exactIntegers(result ?? null, call.result) }) },
};

const RESPONSE: PayloadMap<BeforeResponsePayload> = {
  read: (call, ctx) => ({
    content: call.content,
    reasoning: call.reasoning,
    provider: call.provider ?? ctx.caller.provider,
    model: call.model ?? ctx.caller.model,
    router: call.router,
    tokenUsage: call.tokenUsage && { ...call.tokenUsage },
    sessionId: ctx.caller.sessionId,
  }),
  writers: {
    content: (content) => ({ content: textOf(content, "content") }),
    // A patch can't remove the reasoning, and one that the plugin removed must not be shown.
    reasoning: (reasoning) => ({ reasoning: textOf(reasoning ?? "", "reasoning") }),
  },
};

const MAPS: { readonly [Point in DextoPoint]: PayloadMap<any> } = {
  beforeLLMRequest: LLM_REQUEST,
  beforeToolCall: TOOL_CALL,
  afterToolResult: TOOL_RESULT,
  beforeResponse: RESPONSE,
};

/** What the plugin gets. `extra` has the keys of Dexto's own that an earlier plugin or the agent added. */
export function payloadToDexto(point: DextoPoint, call: AnyCall, ctx: Context, firstMediumOnly: boolean): DextoPayload {
  const known = MAPS[point].read(call, ctx, firstMediumOnly);
  const extra = Object.entries(call.extra ?? {}).filter(([name]) => !Object.hasOwn(known, name));
  const present = Object.entries(known).filter(([, value]) => value !== undefined);
  return Object.fromEntries([...extra.map(([name, value]) => [name, plainNumbers(value)]), ...present]);
}

/**
 * The patch that turns the call into what the plugin left.
 *
 * @param before The payload before the plugin saw it.
 * @param after The payload after the plugin changed it in place, with `modify` on top.
 * @throws {TypeError} If it has another type, or is a member that the gateway doesn't let anybody change.
 */
export function patchFromDexto(point: DextoPoint, call: AnyCall, before: DextoPayload, after: DextoPayload): LoosePatch {
  const patch: LoosePatch = {};
  const extra: LoosePatch = { ...call.extra };
  let isExtraChanged = false;
  const { writers, read } = MAPS[point];
  const known = new Set(Object.keys(read(call, { caller: {} } as Context, true)));
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const value = own(after, name);
    if (isDeepStrictEqual(value, own(before, name))) continue;
    const write = own(writers, name);
    if (write !== undefined) Object.assign(patch, write(value, call));
    else if (known.has(name)) throw new TypeError(`\`modify\`: \`${name}\` can't be changed at ${point}: leave it out`);
    else {
      isExtraChanged = true;
      const exact = exactIntegers(value, own(call.extra ?? {}, name));
      // An assignment would set the prototype where the name is `__proto__`.
      Object.defineProperty(extra, name, { value: exact, enumerable: true, configurable: true, writable: true });
    }
  }
  return isExtraChanged ? { ...patch, extra } : patch;
}

/** A member of the object itself, whatever its name is. */
function own<T>(object: { readonly [name: string]: T }, name: string): T | undefined {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

function textOf(value: unknown, name: string): string {
  if (typeof value !== "string")
    throw new TypeError(`\`modify\`: \`${name}\` must be a string, and is ${value === null ? "null" : typeof value}`);
  return value;
}
