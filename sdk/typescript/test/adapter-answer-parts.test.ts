/** How the adapters show the parts of an answer, whole and streamed, and where changes of plugins go. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { HumanMessage, SystemMessage } from "@langchain/core/messages";
import type { AgentOutputItem, Model, ModelRequest } from "@openai/agents";
import * as fc from "fast-check";
import { AIMessage, createAgent } from "langchain";
import { type GenerateResult, guardGenerated, guardStreamed } from "../src/adapters/ai-answer.js";
import type { Part } from "../src/adapters/ai-prompt.js";
import { guard as guardLangChain } from "../src/adapters/langchain.js";
import { guardModel } from "../src/adapters/openai-agents.js";
import type { GatewayClient } from "../src/agent/index.js";
import { type Piece, anyPieces, call, redact, redactor, runsOf, text, thought } from "./support/answer-pieces.js";
import { continues } from "./support/fake-gateway.js";
import { ScriptedChatModel } from "./support/langchain-model.js";
import { type PointGateway, block, patch, pointGateway } from "./support/point-script.js";

/** Sends an answer with these pieces through the guard of a library, and says what is left of it. */
type Guarded = (client: GatewayClient, pieces: readonly Piece[]) => Promise<Piece[]>;

const USAGE = { inputTokens: 3, outputTokens: 5, totalTokens: 8 };

async function gather<T>(values: AsyncIterable<T>): Promise<T[]> {
  const gathered: T[] = [];
  for await (const value of values) gathered.push(value);
  return gathered;
}

const aiTypes = { text: "text", thought: "reasoning", call: "tool-call" } as const;

function aiPart({ kind, text }: Piece, index: number): Part {
  const providerMetadata = { fake: { index } };
  if (kind === "call") return { type: "tool-call", toolCallId: `${index}`, toolName: text, input: "{}" };
  return { type: aiTypes[kind], text, providerMetadata };
}

/** The pieces that parts of the AI SDK are, whole or streamed. */
function aiPieces(parts: readonly Part[]): Piece[] {
  const pieces: { kind: Piece["kind"]; text: string; id?: unknown }[] = [];
  for (const { type, id, delta, text, toolName } of parts) {
    const kind = type.startsWith("text") ? "text" : type.startsWith("reasoning") ? "thought" : "call";
    if (type === "tool-call") pieces.push({ kind, text: String(toolName) });
    else if (/^(text|reasoning)(-start)?$/.test(type)) pieces.push({ kind, text: String(text ?? ""), id });
    const open = type.endsWith("-delta") ? pieces.findLast((piece) => piece.kind === kind && piece.id === id) : undefined;
    if (open !== undefined) open.text += String(delta);
  }
  return pieces.map(({ kind, text }) => ({ kind, text }));
}

async function guardAi(client: GatewayClient, content: readonly Part[]): Promise<GenerateResult> {
  return guardGenerated(client, { content, finishReason: "stop", usage: USAGE }, { prompt: [] }, {});
}

async function guardAiStream(client: GatewayClient, parts: readonly Part[]): Promise<Part[]> {
  const finish = { type: "finish", finishReason: "stop", usage: USAGE };
  const stream = ReadableStream.from([{ type: "stream-start" }, ...parts, finish]) as ReadableStream<Part>;
  return gather((await guardStreamed(client, { stream }, { prompt: [] }, {})).stream);
}

function aiStreamParts(piece: Piece, index: number): Part[] {
  const [type, id] = [aiTypes[piece.kind], `${index}`];
  if (piece.kind === "call") return [aiPart(piece, index)];
  const deltas = (piece.text.match(/..?/gs) ?? []).map((delta) => ({ type: `${type}-delta`, id, delta }));
  return [{ type: `${type}-start`, id }, ...deltas, { type: `${type}-end`, id }];
}

