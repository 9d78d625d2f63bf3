/** Parts of answers that are repeated, and what becomes of reasoning whose thoughts change. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { PartWalk } from "../src/adapters/answer-parts.js";
import { editReasoning } from "../src/adapters/reasoning.js";

/** Reasoning without secrets. */
function redacted(reasoning: unknown): unknown {
  const found = new PartWalk();
  editReasoning(reasoning, found);
  return editReasoning(reasoning, new PartWalk(found.found.map((thought) => ({ secret: "[X]", go: "" })[thought])));
}

test("a thought that another member repeats is one part, and each copy takes its change", () => {
  const members = [["a", "a", "b"], ["a", "b", "c"], "b"];
  const edit = (walk: PartWalk) =>
    members.map((member) => {
      walk.beginMember();
      return editReasoning(member, walk);
    });
  const walk = new PartWalk();
  edit(walk);
  assert.deepEqual(walk.found, ["a", "a", "b", "c"]);
  assert.deepEqual(edit(new PartWalk(["1", undefined, "3"])), [["1", "a", "3"], ["1", "3", "c"], "3"]);
});

test("reasoning that isn't changed stays the same object", () => {
  const kept = { type: "thinking", thinking: "hm", signature: "s" };
  for (const reasoning of [kept, [kept], { summary: [] }, { type: "reasoning.encrypted", data: "e" }, "", undefined, 1]) {
    assert.equal(redacted(reasoning), reasoning);
  }
  assert.equal((redacted([kept, "secret"]) as unknown[])[0], kept);
});

test("a changed thought stands in its place, and its object loses the encrypted form", () => {
  const encrypted = { type: "reasoning", id: "r", summary: [{ text: "secret" }, { text: "hm" }, { text: "go" }], encrypted_content: "e" };
  assert.deepEqual(redacted(encrypted), { type: "reasoning", id: "r", summary: [{ text: "[X]" }, { text: "hm" }] });
  const both = { summary: ["go"], content: ["hm"], reasoning: "go", reasoningText: { text: "go" } };
  assert.deepEqual(redacted(both), { summary: [], content: ["hm"], reasoning: "", reasoningText: {} });
});

test("a signed thought goes when it changes, and so does reasoning without any text left", () => {
  const signed = { type: "thinking", thinking: "secret", signature: "s" };
  const inExtras = { type: "reasoning", reasoning: "secret", extras: { signature: "s" } };
  const within = { type: "reasoning_content", reasoningText: { text: "secret", signature: "s" } };
  for (const reasoning of [signed, [signed], inExtras, within, "go", { reasoning: "go", summary: [] }]) {
    assert.equal(redacted(reasoning), undefined, JSON.stringify(reasoning));
  }
});
