/** A scripted model of the AI SDK, which answers the same whole and streamed. */
import { MockLanguageModelV3, convertArrayToReadableStream } from "ai/test";

type GenerateResult = Awaited<ReturnType<MockLanguageModelV3["doGenerate"]>>;
type Content = GenerateResult["content"][number];
type StreamPart = Awaited<ReturnType<MockLanguageModelV3["doStream"]>>["stream"] extends ReadableStream<infer Part> ? Part : never;

/** A model that streams these parts. */
export function streamingModel(...parts: StreamPart[]): MockLanguageModelV3 {
  return new MockLanguageModelV3({ doStream: async () => ({ stream: convertArrayToReadableStream(parts) }) });
}

/** One answer of the model. */
export interface ModelAnswer {
  readonly reasoning?: string;
  readonly text?: string;
  readonly toolCalls?: readonly { readonly id: string; readonly name: string; readonly input: unknown }[];
}

/** A model that gives these answers one after another. */
export function scriptedModel(...answers: ModelAnswer[]): MockLanguageModelV3 {
  let next = 0;
  const result = () => {
    const answer = answers[next];
    next += 1;
    if (answer === undefined) throw new Error("the model was asked too often");
    return generateResult(answer);
  };
  return new MockLanguageModelV3({
    provider: "fake",
    modelId: "fake-1",
    supportedUrls: { "*/*": [/^https:/] },
    doGenerate: async () => result(),
    doStream: async () => ({ stream: convertArrayToReadableStream(streamParts(result())) }),
  });
}

function generateResult({ reasoning, text, toolCalls = [] }: ModelAnswer): GenerateResult {
  const content: Content[] = [];
  if (reasoning !== undefined) content.push({ type: "reasoning", text: reasoning, providerMetadata: { fake: { signature: "s" } } });
  if (text !== undefined) content.push({ type: "text", text });
  for (const { id, name, input } of toolCalls) {
    content.push({ type: "tool-call", toolCallId: id, toolName: name, input: JSON.stringify(input) });
  }
  const unified = toolCalls.length > 0 ? "tool-calls" : "stop";
  return {
    content,
    finishReason: { unified, raw: `raw ${unified}` },
    usage: {
      inputTokens: { total: 3, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
      outputTokens: { total: 5, text: undefined, reasoning: undefined },
    },
    providerMetadata: { fake: { logprobs: [] } },
    response: { id: "response-1", body: { raw: text ?? null } },
    warnings: [],
  };
}

/** The result cut into pieces of two characters. */
function streamParts({ content, finishReason, usage, providerMetadata }: GenerateResult): StreamPart[] {
  const parts: StreamPart[] = [
    { type: "stream-start", warnings: [] },
    { type: "response-metadata", id: "response-1" },
  ];
  content.forEach((part, index) => {
    const id = `${index}`;
    if (part.type === "tool-call") parts.push(part);
    if (part.type !== "text" && part.type !== "reasoning") return;
    const pieces = part.text.match(/..?/gs) ?? [];
    parts.push({ type: `${part.type}-start`, id });
    for (const delta of pieces) {
      parts.push({ type: "raw", rawValue: { delta } });
      parts.push(part.type === "text" ? { type: "text-delta", id, delta } : { type: "reasoning-delta", id, delta });
    }
    parts.push({ type: `${part.type}-end`, id });
  });
  parts.push({ type: "finish", finishReason, usage, ...(providerMetadata === undefined ? {} : { providerMetadata }) });
  return parts;
}
