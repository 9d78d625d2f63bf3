/** What a plugin gets at each point. JSON values are parsed when they are first read. */
import type * as wire from "./gen/hookgate/types/v1/types_pb.js";
import { type JsonObject, type JsonValue, parseJson } from "./json.js";
import type { Media } from "./media.js";

/** A JSON value that is parsed when it is first read. */
class LazyJson {
  #value: JsonValue | undefined;

  constructor(readonly bytes: Uint8Array) {}

  /** `undefined` if the value is absent. */
  get value(): JsonValue | undefined {
    if (this.#value === undefined && this.bytes.length > 0) this.#value = parseJson(this.bytes);
    return this.#value;
  }

  /** The gateway has checked that it is an array. */
  get array(): JsonValue[] | undefined {
    return this.value as JsonValue[] | undefined;
  }

  /** The gateway has checked that it is an object. */
  get object(): JsonObject | undefined {
    return this.value as JsonObject | undefined;
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
  readonly #messages: LazyJson;
  readonly #tools: LazyJson;
  readonly #extra: LazyJson;

  /** @internal */
  constructor(payload: wire.BeforeLlmRequestPayload) {
    this.text = payload.text;
    this.images = payload.images.map(mediaFromWire);
    this.files = payload.files.map(mediaFromWire);
    this.systemPrompt = payload.systemPrompt;
    this.#messages = new LazyJson(payload.messages);
    this.#tools = new LazyJson(payload.tools);
    this.#extra = new LazyJson(payload.extra);
  }

  /** The conversation in the agent's own format. */
  get messages(): JsonValue[] | undefined {
    return this.#messages.array;
  }

  /** The tools offered to the model in the agent's own format. */
  get tools(): JsonValue[] | undefined {
    return this.#tools.array;
  }

  /** Additional data for plugins. */
  get extra(): JsonObject | undefined {
    return this.#extra.object;
  }
}

/** A tool call that the agent is about to make. */
export class BeforeToolCallPayload {
  /** Name of the tool. */
  readonly toolName: string;
  /** The model's id of this call. */
  readonly callId: string | undefined;
  readonly #args: LazyJson;
  readonly #extra: LazyJson;

  /** @internal */
  constructor(payload: wire.BeforeToolCallPayload) {
    this.toolName = payload.toolName;
    this.callId = payload.callId;
    this.#args = new LazyJson(payload.args);
    this.#extra = new LazyJson(payload.extra);
  }

  /** The arguments. An integer beyond 2^53 is a BigInt. */
  get args(): JsonValue {
    return this.#args.value ?? null;
  }

  /** Additional data for plugins. */
  get extra(): JsonObject | undefined {
    return this.#extra.object;
  }
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
  readonly #result: LazyJson;
  readonly #args: LazyJson;
  readonly #extra: LazyJson;

  /** @internal */
  constructor(payload: wire.AfterToolResultPayload) {
    this.toolName = payload.toolName;
    this.success = payload.success ?? false;
    this.callId = payload.callId;
    this.durationMs = payload.durationMs === undefined ? undefined : Number(payload.durationMs);
    this.#result = new LazyJson(payload.result);
    this.#args = new LazyJson(payload.args);
    this.#extra = new LazyJson(payload.extra);
  }

  /** The tool's result, or its error. An integer beyond 2^53 is a BigInt. */
  get result(): JsonValue {
    return this.#result.value ?? null;
  }

  /** The arguments as executed, if the agent said. */
  get args(): JsonValue | undefined {
    return this.#args.value;
  }

  /** Additional data for plugins. */
  get extra(): JsonObject | undefined {
    return this.#extra.object;
  }
}

/** The answer that the agent is about to show to the user. */
export class BeforeResponsePayload {
  /** The answer's text. */
  readonly content: string;
  /** The model's reasoning, if it is shown. */
  readonly reasoning: string | undefined;
  /** Provider of the model that answered. */
  readonly provider: string | undefined;
  /** Model that answered. */
  readonly model: string | undefined;
  /** Router that chose the model. */
  readonly router: string | undefined;
  /** Tokens of the prompt and of the completion. */
  readonly tokenUsage: { readonly input: number; readonly output: number } | undefined;
  /** Why the model stopped, in the provider's words. */
  readonly stopReason: string | undefined;
  readonly #extra: LazyJson;

  /** @internal */
  constructor(payload: wire.BeforeResponsePayload) {
    this.content = payload.content;
    this.reasoning = payload.reasoning;
    this.provider = payload.provider;
    this.model = payload.model;
    this.router = payload.router;
    const usage = payload.tokenUsage;
    this.tokenUsage = usage && { input: Number(usage.input), output: Number(usage.output) };
    this.stopReason = payload.stopReason;
    this.#extra = new LazyJson(payload.extra);
  }

  /** Additional data for plugins. */
  get extra(): JsonObject | undefined {
    return this.#extra.object;
  }
}

/** What happened in the agent's life. */
export class HookPayload {
  /** Name of the hook. */
  readonly hook: string;
  readonly #body: LazyJson;

  /** @internal */
  constructor(payload: wire.HookPayload) {
    this.hook = payload.hook;
    this.#body = new LazyJson(payload.body);
  }

  /** What happened, in the form that docs/protocol.md gives for known hooks. */
  get body(): JsonObject {
    return this.#body.object ?? {};
  }
}

function mediaFromWire({ source, mimeType, filename }: wire.Media): Media {
  const content = source.case === "data" ? { data: source.value } : { url: source.value ?? "" };
  return { ...content, mimeType, filename };
}
