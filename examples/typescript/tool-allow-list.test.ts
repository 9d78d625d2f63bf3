import assert from "node:assert/strict";
import { test } from "node:test";
import { TestPlugin } from "@hookgate/sdk/testing";
import toolAllowList from "./tool-allow-list.ts";

test("only listed tools are allowed", async () => {
  const plugin = (await TestPlugin.start(toolAllowList, {})).withTenantConfig({ allowed_tools: ["fs.*", "web.get"] });
  for (const [toolName, isAllowed] of [
    ["fs.read", true],
    ["web.get", true],
    ["web.get2", false],
    ["FS.read", false],
  ] as const) {
    const { cancelled } = await plugin.beforeToolCall({ toolName });
    assert.equal(cancelled?.code, isAllowed ? undefined : "TOOL_NOT_ALLOWED", toolName);
  }
});

test("a tenant without a list may use no tool", async () => {
  const plugin = await TestPlugin.start(toolAllowList, {});
  const { cancelled } = await plugin.beforeToolCall({ toolName: "fs.read" });
  assert.equal(cancelled?.message, "Agents may not use fs.read.");
});
