import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { type Event, type HostClient, type HostError, emit } from "../src/host/index.js";
import { HostStatus } from "../src/testing/host-status.js";
import { FakeHost } from "./support/fake-host.js";

async function setUp(t: TestContext): Promise<{ host: FakeHost; client: HostClient }> {
  const host = await FakeHost.start();
  t.after(() => host.stop());
  return { host, client: host.clientOf("p", undefined, ["emit"]) };
}

test("an event arrives with what it says", async (t) => {
  const { host, client } = await setUp(t);
  await emit(client, { name: "catalog.updated", severity: "warn", message: "12 entries", attributes: { entries: 12 } });
  await emit(client, { name: "started" });
  const [updated, started] = host.events;
  assert.deepEqual(updated, {
    name: "catalog.updated",
    plugin: "p",
    tenant: undefined,
    severity: "warn",
    message: "12 entries",
    attributes: { entries: "12" },
  });
  assert.deepEqual(started, { name: "started", plugin: "p", tenant: undefined, severity: "info", message: "", attributes: {} });
});

test("an invalid event is refused with the field", async (t) => {
  const { host, client } = await setUp(t);
  const many = Object.fromEntries(Array.from({ length: 33 }, (_, number) => [`a${number}`, ""]));
  const cases: [Event, string][] = [
    [{ name: "" }, "name"],
    [{ name: "Catalog" }, "name"],
    [{ name: "a..b" }, "name"],
    [{ name: "a".repeat(129) }, "name"],
    [{ name: "a", severity: "debug" as never }, "severity"],
    [{ name: "a", message: "x".repeat(1025) }, "message"],
    [{ name: "a", attributes: { "with space": 1 } }, "attributes"],
    [{ name: "a", attributes: many }, "attributes"],
  ];
  for (const [event, field] of cases) {
    await assert.rejects(
      emit(client, event),
      (error: HostError) => error.kind === "invalid" && error.message.includes(`\`${field}\`: `),
      field,
    );
  }
  assert.deepEqual(host.events, []);
});

test("a field of an event of a wrong type is named, and nothing is sent", async (t) => {
  const { host, client } = await setUp(t);
  const cases: [unknown, string][] = [
    ["started", "`event` must be an object, not string"],
    [{ name: 5 }, "`name` must be a string, not number"],
    [{ name: "a", message: null }, "`message` must be a string, not null"],
    [{ name: "a", severity: 1 }, "`severity` must be a string, not number"],
    [{ name: "a", attributes: ["b"] }, "`attributes` must be an object, not array"],
    [{ name: "a", attributes: "b" }, "`attributes` must be an object, not string"],
  ];
  for (const [event, message] of cases) await assert.rejects(emit(client, event as Event), { name: "TypeError", message });
  assert.deepEqual(host.calls, []);
});

test("too many events are refused with the time to wait", async (t) => {
  const { host, client } = await setUp(t);
  host.onCall = () => {
    throw new HostStatus(status.RESOURCE_EXHAUSTED, "more than 100 events in a second", { retryDelayMs: 730 });
  };
  await assert.rejects(emit(client, { name: "a" }), { kind: "rate_limited", retryAfterMs: 730 });
});