/** Texts next to each other are parts of a message, and thoughts those of a summary. */
function openAiOutput(pieces: readonly Piece[]): AgentOutputItem[] {
  return runsOf(pieces).flatMap((run, index): AgentOutputItem[] => {
    if (run[0]?.kind === "call") {
      return run.map(({ text }) => ({ type: "function_call", callId: "c", name: text, arguments: "{}", status: "completed" }));
    }
    const providerData = { index };
    if (run[0]?.kind === "thought") {
      return [{ type: "reasoning", id: "r", content: run.map(({ text }) => ({ type: "input_text", text, providerData })), providerData }];
    }
    const content = run.map(({ text }) => ({ type: "output_text" as const, text, providerData }));
    return [{ type: "message", id: `m-${index}`, role: "assistant", status: "completed", content }];
  });
}

function openAiPieces(output: readonly AgentOutputItem[]): Piece[] {
  return output.flatMap((item) => {
    if (item.type === "reasoning") return item.content.map((part) => thought(part.text));
    if (item.type === "function_call") return [call(item.name)];
    const content = "content" in item && Array.isArray(item.content) ? item.content : [];
    return content.map((part) => text((part as { text: string }).text));
  });
}

function openAiModel(client: GatewayClient, output: AgentOutputItem[]): Model {
  const model = {
    getResponse: async () => ({ output, usage: USAGE }),
    async *getStreamedResponse() {
      yield { type: "response_done", response: { id: "r", usage: USAGE, output } };
    },
  };
  return guardModel(client, model as unknown as Model);
}

const OPENAI_REQUEST = { input: "hi", tools: [], handoffs: [], outputType: "text", modelSettings: {} } as unknown as ModelRequest;

async function guardOpenAi(client: GatewayClient, output: AgentOutputItem[]): Promise<AgentOutputItem[]> {
  return (await openAiModel(client, output).getResponse(OPENAI_REQUEST)).output;
}

async function guardOpenAiStream(client: GatewayClient, output: AgentOutputItem[]) {
  const events = await gather(openAiModel(client, output).getStreamedResponse(OPENAI_REQUEST));
  const deltas = events.flatMap((event) => (event.type === "output_text_delta" ? [event.delta] : []));
  const [done] = events.flatMap((event) => (event.type === "response_done" ? [event.response.output as AgentOutputItem[]] : []));
  return { deltas, output: done ?? [] };
}

type ContentBlock = { readonly [name: string]: unknown };

async function guardMessage(client: GatewayClient, answer: AIMessage): Promise<AIMessage> {
  const model = ScriptedChatModel.answering();
  const request = { model, messages: [new HumanMessage("hi")], systemMessage: new SystemMessage(""), tools: [], runtime: {} };
  const result: unknown = await guardLangChain(client).wrapModelCall?.(request as never, async () => answer);
  return result as AIMessage;
}

function langChainMessage(content: readonly ContentBlock[], more: object = {}): AIMessage {
  const calls = content.filter(({ type }) => type === "tool_use");
  return new AIMessage({ content, tool_calls: calls.map(({ name }) => ({ name, args: {} })), ...more } as never);
}

function langChainBlock({ kind, text }: Piece, index: number): ContentBlock {
  if (kind === "call") return { type: "tool_use", id: `${index}`, name: text, input: {} };
  return kind === "text" ? { type: "text", text, index } : { type: "thinking", thinking: text, signature: "s", index };
}

function langChainPieces({ content }: AIMessage): Piece[] {
  return (content as readonly ContentBlock[]).map(({ type, text: shown, thinking, name }) => {
    return type === "text" ? text(String(shown)) : type === "thinking" ? thought(String(thinking)) : call(String(name));
  });
}

