import assert from "node:assert/strict";
import { test } from "node:test";
import { TestPlugin } from "@hookgate/sdk/testing";
import redaction from "./redaction.ts";

const CARD = "4111 1111 1111 1111";

test("addresses and card numbers are masked in all values of a result", async () => {
  const plugin = await TestPlugin.start(redaction, {});
  const result = { owner: "Ada <ada@example.org>", cards: [CARD, 4111111111111111], order: "4111 1111 1111 1112", id: 2n ** 60n };
  const { patch, notices } = await plugin.afterToolResult({ toolName: "crm.get", result });
  assert.deepEqual(patch, { result: { ...result, owner: "Ada <[email]>", cards: ["[card]", "[card]"] } });
  assert.deepEqual(notices, [{ kind: "info", code: "REDACTED", message: "Personal data was masked.", details: { email: 1, card: 2 } }]);
});

test("a card number is found among other digits, and with other separators", async () => {
  const plugin = await TestPlugin.start(redaction, {});
  for (const [content, expected] of [
    [`Order 5 ${CARD}`, "Order 5 [card]"],
    [`${CARD} 123`, "[card] 123"],
    ["4111111111111111 12", "[card] 12"],
    ["12-4111-1111-1111-1111", "12-[card]"],
    ["4111\u00a01111  1111.1111", "[card]"],
    ["ada@exämple.org", "[email]"],
  ] as const) {
    assert.deepEqual((await plugin.beforeResponse({ content })).patch, { content: expected }, content);
  }
  assert.equal((await plugin.beforeResponse({ content: "10 20 30 40" })).patch, undefined);
});

test("an answer is masked with its reasoning", async () => {
  const plugin = await TestPlugin.start(redaction, {});
  const { patch } = await plugin.beforeResponse({ content: `Pay with ${CARD}.`, reasoning: "ada@example.org asks" });
  assert.deepEqual(patch, { content: "Pay with [card].", reasoning: "[email] asks" });
});

test("a tenant chooses the kinds, and what has none of them is not patched", async () => {
  const plugin = (await TestPlugin.start(redaction, {})).withTenantConfig({ kinds: ["email"] });
  const { patch, notices } = await plugin.beforeResponse({ content: CARD });
  assert.deepEqual([patch, notices], [undefined, []]);
  assert.equal((await plugin.afterToolResult({ toolName: "t", result: CARD })).patch, undefined);
});
