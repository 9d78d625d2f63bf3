/** Where LangChain's answers have texts and thoughts, and where changes go. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AIMessage } from "@langchain/core/messages";
import { findParts } from "../src/adapters/answer-parts.js";
import { editAnswer, patchAnswer } from "../src/adapters/langchain-answer.js";
import { redact } from "./support/answer-pieces.js";

type Fields = { readonly content: unknown; readonly additional_kwargs?: object };

/** What plugins see of an answer, and what a redactor leaves of it. */
function redacted(fields: Fields) {
  const answer = new AIMessage(fields as never);
  const seen = findParts((walk) => editAnswer(answer, walk));
  const change = (part: string) => (redact(part) === part ? undefined : redact(part));
  const patched = patchAnswer(answer, { texts: seen.texts.map(change), thoughts: seen.thoughts.map(change) });
  return { seen, content: patched.content as unknown, beside: patched.additional_kwargs };
}

const text = (shown: string, more: object = {}) => ({ type: "text", text: shown, ...more });

test("langchain: reasoning is found in the forms of all providers, and changes in place", () => {
  for (const [fields, left] of [
    [{ content: "", additional_kwargs: { reasoning_content: "SECRET" } }, { reasoning_content: "[X]" }],
    [{ content: "", additional_kwargs: { reasoning: "SECRET" } }, { reasoning: "[X]" }],
    [{ content: "", additional_kwargs: { reasoning: { summary: [{ text: "SECRET" }] } } }, { reasoning: { summary: [{ text: "[X]" }] } }],
    [
      { content: "", additional_kwargs: { reasoning_details: [{ reasoning_text: "SECRET", data: "SECRET" }] } },
      { reasoning_details: [{ reasoning_text: "[X]" }] },
    ],
    [{ content: [{ type: "thinking", thinking: "SECRET" }] }, [{ type: "thinking", thinking: "[X]" }]],
    [{ content: [{ type: "thinking", thinking: [{ text: "SECRET" }] }] }, [{ type: "thinking", thinking: [{ text: "[X]" }] }]],
    [{ content: [{ type: "reasoning", reasoning: "SECRET" }] }, [{ type: "reasoning", reasoning: "[X]" }]],
    [{ content: [{ type: "reasoning", content: [{ text: "SECRET" }] }] }, [{ type: "reasoning", content: [{ text: "[X]" }] }]],
    ...["reasoningText", "reasoning_content"].map((name) => [
      { content: [{ type: "reasoning_content", [name]: { text: "SECRET" } }] },
      [{ type: "reasoning_content", [name]: { text: "[X]" } }],
    ]),
    [{ content: [{ type: "non_standard", value: { thinking: "SECRET" } }] }, [{ type: "non_standard", value: { thinking: "[X]" } }]],
  ] as readonly [Fields, unknown][]) {
    const answer = new AIMessage(fields as never);
    const parts = findParts((walk) => editAnswer(answer, walk));
    assert.deepEqual(parts, { texts: [], thoughts: ["SECRET"] }, JSON.stringify(fields));
    const { content, additional_kwargs } = patchAnswer(answer, { texts: [], thoughts: ["[X]"] });
    assert.deepEqual(Array.isArray(left) ? content : additional_kwargs, left);
  }
});

test("langchain: only a thought that is signed goes when it changes, and its neighbours stay", () => {
  const content = [
    { type: "reasoning", summary: [{ text: "ada@example.com" }, { text: "B" }] },
    { type: "thinking", thinking: "ada@example.com", signature: "s" },
    { type: "non_standard", value: { type: "thinking", thinking: "ada@example.com", signature: "s" } },
  ];
  const details = [
    { type: "reasoning.text", text: "to ada@example.com", signature: "s" },
    { type: "reasoning.text", text: "to ada@example.com", format: "f" },
    { type: "reasoning.encrypted", data: "e" },
  ];
  const { content: left, beside } = redacted({ content, additional_kwargs: { reasoning_details: details } });
  assert.deepEqual(left, [{ type: "reasoning", summary: [{ text: "[EMAIL]" }, { text: "B" }] }]);
  assert.deepEqual(beside, { reasoning_details: [{ type: "reasoning.text", text: "to [EMAIL]", format: "f" }, details[2]] });
});

test("langchain: thoughts of the content come first, a copy beside it is the same part, and a repeat within a list is one of its own", () => {
  const T = "to ada@example.com";
  const content = [{ type: "thinking", thinking: T }, { type: "reasoning", summary: [T, "U"] }, text("hi")];
  const additional_kwargs = { reasoning_content: T, reasoning: { summary: [T, T, "U", "V"] } };
  const { seen, beside } = redacted({ content, additional_kwargs });
  assert.deepEqual(seen, { texts: ["hi"], thoughts: [T, T, "U", "V"] });
  const R = "to [EMAIL]";
  assert.deepEqual(beside, { reasoning_content: R, reasoning: { summary: [R, R, "U", "V"] } });
});

const CITED = { citations: [{ type: "char_location" }] };
const REFERENCE = { type: "reference", reference_ids: [1] };
const linked = { annotations: [{ type: "url_citation", url: "https://x" }] };

