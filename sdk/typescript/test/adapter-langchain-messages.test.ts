import assert from "node:assert/strict";
import { test } from "node:test";
import { AIMessage } from "@langchain/core/messages";
import { decodeMessage } from "../src/adapters/langchain-messages.js";

test("langchain: tool calls that a plugin removed or changed don't come back", () => {
  const raw = [{ id: "c", type: "function", function: { name: "read", arguments: '{"path":"SECRET"}' } }];
  const original = new AIMessage({ content: "", additional_kwargs: { tool_calls: raw } as never });
  assert.equal(original.tool_calls?.length, 1);
  const removed = decodeMessage({ role: "assistant", content: "" }, original) as AIMessage;
  assert.deepEqual(removed.tool_calls, []);
  const changed = decodeMessage({ role: "assistant", content: "", tool_calls: [{ name: "read", args: { path: "X" }, id: "c" }] }, original);
  assert.ok(!JSON.stringify(changed).includes("SECRET"));
});
