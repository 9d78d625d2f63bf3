import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { acquireConnection } from "../src/host/connection.js";
import { HostClient, HostError, HostLinks, Storage } from "../src/host/index.js";
import { HostStatus } from "../src/testing/host-status.js";
import { FakeHost } from "./support/fake-host.js";
import { newDirectory } from "./support/files.js";
import { RecordingLogger, until } from "./support/recording-logger.js";

const CAPABILITIES = ["storage:read", "storage:write"] as const;
const HOUR_MS = 3_600_000;
const DEAD_ENDPOINT = "unix:///nonexistent/host.sock";

async function startHost(t: TestContext, socket?: string): Promise<FakeHost> {
  const host = await FakeHost.start(socket === undefined ? {} : { socket });
  t.after(() => host.stop());
  return host;
}

function newLinks(t: TestContext, logger = new RecordingLogger()): HostLinks {
  const links = new HostLinks(logger);
  t.after(() => links.close());
  return links;
}

/** The storage as a call gets it from gateways at these endpoints, the newest last. */
function storageAt(t: TestContext, endpoints: readonly string[], token: string): Storage {
  const links = newLinks(t);
  for (const [number, endpoint] of endpoints.entries()) links.add({ gateway: `g${number}`, endpoint, token: "unknown" });
  return new Storage(HostClient.forCall(links, { token }));
}

function tokenOf(host: FakeHost): string {
  return host.issueToken({ plugin: "p", tenant: "acme", capabilities: CAPABILITIES });
}

function isUnavailable(reason: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof HostError && error.isUnavailable && reason.test(error.message);
}

test("a call says how much time it has, its token, and what it passes on", async (t) => {
  const host = await startHost(t);
  const links = newLinks(t);
  links.add(host.offer());
  const forwarded = { traceparent: "00-a-b-01", "hookgate-depth": "2", tracestate: "naïve" };
  const deadline = Date.now() + 900;
  const client = HostClient.forCall(links, { token: "t", deadline, forwarded });
  await assert.rejects(new Storage(client).get("k"), { kind: "denied" });
  await assert.rejects(new Storage(client.withoutDeadline()).get("k"), { kind: "denied" });
  const [first, second] = host.calls;
  assert.ok(first !== undefined && second !== undefined);
  assert.deepEqual(first.metadata.get("authorization"), ["Bearer t"]);
  assert.deepEqual([first.metadata.get("traceparent"), first.metadata.get("hookgate-depth")], [["00-a-b-01"], ["2"]]);
  assert.deepEqual(first.metadata.get("tracestate"), [], "a header can't hold it");
  // The gateway's clock starts when the message arrives.
  assert.ok(first.deadline <= deadline + 100, `${first.deadline - deadline}`);
  assert.ok(second.deadline > deadline + 1000 && second.deadline <= Date.now() + 5100);
});

test("a call ends at the deadline of the plugin's call", async (t) => {
  const host = await startHost(t);
  host.onCall = () => new Promise(() => {});
  const links = newLinks(t);
  links.add(host.offer());
  const began = Date.now();
  await assert.rejects(
    new Storage(HostClient.forCall(links, { token: "t", deadline: began + 200 })).get("k"),
    isUnavailable(/Deadline exceeded/),
  );
  assert.ok(Date.now() - began < 2000);
  const calls = host.calls.length;
  await assert.rejects(
    new Storage(HostClient.forCall(links, { token: "t", deadline: began })).get("k"),
    isUnavailable(/the time of the call is over/),
  );
  assert.equal(host.calls.length, calls, "nothing is sent");
});

