import assert from "node:assert/strict";
import { test } from "node:test";
import { TestPlugin } from "@hookgate/sdk/testing";
import plugin from "./plugin.ts";

test("refuses what the tenant's configuration lists", async () => {
  const started = await TestPlugin.start(plugin, {});
  const tenant = started.withTenantConfig({ refused_tools: ["shell.exec"] });
  assert.equal((await tenant.beforeToolCall({ toolName: "shell.exec" })).cancelled?.code, "TOOL_NOT_ALLOWED");
  assert.equal((await tenant.beforeToolCall({ toolName: "fs.read" })).cancelled, undefined);
});