const ADAPTERS: { readonly [name: string]: Guarded } = {
  ai: async (client, pieces) => aiPieces((await guardAi(client, pieces.map(aiPart))).content),
  "ai stream": async (client, pieces) => aiPieces(await guardAiStream(client, pieces.flatMap(aiStreamParts))),
  "openai-agents": async (client, pieces) => openAiPieces(await guardOpenAi(client, openAiOutput(pieces))),
  "openai-agents stream": async (client, pieces) => openAiPieces((await guardOpenAiStream(client, openAiOutput(pieces))).output),
  langchain: async (client, pieces) => langChainPieces(await guardMessage(client, langChainMessage(pieces.map(langChainBlock)))),
};

/** What is left of a piece. LangChain has no place for a thought without its signature. */
function redactPiece(name: string, piece: Piece): Piece[] {
  const redacted = piece.kind === "call" ? piece.text : redact(piece.text);
  if (name === "langchain" && piece.kind === "thought" && redacted !== piece.text) return [];
  return redacted === "" && piece.kind !== "call" ? [] : [{ ...piece, text: redacted }];
}

for (const [name, guarded] of Object.entries(ADAPTERS)) {
  test(`${name}: a pattern doesn't cross from one text into the next`, async () => {
    await using gateway = await pointGateway({ beforeResponse: redactor });
    const pieces = await guarded(gateway.client, [text("Card 4111111111111111"), text("2 cards found")]);
    assert.deepEqual(pieces, [text("Card [CARD]"), text("2 cards found")]);
  });

  test(`${name}: a text after a call keeps its words and its place`, async () => {
    await using gateway = await pointGateway({ beforeResponse: redactor });
    const pieces = await guarded(gateway.client, [text("I write to ada@example.com"), call("read"), text("Next I read.")]);
    assert.deepEqual(pieces, [text("I write to [EMAIL]"), call("read"), text("Next I read.")]);
  });

  test(`${name}: plugins leave of an answer what they leave of each of its parts`, async () => {
    await using gateway = await pointGateway({ beforeResponse: redactor });
    const property = fc.asyncProperty(anyPieces, async (pieces) => {
      const left = (await guarded(gateway.client, pieces)).filter(({ kind, text }) => kind === "call" || text !== "");
      assert.deepEqual(
        left,
        pieces.flatMap((piece) => redactPiece(name, piece)),
      );
    });
    await fc.assert(property, { numRuns: 60 });
  });

  test(`${name}: plugins see texts and thoughts by their number, and the usage once`, async () => {
    await using gateway = await pointGateway();
    await guarded(gateway.client, [thought("a"), text("b"), text(""), call("read"), text("c"), thought("d"), text("e")]);
    const seen = gateway.payloads("beforeResponse").map(({ content, reasoning }) => [content, reasoning]);
    assert.deepEqual(seen, [
      ["b", "a"],
      ["c", "d"],
      ["e", undefined],
    ]);
    const usages = gateway.payloads("beforeResponse").map(({ token_usage }) => token_usage);
    const usage = name === "langchain" ? undefined : { input: 3, output: 5 };
    assert.deepEqual(usages, [usage, undefined, undefined]);
  });

  test(`${name}: a block of any text is one of the whole answer`, async () => {
    const onSecond = block("I can't say that.");
    await using gateway = await pointGateway({
      beforeResponse: (payload, received) => (payload["content"] === "b" ? onSecond(payload, received) : continues(payload)),
    });
    const answer = [thought("t"), text("a"), call("read"), text("b"), text("c")];
    if (name !== "langchain") assert.deepEqual(await guarded(gateway.client, answer), [text("I can't say that.")]);
    else assert.equal((await guardMessage(gateway.client, langChainMessage(answer.map(langChainBlock)))).content, "I can't say that.");
    assert.equal(gateway.payloads("beforeResponse").length, 2);
  });

  test(`${name}: a text that plugins add beside a thought has no place`, async () => {
    await using gateway = await pointGateway({ beforeResponse: patch(({ content }) => ({ content: content ?? "added" })) });
    const answer = [thought("t"), text("a"), thought("u")];
    assert.deepEqual(await guarded(gateway.client, answer), answer);
  });
}