test("a gateway without host services is reported with the remedy", async (t) => {
  for (const storage of [storageAt(t, [], "t"), storageAt(t, [""], "")]) {
    await assert.rejects(storage.get("k"), { kind: "not_offered", message: /set `server.host_addr` or `server.host_socket`/ });
  }
  await assert.rejects(storageAt(t, [DEAD_ENDPOINT], "").get("k"), isUnavailable(/can't sign tokens/));
  await assert.rejects(storageAt(t, [DEAD_ENDPOINT], "a\nb").get("k"), isUnavailable(/can't sign tokens/));
  await assert.rejects(
    storageAt(t, [DEAD_ENDPOINT], "t").get("k"),
    isUnavailable(/unavailable: unix:\/\/\/nonexistent\/host.sock: connect ENOENT \/nonexistent\/host.sock$/),
  );
  await assert.rejects(storageAt(t, ["localhost:80"], "t").get("k"), isUnavailable(/"localhost:80" is neither unix:\/\/\/path/));
  const links = newLinks(t);
  links.close();
  await assert.rejects(new Storage(HostClient.forPlugin(links)).get("k"), isUnavailable(/the plugin has been shut down/));
});

test("another gateway is used if the newest is gone or refuses the token", async (t) => {
  const host = await startHost(t);
  const stranger = await startHost(t);
  const storage = storageAt(t, [host.endpoint, stranger.endpoint, DEAD_ENDPOINT], tokenOf(host));
  for (const expected of [1, 2, 3]) assert.equal((await storage.add("n", 1)).counter, expected);
  assert.equal(stranger.calls.length, 3);

  stranger.isAvailable = false;
  await assert.rejects(storage.add("n", 1), isUnavailable(/the test made the services unavailable/), "the gateway may have made the call");
  assert.equal((await storage.add("n", 1)).counter, 4, "the gateway that failed is tried last");
});

test("a call whose connection broke is not repeated", async (t) => {
  const host = await startHost(t);
  const other = await startHost(t);
  const storage = storageAt(t, [other.endpoint, host.endpoint], tokenOf(host));
  host.onCall = () => host.stop();
  await assert.rejects(storage.add("n", 1), isUnavailable(/./));
  assert.equal(other.calls.length, 0);
});

test("a gateway that accepts connections but does not serve is given up after 2 s", async (t) => {
  const host = await startHost(t);
  const silent = createServer();
  const socket = host.endpoint.slice("unix://".length).replace(/host.sock$/, "silent.sock");
  await new Promise<void>((resolve) => silent.listen(socket, resolve));
  t.after(() => silent.close());
  silent.on("connection", (connection) => void t.after(() => connection.destroy()));
  const began = Date.now();
  const adding = storageAt(t, [host.endpoint, `unix://${socket}`], tokenOf(host)).add("n", 1);
  await assert.rejects(storageAt(t, [`unix://${socket}`], "t").get("k"), isUnavailable(/silent.sock: no connection within 2 s$/));
  assert.ok(Date.now() - began < 4000);
  assert.equal((await adding).added, true);
});

test("a gateway that returns is used again", async (t) => {
  const socket = `${newDirectory(t)}/host.sock`;
  const before = await FakeHost.start({ socket });
  const token = tokenOf(before);
  const storage = storageAt(t, [`unix://${socket}`], token);
  await storage.get("k");
  await before.stop();
  await assert.rejects(storage.get("k"), isUnavailable(/./));
  await rm(socket, { force: true });
  const after = await startHost(t, socket);
  assert.equal(tokenOf(after), token);
  // The channel waits a moment after a failure.
  const isBack = () =>
    storage.get("k").then(
      () => true,
      () => false,
    );
  while (!(await isBack())) await new Promise((resolve) => setTimeout(resolve, 20));
});

test("links share a connection, and the last one closes it", async (t) => {
  const host = await startHost(t);
  const shared = acquireConnection(host.endpoint);
  t.after(() => shared.release());
  const [one, other] = [newLinks(t), newLinks(t)];
  for (const links of [one, other]) links.add(host.offer());
  const connections = [one, other].map((links) => links.candidates()[0]?.connection);
  assert.deepEqual(connections, [shared, shared]);
  one.close();
  assert.equal(acquireConnection(host.endpoint), shared);
  shared.release();
});

test("a closed connection is replaced, and a call in flight ends normally", async (t) => {
  const host = await startHost(t);
  const links = newLinks(t);
  links.add(host.offer());
  const [first] = links.candidates();
  let answer = () => {};
  host.onCall = () => new Promise((resolve) => (answer = resolve));
  const adding = new Storage(HostClient.forCall(links, { token: tokenOf(host) })).add("n", 1);
  await until(() => host.calls.length === 1);
  links.close();
  answer();
  assert.equal((await adding).added, true);
  const next = acquireConnection(host.endpoint);
  assert.notEqual(next, first?.connection);
  next.release();
});

test("an offer that a gateway sends again replaces its earlier one, and the last one stays", async (t) => {
  const host = await startHost(t);
  const links = newLinks(t);
  links.add({ gateway: "g", endpoint: DEAD_ENDPOINT, token: "" });
  links.add(host.offer());
  assert.equal(links.candidates().length, 1);
  links.remove("g");
  assert.equal((await new Storage(HostClient.forCall(links, { token: tokenOf(host) })).add("n", 1)).added, true);
  links.add({ gateway: "h", endpoint: "", token: "" });
  links.remove("g");
  assert.deepEqual(
    links.candidates().map(({ gateway }) => gateway),
    ["h"],
  );
});

test("the plugin's token is renewed at half of its life, and again after a failure", async (t) => {
  const host = await startHost(t);
  const old = host.issueToken({ plugin: "p", capabilities: CAPABILITIES });
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const logger = new RecordingLogger();
  const links = newLinks(t, logger);
  links.add(host.offer(old));
  const storage = new Storage(HostClient.forPlugin(links));
  links.keepTokens();
  const header = () => links.candidates()[0]?.authorization;

  t.mock.timers.tick(11 * HOUR_MS);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(host.calls.length, 0);
  host.onCall = () => {
    throw new HostStatus(status.UNAVAILABLE, "no database");
  };
  t.mock.timers.tick(HOUR_MS);
  await until(() => logger.lines.length === 1);
  assert.deepEqual(logger.lines[0], {
    level: "warn",
    message: "can't renew the token for host services",
    attributes: { gateway: "g", error: "14 UNAVAILABLE: no database" },
  });
  assert.equal(header(), `Bearer ${old}`);

  host.onCall = undefined;
  t.mock.timers.tick(60_000);
  await until(() => header() !== `Bearer ${old}`);
  host.revokeToken(old);
  await storage.put("k", "v");
  const renewed = header();
  t.mock.timers.tick(12 * HOUR_MS);
  await until(() => header() !== renewed);
  assert.equal((await storage.get("k"))?.kind, "value");
});

test("a token that has expired is not renewed any more", async (t) => {
  const host = await startHost(t);
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const logger = new RecordingLogger();
  const links = newLinks(t, logger);
  links.keepTokens();
  links.add(host.offer("unknown"));
  // The host refuses both.
  for (const [failures, hours] of [
    [1, 12],
    [2, 13],
  ] as const) {
    t.mock.timers.tick(hours * HOUR_MS);
    await until(() => logger.lines.length === failures);
  }
  t.mock.timers.tick(HOUR_MS);
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(host.calls.length, 2);
});

test("one signal for many calls at the same time isn't said to leak, and cancels all of them", async (t) => {
  const host = await startHost(t);
  const storage = storageAt(t, [host.endpoint], tokenOf(host));
  const warnings: Error[] = [];
  const warned = (warning: Error) => warnings.push(warning);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const controller = new AbortController();
  const { signal } = controller;
  const get = () => Promise.allSettled(Array.from({ length: 30 }, () => storage.get("k", { signal })));
  assert.ok((await get()).every(({ status }) => status === "fulfilled"));
  host.onCall = async () => {
    if (host.calls.length === 60) controller.abort();
    await new Promise(() => {});
  };
  assert.ok((await get()).every((call) => call.status === "rejected" && call.reason === signal.reason));
  await new Promise(setImmediate);
  assert.deepEqual(warnings, []);
});
