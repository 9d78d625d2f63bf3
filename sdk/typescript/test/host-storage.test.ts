import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type HostError, type Operation, type Storage, keyPart, periodMs } from "../src/host/index.js";
import { JsonError } from "../src/json.js";
import { FakeHost, type FakeHostOptions } from "./support/fake-host.js";

const DAY_MS = 86_400_000;

async function startHost(t: TestContext, options?: FakeHostOptions): Promise<FakeHost> {
  const host = await FakeHost.start(options);
  t.after(() => host.stop());
  return host;
}

async function startStorage(t: TestContext, options?: FakeHostOptions): Promise<Storage> {
  return (await startHost(t, options)).storageOf("p", "acme");
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

test("values are written, read and deleted", async (t) => {
  const storage = await startStorage(t);
  assert.equal(await storage.get("k"), undefined);
  const first = await storage.put("k", "één");
  const entry = await storage.get("k");
  assert.ok(entry?.kind === "value");
  assert.deepEqual([entry.key, entry.text(), entry.version, entry.expiresInMs], ["k", "één", first.version, undefined]);
  assert.deepEqual(entry.value, new TextEncoder().encode("één"), "a plain Uint8Array");
  assert.deepEqual(await storage.delete("k"), { deleted: true, existed: true });
  assert.deepEqual(await storage.delete("k"), { deleted: true, existed: false });
  const second = await storage.put("k", new Uint8Array());
  assert.ok(second.written && second.version > first.version, "a version never returns");
});

test("a write with another version changes nothing", async (t) => {
  const storage = await startStorage(t);
  const { written, version } = await storage.put("k", "one", { expectedVersion: 0n });
  assert.equal(written, true);
  assert.deepEqual(await storage.put("k", "two", { expectedVersion: 0n }), { written: false, version });
  assert.deepEqual(await storage.delete("k", { expectedVersion: version + 1n }), { deleted: false, version });
  assert.deepEqual(await storage.delete("new", { expectedVersion: 7n }), { deleted: false, version: 0n });
  assert.equal((await storage.put("k", "three", { expectedVersion: version })).written, true);
  assert.deepEqual(await storage.put("new", "", { expectedVersion: 7n }), { written: false, version: 0n });
});

test("values are JSON too, with their integers", async (t) => {
  const storage = await startStorage(t);
  assert.equal(await storage.getJson("k"), undefined);
  await storage.putJson("k", { id: 2n ** 60n, list: [1, null] });
  assert.deepEqual(await storage.getJson("k"), { id: 2n ** 60n, list: [1, null] });
  await storage.put("text", "{");
  await assert.rejects(storage.getJson("text"), JsonError);
  await assert.rejects(storage.putJson("k", undefined), JsonError);
  await storage.add("n", 7);
  assert.equal(await storage.getJson("n"), 7);
});

test("an entry expires after its time, which is rounded up", async (t) => {
  const host = await startHost(t);
  const storage = host.storageOf("p", "acme");
  await storage.put("k", "v", { ttlMs: 1.5 });
  assert.equal((await storage.get("k"))?.expiresInMs, 2);
  host.now += 2;
  assert.equal(await storage.get("k"), undefined);
});

test("a counter stops at its limit and starts again in the next window", async (t) => {
  const host = await startHost(t);
  const storage = host.storageOf("p", "acme");
  // Ten seconds after midnight.
  host.now += 10_000;
  const add = (delta: number) => storage.add("n", delta, { limit: 3, window: "day" });
  const two = await add(2);
  assert.ok(two.added);
  assert.deepEqual({ ...two, version: 0n }, { added: true, counter: 2, version: 0n, remaining: 1, resetsInMs: DAY_MS - 10_000 });
  assert.deepEqual(await add(2), { added: false, counter: 2, remaining: 1, resetsInMs: DAY_MS - 10_000 });
  assert.equal((await add(1)).added, true);
  const unlimited = await storage.add("n", 4);
  assert.deepEqual([unlimited.counter, unlimited.remaining], [7, undefined]);
  assert.equal((await add(0)).remaining, 0, "never negative");
  host.now += DAY_MS - 10_000;
  assert.equal((await add(1)).counter, 1);
  const entry = await storage.get("n");
  assert.ok(entry?.kind === "counter");
  assert.deepEqual([entry.counter, entry.expiresInMs], [1, DAY_MS]);
});

test("a transaction makes all changes or none", async (t) => {
  const storage = await startStorage(t);
  const { version } = await storage.put("a", "1");
  const changes = [
    { op: "put", key: "a", value: "2", expectedVersion: version },
    { op: "delete", key: "b" },
    { op: "add", key: "n", delta: 1, limit: 1 },
  ] as const;
  const committed = await storage.transact(changes);
  assert.ok(committed.committed);
  const [put, deleted, added] = committed.results;
  // The results have the types of their operations.
  assert.ok(put.version > version);
  assert.deepEqual([deleted.existed, added.counter, added.remaining], [false, 1, 0]);

  assert.deepEqual(await storage.transact(changes), { committed: false, index: 0, reason: "conflict", version: put.version });
  const rejected = await storage.transact([
    { op: "put", key: "a", value: "3" },
    { op: "add", key: "n", delta: 1, limit: 1 },
  ]);
  assert.deepEqual(rejected, { committed: false, index: 1, reason: "limit_reached", counter: 1, remaining: 0 });
  const entry = await storage.get("a");
  assert.equal(entry?.kind === "value" && entry.text(), "2");
});

test("several entries are read in the order of the keys", async (t) => {
  const storage = await startStorage(t);
  await storage.add("n", 7);
  await storage.put("v", "x");
  const entries = await storage.getMany(["v", "none", "n", "v"]);
  assert.deepEqual(
    entries.map(({ key, kind }) => [key, kind]),
    [
      ["v", "value"],
      ["n", "counter"],
      ["v", "value"],
    ],
  );
});

test("entries are listed over all pages", async (t) => {
  const storage = await startStorage(t);
  for (let number = 0; number < 230; number += 1) await storage.put(`k/${String(number).padStart(3, "0")}`, "");
  await storage.put("j", "");
  await storage.put("l", "");
  const page = await storage.listPage({ prefix: "k/" });
  assert.deepEqual([page.entries.length, page.nextAfter], [100, "k/099"]);
  const last = await storage.listPage({ prefix: "k/", after: "k/199" });
  assert.deepEqual([last.entries.length, last.entries[0]?.key, last.nextAfter], [30, "k/200", undefined]);
  assert.equal((await collect(storage.list({ prefix: "k/", pageSize: 7 }))).length, 230);
  assert.equal((await collect(storage.list())).length, 232);
  const [first] = await collect(storage.list({ after: "k/228" }));
  assert.equal(first?.key, "k/229");
});

test("large entries end a page early", async (t) => {
  const storage = await startStorage(t);
  for (let number = 10; number < 30; number += 1) await storage.put(String(number), new Uint8Array(64 << 10));
  const page = await storage.listPage();
  assert.deepEqual([page.entries.length, page.nextAfter], [15, "24"]);
  assert.equal((await collect(storage.list())).length, 20);
});

test("an error says what is wrong", async (t) => {
  const storage = await startStorage(t, { quotaBytes: 100 });
  await storage.put("v", "x");
  const many = Array.from({ length: 33 }, (_, number): Operation => ({ op: "delete", key: String(number) }));
  const cases: [() => Promise<unknown>, string][] = [
    [() => storage.get(""), "`key`: 1 to 512 bytes, no control characters"],
    [() => storage.get("a\nb"), "`key`"],
    [() => storage.get("\ud800"), "`key`: Unicode text without halves of surrogate pairs"],
    [() => storage.put("k", new Uint8Array((64 << 10) + 1)), "`value`: at most 64 KiB"],
    [() => storage.put("k", "", { ttlMs: 0 }), "`ttl_ms`: 1 to 31622400000 milliseconds"],
    [() => storage.put("k", "", { ttlMs: Infinity }), "`ttl_ms`"],
    [() => storage.put("k", "", { expectedVersion: -1n }), "`expected_version`"],
    [() => storage.delete("k", { expectedVersion: 0n }), "`expected_version`: at least 1"],
    [() => storage.add("k", 2 ** 53 + 2), "`delta`: a whole number between -2^53 and 2^53"],
    [() => storage.add("k", 0.5), "`delta`"],
    [() => storage.add("k", 1, { limit: NaN }), "`limit`"],
    [() => storage.add("k", 1, { window: DAY_MS * 367 }), "`window_ms`"],
    [() => storage.getMany([]), "`keys`: 1 to 32 keys"],
    [() => storage.listPage({ pageSize: 101 }), "`page_size`: 1 to 100"],
    [() => storage.transact([]), "`operations`: 1 to 32 operations"],
    [() => storage.transact(many), "`operations`: 1 to 32 operations"],
    [
      () =>
        storage.transact([
          { op: "delete", key: "k" },
          { op: "add", key: "k", delta: 1 },
        ]),
      "`operations`: each on another key",
    ],
    [() => storage.transact([{ op: "move" } as never]), "`operations`: each a put, a delete or an add"],
  ];
  for (const [call, expected] of cases) {
    await assert.rejects(call, (error: HostError) => error.kind === "invalid" && error.message.includes(expected), expected);
  }
  await assert.rejects(storage.add("v", 1), { kind: "not_a_counter", message: "not a counter: `v` holds a value" });
  await assert.rejects(storage.put("k", new Uint8Array(98)), { kind: "quota_exceeded" });
  assert.equal((await storage.put("k", new Uint8Array(97))).written, true);
});

test("an argument of a wrong type is named, and nothing is sent", async (t) => {
  const host = await startHost(t);
  // Whatever a program without TypeScript passes.
  const storage = host.storageOf("p", "acme") as any;
  const version = "`expectedVersion` must be a version that the storage answered, which is a bigint, not number";
  const cases: [() => Promise<unknown>, string][] = [
    [() => storage.get(5), "`key` must be a string, not number"],
    [() => storage.getJson(undefined), "`key` must be a string, not undefined"],
    [() => storage.getMany("abc"), "`keys` must be an array of strings, not string"],
    [() => storage.getMany(["k", null]), "`keys[1]` must be a string, not null"],
    [() => storage.put(5, "v"), "`key` must be a string, not number"],
    [() => storage.put("k", 5), "`value` must be a Uint8Array or a string, not number"],
    [() => storage.put("k", [1]), "`value` must be a Uint8Array or a string, not array"],
    [() => storage.put("k", "v", 5000), "`options` must be an object, not number"],
    [() => storage.put("k", "v", { ttlMs: "5" }), "`ttlMs` must be a number of milliseconds, not string"],
    [() => storage.putJson("k", "v", { expectedVersion: 1 }), version],
    [() => storage.delete("k", 1n), "`options` must be an object, not bigint"],
    [() => storage.delete("k", { expectedVersion: 1 }), version],
    [() => storage.add("k", "1"), "`delta` must be a number, not string"],
    [() => storage.add("k", 1, { limit: 9n }), "`limit` must be a number, not bigint"],
    [
      () => storage.add("k", 1, { window: 5n }),
      "`window` must be a number of milliseconds, or a string such as `day` or `30s`, not bigint",
    ],
    [() => storage.add("k", 1, "day"), "`options` must be an object, not string"],
    [() => storage.list("failures/").next(), "`options` must be an object, not string"],
    [() => storage.listPage({ prefix: 5 }), "`prefix` must be a string, not number"],
    [() => storage.listPage({ after: null }), "`after` must be a string, not null"],
    [() => storage.listPage({ pageSize: "9" }), "`pageSize` must be a number from 1 to 100, not string"],
    [() => storage.transact({ op: "delete", key: "k" }), "`operations` must be an array of operations, not object"],
    [() => storage.transact(["k"]), "`operations[0]` must be an object, not string"],
    [() => storage.transact([{ op: "put", key: "k", value: 5 }]), "`value` must be a Uint8Array or a string, not number"],
  ];
  for (const [call, message] of cases) await assert.rejects(call, { name: "TypeError", message });
  assert.deepEqual(host.calls, []);
});

test("counters reach both ends of their range", async (t) => {
  const storage = await startStorage(t);
  assert.equal((await storage.add("n", 2 ** 53)).counter, 2 ** 53);
  assert.deepEqual(await storage.add("n", 1), { added: false, counter: 2 ** 53 });
  assert.equal((await storage.add("m", -(2 ** 53))).counter, -(2 ** 53));
});

test("an aborted signal ends a call with its reason", async (t) => {
  const host = await FakeHost.start();
  t.after(() => host.stop());
  const storage = host.storageOf("p");
  host.onCall = () => new Promise(() => {});
  const controller = new AbortController();
  const reading = storage.get("k", { signal: controller.signal });
  controller.abort(new Error("no longer needed"));
  await assert.rejects(reading, /no longer needed/);
  await assert.rejects(storage.get("k", { signal: controller.signal }), /no longer needed/);
});

test("an odd text becomes a digest as a part of a key, and any other stays", () => {
  for (const text of ["", "fs.read", "a/b c", "Ünïcode", "x".repeat(256)]) assert.equal(keyPart(text), text);
  // As the Rust SDK digests it.
  assert.equal(keyPart("a\nb"), "sha256:7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78");
  const odd = ["a\nb", "\u0085", "sha256:", "x".repeat(257), "\ud800", "\ud801", "\udc00"].map(keyPart);
  for (const part of odd) assert.match(part, /^sha256:[0-9a-f]{64}$/);
  assert.equal(new Set(odd).size, odd.length);
  assert.throws(() => keyPart(null as never), { name: "TypeError", message: "`text` must be a string, not null" });
});

test("a period is a name, or a whole number with a unit", () => {
  const periods = { minute: 60_000, hour: 3_600_000, day: DAY_MS, "0ms": 0, "500ms": 500, "30s": 30_000, "10m": 600_000, "24h": DAY_MS };
  for (const [text, ms] of Object.entries(periods)) assert.equal(periodMs(text as never), ms);
  for (const text of ["1d", "1.5s", "-1s", "1 s", "s", "30", "", "99999999999999999999s", "toString"]) {
    assert.throws(() => periodMs(text as never), TypeError, text);
  }
});