async function redacting(): Promise<PointGateway> {
  return pointGateway({ beforeResponse: redactor });
}

test("ai: parts that plugins leave keep what the provider said about them", async () => {
  await using gateway = await redacting();
  const pieces = [text("a"), text("Card 4111111111111111"), text("SPAM"), thought("b")];
  const content = pieces.map(aiPart);
  const patched = await guardAi(gateway.client, content);
  assert.deepEqual(patched.content, [content[0], { type: "text", text: "Card [CARD]" }, content[3]]);
});

test("ai: an added text stands where the empty one is, else before the call", async () => {
  await using gateway = await pointGateway({ beforeResponse: patch({ content: "added" }) });
  for (const guarded of [ADAPTERS["ai"], ADAPTERS["ai stream"]]) {
    const beforeEmpty = await guarded?.(gateway.client, [text(""), thought("t")]);
    assert.deepEqual(beforeEmpty, [text("added"), text(""), thought("t")]);
    const beforeCall = await guarded?.(gateway.client, [thought("t"), call("read")]);
    assert.deepEqual(beforeCall, [thought("t"), text("added"), call("read")]);
  }
});

test("ai stream: pieces with one id are one text, up to the next start, whatever is between them", async () => {
  await using gateway = await redacting();
  const parts: Part[] = [
    { type: "text-start", id: "0", providerMetadata: { fake: {} } },
    { type: "text-delta", id: "0", delta: "Card 41111111" },
    { type: "reasoning-start", id: "0" },
    { type: "tool-call", toolCallId: "c", toolName: "read", input: "{}" },
    { type: "text-delta", id: "0", delta: "11111111" },
    { type: "text-end", id: "0" },
    { type: "reasoning-end", id: "0" },
    { type: "text-start", id: "0", providerMetadata: { fake: {} } },
    { type: "text-delta", id: "0", delta: "2 cards" },
    { type: "text-end", id: "0" },
  ];
  const [, ...patched] = await guardAiStream(gateway.client, parts);
  const first = [
    { type: "text-start", id: "0" },
    { type: "text-delta", id: "0", delta: "Card [CARD]" },
    { type: "text-end", id: "0" },
  ];
  assert.deepEqual(patched.slice(0, -1), [...first, parts[2], parts[3], ...parts.slice(6)]);
});

/** A text, or a source between texts. */
type Cited = string | undefined;

const SOURCE: Part = { type: "source", sourceType: "url", id: "s", url: "https://x" };

/** Texts of which Anthropic cuts some to cite, and what a redactor leaves of them: whole, and in a stream. */
const CITED: { readonly [what: string]: { readonly given: readonly Cited[]; readonly left: readonly Cited[] } } = {
  "a source behind them": { given: ["Card 41111111", "11111111", undefined, " ok"], left: ["Card [CARD] ok", undefined] },
  "a source only at the end": { given: ["Card 41111111", "11111111", undefined], left: ["Card [CARD]", undefined] },
  "several sources between": { given: ["SP", undefined, undefined, "AM"], left: [undefined, undefined] },
  "a source only in front of them": { given: [undefined, "Card 41111111", "11111111"], left: [undefined, "Card 41111111", "11111111"] },
};

const citedPart = (piece: Cited): Part => (piece === undefined ? SOURCE : { type: "text", text: piece });

for (const [what, { given, left }] of Object.entries(CITED)) {
  test(`ai: texts that a provider cut to cite are one text, with ${what}`, async () => {
    await using gateway = await redacting();
    assert.deepEqual((await guardAi(gateway.client, given.map(citedPart))).content, left.map(citedPart));
    const streamed = given.flatMap((piece, index) => (piece === undefined ? [SOURCE] : aiStreamParts(text(piece), index)));
    const patched = await guardAiStream(gateway.client, streamed);
    const shown: Part[] = [];
    for (const part of patched) {
      if (part.type === "text-start") shown.push({ type: "text", text: "" });
      else if (part.type === "source") shown.push(part);
      else if (part.type === "text-delta") shown.push({ type: "text", text: `${shown.pop()?.["text"]}${part["delta"]}` });
    }
    assert.deepEqual(shown, left.map(citedPart));
  });
}

