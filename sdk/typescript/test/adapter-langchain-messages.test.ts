import assert from "node:assert/strict";
import { test } from "node:test";
import { AIMessage } from "@langchain/core/messages";
import { findParts } from "../src/adapters/answer-parts.js";
import { decodeMessage, editAnswer, patchAnswer } from "../src/adapters/langchain-messages.js";

test("langchain: reasoning is found in the forms of all providers", () => {
  for (const message of [
    { content: "", additional_kwargs: { reasoning_content: "SECRET" } },
    { content: "", additional_kwargs: { reasoning: "SECRET" } },
    { content: "", additional_kwargs: { reasoning: { summary: [{ type: "summary_text", text: "SECRET" }] } } },
    { content: "", additional_kwargs: { reasoning_details: [{ type: "reasoning.text", text: "SECRET" }] } },
    { content: [{ type: "thinking", thinking: "SECRET" }] },
    { content: [{ type: "reasoning", reasoning: "SECRET" }] },
    { content: [{ type: "reasoning", content: [{ type: "reasoning_text", text: "SECRET" }] }] },
    { content: [{ type: "reasoning_content", reasoningText: { text: "SECRET" } }] },
  ]) {
    const answer = new AIMessage(message as never);
    const parts = findParts((change) => editAnswer(answer, change));
    assert.deepEqual(parts, { texts: [], thoughts: ["SECRET"] }, JSON.stringify(message));
    const patched = patchAnswer(answer, { texts: ["ok"], thoughts: ["[X]"] });
    assert.ok(!JSON.stringify(patched).includes("SECRET"), JSON.stringify(message));
  }
});

test("langchain: tool calls that a plugin removed or changed don't come back", () => {
  const raw = [{ id: "c", type: "function", function: { name: "read", arguments: '{"path":"SECRET"}' } }];
  const original = new AIMessage({ content: "", additional_kwargs: { tool_calls: raw } as never });
  assert.equal(original.tool_calls?.length, 1);
  const removed = decodeMessage({ role: "assistant", content: "" }, original) as AIMessage;
  assert.deepEqual(removed.tool_calls, []);
  const changed = decodeMessage({ role: "assistant", content: "", tool_calls: [{ name: "read", args: { path: "X" }, id: "c" }] }, original);
  assert.ok(!JSON.stringify(changed).includes("SECRET"));
});
