/** What a plugin gets at each point. JSON values are parsed when they are first read. */
import type { ResponseWindow as WireWindow } from "./gen/hookgate/plugin/v1/plugin_pb.js";
import type * as wire from "./gen/hookgate/types/v1/types_pb.js";
import { type JsonObject, type JsonValue, parseJson } from "./json.js";
import type { Media } from "./media.js";
import type { TokenUsage } from "./token-usage.js";

/**
 * Defines members whose JSON is parsed when they are first read. They are the object's own, so that a plugin that copies or writes the
 * payload as a whole sees them.
 */
function defineJson<T extends object>(
  payload: T,
  members: { readonly [Name in keyof T]?: { bytes: Uint8Array; absent?: JsonValue } },
): void {
  for (const [name, { bytes, absent }] of Object.entries(members) as [string, { bytes: Uint8Array; absent?: JsonValue }][]) {
    let value: JsonValue | undefined;
    const get = () => {
      value ??= bytes.length > 0 ? parseJson(bytes) : absent;
      return value;
    };
    Object.defineProperty(payload, name, { enumerable: true, get });
  }
}

/** What the agent is about to send to a model. */
export class BeforeLlmRequestPayload {
  /** The user's text. May be empty. */
  readonly text: string;
  /** Images beside the text. */
  readonly images: readonly Media[];
  /** Files beside the text. */
  readonly files: readonly Media[];
  /** The system prompt. */
  readonly systemPrompt: string | undefined;

  /** @internal */
  constructor(payload: wire.BeforeLlmRequestPayload) {
    this.text = payload.text;
    this.images = payload.images.map(mediaFromWire);
    this.files = payload.files.map(mediaFromWire);
    this.systemPrompt = payload.systemPrompt;
    const { messages, tools, extra } = payload;
    defineJson<BeforeLlmRequestPayload>(this, { messages: { bytes: messages }, tools: { bytes: tools }, extra: { bytes: extra } });
  }

  /** The conversation in the agent's own format. */
  declare readonly messages: JsonValue[] | undefined;

  /** The tools offered to the model in the agent's own format. */
  declare readonly tools: JsonValue[] | undefined;

  /** Additional data for plugins. */
  declare readonly extra: JsonObject | undefined;
}

/** A tool call that the agent is about to make. */
export class BeforeToolCallPayload {
  /** Name of the tool. */
  readonly toolName: string;
  /** The model's id of this call. */
  readonly callId: string | undefined;

  /** @internal */
  constructor(payload: wire.BeforeToolCallPayload) {
    this.toolName = payload.toolName;
    this.callId = payload.callId;
    const { args, extra } = payload;
    defineJson<BeforeToolCallPayload>(this, { args: { bytes: args, absent: null }, extra: { bytes: extra } });
  }

  /** The arguments. An integer beyond 2^53 is a BigInt. */
  declare readonly args: JsonValue;

  /** Additional data for plugins. */
  declare readonly extra: JsonObject | undefined;
}

/** What a tool returned, on success and on failure. */
export class AfterToolResultPayload {
  /** Name of the tool that ran. */
  readonly toolName: string;
  /** Whether the tool succeeded. */
  readonly success: boolean;
  /** The model's id of this call. */
  readonly callId: string | undefined;
  /** How long the tool ran, in milliseconds. */
  readonly durationMs: number | undefined;

  /** @internal */
  constructor(payload: wire.AfterToolResultPayload) {
    this.toolName = payload.toolName;
    this.success = payload.success ?? false;
    this.callId = payload.callId;
    this.durationMs = payload.durationMs === undefined ? undefined : Number(payload.durationMs);
    const { result, args, extra } = payload;
    defineJson<AfterToolResultPayload>(this, { result: { bytes: result, absent: null }, args: { bytes: args }, extra: { bytes: extra } });
  }

  /** The tool's result, or its error. An integer beyond 2^53 is a BigInt. */
  declare readonly result: JsonValue;

  /** The arguments as executed, if the agent said. */
  declare readonly args: JsonValue | undefined;

  /** Additional data for plugins. */
  declare readonly extra: JsonObject | undefined;
}

/**
 * Which part of an answer's text a call is about, while the model still writes the answer. All windows of an answer have the same
 * `requestId`.
 */
export interface ResponseWindow {
  /** Number of the window in this answer, from 0. */
  readonly seq: number;
  /**
   * The characters in front of `content`, at most 1,024. The plugin has consumed them; they are as they were before it changed them. To
   * look at, not to change.
   */
  readonly before: string;
  /** How many characters the plugin has consumed: Unicode code points, of which an emoji is one and has the `length` 2. */
  readonly offset: number;
  /** Nothing follows: all of `content` must be consumed. Only this window has `tokenUsage` and `stopReason`. */
  readonly last: boolean;
}

/** The answer that the agent is about to show to the user. */
export class BeforeResponsePayload {
  /** The answer's text. Each of several texts that a reader sees apart comes in a call of its own. */
  readonly content: string;
  /** The model's reasoning, if it is shown. Each of several thoughts comes in a call of its own. */
  readonly reasoning: string | undefined;
  /** Provider of the model that answered. */
  readonly provider: string | undefined;
  /** Model that answered. */
  readonly model: string | undefined;
  /** Router that chose the model. */
  readonly router: string | undefined;
  /** Tokens of the prompt and of the completion. Only one call about an answer has them. */
  readonly tokenUsage: TokenUsage | undefined;
  /** Why the model stopped, in the provider's words. */
  readonly stopReason: string | undefined;
  /**
   * Which part of the answer's text `content` is; `undefined` if it is the whole text. Only plugins that offer `windows` get parts. They
   * answer with `proceed(patch, { consumed })`.
   */
  readonly window: ResponseWindow | undefined;

  /** @internal */
  constructor(payload: wire.BeforeResponsePayload, window?: WireWindow) {
    this.content = payload.content;
    this.reasoning = payload.reasoning;
    this.provider = payload.provider;
    this.model = payload.model;
    this.router = payload.router;
    const usage = payload.tokenUsage;
    this.tokenUsage = usage && { input: Number(usage.input), output: Number(usage.output) };
    this.stopReason = payload.stopReason;
    this.window = window && { seq: window.seq, before: window.before, offset: Number(window.offset), last: window.last };
    defineJson<BeforeResponsePayload>(this, { extra: { bytes: payload.extra } });
  }

  /** Additional data for plugins. */
  declare readonly extra: JsonObject | undefined;
}

/** What happened in the agent's life. */
export class HookPayload {
  /** Name of the hook. */
  readonly hook: string;

  /** @internal */
  constructor(payload: wire.HookPayload) {
    this.hook = payload.hook;
    defineJson<HookPayload>(this, { body: { bytes: payload.body, absent: {} } });
  }

  /** What happened, in the form that docs/protocol.md gives for known hooks. */
  declare readonly body: JsonObject;
}

function mediaFromWire({ source, mimeType, filename }: wire.Media): Media {
  const content = source.case === "data" ? { data: source.value } : { url: source.value ?? "" };
  return { ...content, mimeType, filename };
}