test("ai: what a provider cut to cite stays in its pieces if plugins leave it, and ends with a call or a thought", async () => {
  await using gateway = await redacting();
  const content = [
    citedPart("a"),
    citedPart("b"),
    SOURCE,
    aiPart(call("read"), 0),
    citedPart("c"),
    aiPart(thought("d"), 0),
    citedPart("e"),
  ];
  const answer = [...content, SOURCE, citedPart("f")];
  assert.deepEqual((await guardAi(gateway.client, answer)).content, answer);
  const seen = gateway.payloads("beforeResponse").map((payload) => payload["content"]);
  assert.deepEqual(seen, ["ab", "c", "ef"]);
});

test("ai stream: a source within a piece joins it with its neighbours, also where raw parts are between them", async () => {
  await using gateway = await redacting();
  const parts: Part[] = [
    { type: "text-start", id: "0" },
    { type: "text-delta", id: "0", delta: "Card 41111111" },
    { type: "text-end", id: "0" },
    { type: "raw", rawValue: {} },
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: "1111" },
    SOURCE,
    { type: "text-delta", id: "1", delta: "1111" },
    { type: "text-end", id: "1" },
  ];
  const [, ...patched] = await guardAiStream(gateway.client, parts);
  const left = [
    { type: "text-start", id: "0" },
    { type: "text-delta", id: "0", delta: "Card [CARD]" },
    { type: "text-end", id: "0" },
    SOURCE,
  ];
  assert.deepEqual(patched.slice(0, -1), left);
  assert.equal(gateway.payloads("beforeResponse").length, 1);
});

test("openai-agents: a refusal beside a text is judged apart, and parts that plugins leave stay as they are", async () => {
  await using gateway = await redacting();
  const kept = { type: "output_text" as const, text: "Card", providerData: { annotations: [1] } };
  const content = [kept, { type: "refusal" as const, refusal: "4111111111111111", providerData: { a: 1 } }];
  const message = { type: "message" as const, id: "m", role: "assistant" as const, status: "incomplete" as const, content };
  const reasoning: AgentOutputItem = {
    type: "reasoning",
    id: "r",
    content: [{ type: "input_text", text: "to ada@example.com", providerData: { a: 1 } }],
    rawContent: [{ type: "reasoning_text", text: "raw", providerData: { a: 1 } }],
    providerData: { encrypted_content: "x" },
  };
  const [thoughts, said] = await guardOpenAi(gateway.client, [reasoning, { ...message, providerData: { a: 1 } }]);
  assert.deepEqual(said, { ...message, content: [kept, { type: "refusal", refusal: "[CARD]" }] });
  const summary = [{ type: "input_text", text: "to [EMAIL]" }];
  assert.deepEqual(thoughts, { type: "reasoning", content: summary, rawContent: reasoning.rawContent });
});

test("openai-agents: an emptied text goes, and the message with its last one", async () => {
  await using gateway = await redacting();
  const output = openAiOutput([text("SPAM"), text("a"), thought("SPAM"), call("read"), text("SPAM")]);
  const patched = await guardOpenAi(gateway.client, output);
  const { content, ...message } = output[0] as { content: object[] };
  assert.deepEqual(patched, [{ ...message, content: [content[1]] }, output[2]]);
});

test("openai-agents stream: a changed answer streams each of its texts", async () => {
  await using gateway = await redacting();
  const output = openAiOutput([text("ada@example.com"), text("a"), call("read"), text("b")]);
  const { deltas } = await guardOpenAiStream(gateway.client, output);
  assert.deepEqual(deltas, ["[EMAIL]", "a", "b"]);
});