for (const [what, content, left] of [
  ["citations of Anthropic", [text("Card 41111111"), text("11111111", CITED)], [text("Card [CARD]")]],
  ...["cited_text", "citedText"].map((name) => [
    `the ${name} of LangChain`,
    [text("Card 41111111", { annotations: [{ type: "citation", [name]: "it" }] }), text("11111111")],
    [text("Card [CARD]")],
  ]),
  ["references of Mistral", [text("Card 41111111"), REFERENCE, REFERENCE, text("11111111")], [text("Card [CARD]"), REFERENCE, REFERENCE]],
  ["references around an emptied text", [text("SP"), REFERENCE, text("AM"), text("a")], [REFERENCE, text("a")]],
  [
    "citations in blocks that LangChain doesn't know",
    [{ type: "non_standard", value: text("Card 41111111", CITED) }, text("11111111")],
    [{ type: "non_standard", value: text("Card [CARD]") }],
  ],
] as readonly [string, object[], object[]][]) {
  test(`langchain: texts that a provider cut to cite are one text, with ${what}`, () => {
    assert.deepEqual(redacted({ content }).content, left);
  });
}

for (const [what, content] of [
  ["links of OpenAI", [text("Card 41111111", linked), text("11111111", linked)]],
  ["no citation", [text("Card 41111111", { citations: [], annotations: [] }), text("11111111")]],
  ["a reference in front of both", [REFERENCE, text("Card 41111111"), text("11111111")]],
  ["more than a reference between", [text("Card 41111111"), REFERENCE, { type: "image" }, text("11111111")]],
] as const) {
  test(`langchain: texts next to each other are apart, with ${what}`, () => {
    const { seen, content: left } = redacted({ content });
    assert.deepEqual(seen.texts, ["Card 41111111", "11111111"]);
    assert.deepEqual(left, content);
  });
}

for (const [what, block, left] of [
  ["refusal", { type: "refusal", refusal: "to ada@example.com" }, { type: "refusal", refusal: "to [EMAIL]" }],
  ["text without a block", "to ada@example.com", text("to [EMAIL]")],
  ["text of a provider's own block", { type: "non_standard", value: { text: "to ada@example.com" } }, undefined],
  ["refusal in a provider's own block", { type: "non_standard", value: { type: "r", refusal: "to ada@example.com", raw: 1 } }, undefined],
] as const) {
  test(`langchain: a ${what} is judged, and changes in place`, () => {
    const { seen, content } = redacted({ content: [block, text("a")] });
    assert.deepEqual(seen.texts, ["to ada@example.com", "a"]);
    const value = what.startsWith("text") ? { text: "to [EMAIL]" } : { type: "r", refusal: "to [EMAIL]" };
    assert.deepEqual(content, [left ?? { type: "non_standard", value }, text("a")]);
  });
}

test("langchain: a text is judged in each form in which Bedrock cites", () => {
  const citations = [{}];
  for (const block of [
    { type: "citations_content", citationsContent: { content: [{ text: "to ada@" }, { text: "example.com" }], citations } },
    { type: "non_standard", value: { citationsContent: { content: [{ text: "to ada@example.com" }], citations } } },
    { type: "text", text: "to ada@example.com", citationsContent: { citations } },
  ]) {
    const { seen, content } = redacted({ content: [text("Write "), block] });
    assert.deepEqual([seen.texts, content], [["Write to ada@example.com"], [text("Write to [EMAIL]")]]);
  }
});

test("langchain: a block that says nothing more goes, and blocks without any text stay", () => {
  const call = { type: "tool_use", id: "c", name: "read", input: { text: "SPAM" } };
  const refusal = { type: "refusal", refusal: "SPAM" };
  const other = { type: "non_standard", value: { type: "new" } };
  assert.deepEqual(redacted({ content: [refusal, { type: "non_standard", value: refusal }, call, other] }).content, [call, other]);
  assert.deepEqual(redacted({ content: [refusal] }).content, [text("")]);
});

test("langchain: a refusal beside the content is judged after it, and changes in place or goes", () => {
  const { seen, beside } = redacted({ content: "a", additional_kwargs: { refusal: "to ada@example.com" } });
  assert.deepEqual([seen.texts, beside], [["a", "to ada@example.com"], { refusal: "to [EMAIL]" }]);
  assert.deepEqual(redacted({ content: "", additional_kwargs: { refusal: "SPAM" } }).beside, {});
});

test("langchain: the transcript of audio is judged, and takes the place of the sound if it changes", () => {
  const audio = { id: "a", data: "AAAA", transcript: "to ada@example.com" };
  const changed = redacted({ content: "", additional_kwargs: { audio } });
  assert.deepEqual(changed, { seen: { texts: ["to ada@example.com"], thoughts: [] }, content: "to [EMAIL]", beside: {} });
  assert.equal(redacted({ content: "a", additional_kwargs: { audio } }).content, "a\nto [EMAIL]");
  assert.deepEqual(redacted({ content: [text("a")], additional_kwargs: { audio } }).content, [text("a"), text("to [EMAIL]")]);
  const emptied = redacted({ content: [text("SPAM")], additional_kwargs: { audio: { ...audio, transcript: "SPAM" } } });
  assert.deepEqual([emptied.content, emptied.beside], [[text("")], {}]);
  const kept = { ...audio, transcript: "hm" };
  assert.deepEqual(redacted({ content: "SPAM", additional_kwargs: { audio: kept } }).beside, { audio: kept });
  const unknown = { id: "a", data: "AAAA" };
  assert.deepEqual(redacted({ content: "SPAM", additional_kwargs: { audio: unknown } }).beside, {});
});
