import assert from "node:assert/strict";
import { test } from "node:test";
import { TestPlugin } from "@hookgate/sdk/testing";
import audit from "./audit.ts";

test("a decision becomes a line with who asked and who decided, without the payload", async () => {
  const plugin = (await TestPlugin.start(audit, {})).withTenant("acme").withContext({ operator: "ada", sessionId: "s-1" });
  const blocked = plugin.withChainResult({ decision: "block", plugin: "no-shell", code: "TOOL_NOT_ALLOWED" });
  await blocked.beforeToolCall({ toolName: "shell.exec", args: { secret: "hush" } });
  const attributes = {
    point: "before_tool_call",
    decision: "block",
    plugin: "no-shell",
    code: "TOOL_NOT_ALLOWED",
    operator: "ada",
    session: "s-1",
  };
  const [line] = await plugin.host.logLines(1);
  assert.deepEqual(line, { plugin: "audit", tenant: "acme", severity: "info", message: "an agent's call was decided", attributes });
  assert.deepEqual(plugin.host.events, [
    { plugin: "audit", tenant: "acme", severity: "warn", name: "decision.blocked", message: "", attributes },
  ]);
});

test("every point is audited, and only what didn't go on is an event", async () => {
  const plugin = await TestPlugin.start(audit, {});
  const passed = plugin.withChainResult({ decision: "continue" });
  await passed.beforeLlmRequest({ text: "hush" });
  await passed.beforeToolCall({ toolName: "fs.read" });
  await passed.afterToolResult({ toolName: "fs.read", result: "hush" });
  await passed.beforeResponse({ content: "hush" });
  const points = (await plugin.host.logLines(4)).map(({ attributes }) => attributes["point"]);
  assert.deepEqual(points.sort(), ["after_tool_result", "before_llm_request", "before_response", "before_tool_call"]);
  assert.deepEqual(plugin.host.events, []);
  await plugin.withChainResult({ code: "PLUGIN_TIMEOUT" }).beforeResponse({ content: "hush" });
  assert.deepEqual(
    plugin.host.events.map(({ name }) => name),
    ["decision.failed"],
  );
  assert.ok(!JSON.stringify([await plugin.host.logLines(5), plugin.host.events]).includes("hush"));
});