test("langchain: neighbouring texts that the provider cut for citations are one text", async () => {
  await using gateway = await redacting();
  const cited = { type: "text", text: "4111", citations: [{ type: "char_location" }] };
  const content = [{ type: "text", text: "Card " }, cited, { type: "text", text: "111111111111" }, { type: "text", text: "2 cards" }];
  const patched = await guardMessage(gateway.client, langChainMessage(content));
  assert.deepEqual(patched.content, [
    { type: "text", text: "Card [CARD]" },
    { type: "text", text: "2 cards" },
  ]);
  const apart = langChainMessage([cited, { type: "image" }, { type: "text", text: "111111111111" }]);
  assert.equal(await guardMessage(gateway.client, apart).then(({ content }) => content), apart.content);
});

test("langchain: the text of blocks with which Bedrock cites is judged", async () => {
  await using gateway = await redacting();
  const citationsContent = { content: [{ text: "Card 4111111111111111" }], citations: [{}] };
  const patched = await guardMessage(gateway.client, langChainMessage([{ type: "citations_content", citationsContent }]));
  assert.deepEqual(patched.content, [{ type: "text", text: "Card [CARD]" }]);
});

test("langchain: reasoning beside the content stays or changes apart from the text", async () => {
  await using gateway = await redacting();
  const details = [
    { type: "reasoning.text", text: "a", signature: "s" },
    { type: "reasoning.text", text: "ada@example.com", signature: "s" },
  ];
  const kwargs = { reasoning_content: "to ada@example.com", reasoning: { id: "r", summary: [{ text: "b" }] }, reasoning_details: details };
  const patched = await guardMessage(gateway.client, new AIMessage({ content: "hi", additional_kwargs: kwargs }));
  assert.deepEqual(patched.additional_kwargs, { ...kwargs, reasoning_content: "to [EMAIL]", reasoning_details: [details[0]] });
  assert.equal(patched.content, "hi");
});

test("langchain: a thought that is repeated beside the content is judged once, and changes everywhere", async () => {
  await using gateway = await redacting();
  const kwargs = { reasoning_content: "to ada@example.com", reasoning: "to ada@example.com" };
  const patched = await guardMessage(gateway.client, new AIMessage({ content: "hi", additional_kwargs: kwargs }));
  assert.deepEqual(patched.additional_kwargs, { reasoning_content: "to [EMAIL]", reasoning: "to [EMAIL]" });
  assert.equal(gateway.payloads("beforeResponse").length, 1);
});

test("langchain: an answer without anything left has an empty text, and added reasoning only a place of its own", async () => {
  await using gateway = await pointGateway({ beforeResponse: patch({ content: "", reasoning: "added" }) });
  const emptied = await guardMessage(gateway.client, langChainMessage([{ type: "text", text: "a", index: 0 }]));
  assert.deepEqual([emptied.content, emptied.additional_kwargs], [[{ type: "text", text: "" }], {}]);
  const withPlace = await guardMessage(gateway.client, new AIMessage({ content: "a", additional_kwargs: { reasoning_content: "" } }));
  assert.deepEqual([withPlace.content, withPlace.additional_kwargs], ["", { reasoning_content: "added" }]);
});

test("langchain: streamMode messages shows the texts of a changed answer in their places", async () => {
  await using gateway = await redacting();
  const content = [text("I write to ada@example.com"), text("Next I read.")].map(langChainBlock);
  const agent = createAgent({
    model: ScriptedChatModel.answering(langChainMessage(content)),
    tools: [],
    middleware: [guardLangChain(gateway.client)],
  });
  const stream = await agent.stream({ messages: [new HumanMessage("hi")] }, { streamMode: "messages" });
  const contents = (await gather(stream)).map(([message]) => message.content);
  assert.deepEqual(contents, [[{ type: "text", text: "I write to [EMAIL]" }, content[1]]]);
});
