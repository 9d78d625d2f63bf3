import assert from "node:assert/strict";
import { test } from "node:test";
import { TestHost, TestPlugin } from "@hookgate/sdk/testing";
import quota from "./quota.ts";

const HOUR_MS = 3_600_000;

async function cancelOf(plugin: TestPlugin) {
  return (await plugin.beforeToolCall({ toolName: "fs.read" })).cancelled;
}

test("replicas share a tenant's quota until the end of the day", async () => {
  const host = new TestHost();
  host.advance(23 * HOUR_MS);
  const replicas = await Promise.all([1, 2].map(() => TestPlugin.start(quota, {}, { host })));
  const [one, other] = replicas.map((replica) => replica.withTenantConfig({ calls_per_day: 2 })) as [TestPlugin, TestPlugin];
  assert.deepEqual([await cancelOf(one), await cancelOf(other)], [undefined, undefined]);
  const cancelled = await cancelOf(one);
  assert.deepEqual([cancelled?.code, cancelled?.retryAfterMs], ["QUOTA_EXCEEDED", HOUR_MS]);
  assert.equal(await cancelOf(other.withTenant("globex")), undefined, "another tenant has its own");
  host.advance(HOUR_MS);
  assert.equal(await cancelOf(one), undefined);
});

test("without the storage there is no answer", async () => {
  const plugin = await TestPlugin.start(quota, {});
  plugin.host.setAvailable(false);
  await assert.rejects(cancelOf(plugin), { code: "UNAVAILABLE" });
});
