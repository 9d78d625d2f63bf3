import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { HostClient, HostLinks, Log } from "../src/host/index.js";
import type { Capability } from "../src/point.js";
import { FakeHost } from "./support/fake-host.js";
import { RecordingLogger } from "./support/recording-logger.js";

const MAX_QUEUED = 1000;

interface Setup {
  readonly host: FakeHost;
  readonly links: HostLinks;
  readonly log: Log;
  readonly logger: RecordingLogger;
}

async function setUp(
  t: TestContext,
  { capabilities = ["log"], deadline }: { capabilities?: Capability[]; deadline?: number } = {},
): Promise<Setup> {
  const host = await FakeHost.start();
  const logger = new RecordingLogger();
  const links = new HostLinks(logger);
  t.after(() => links.close());
  t.after(() => host.stop());
  links.add(host.offer());
  const token = host.issueToken({ plugin: "p", tenant: "acme", capabilities });
  return { host, links, logger, log: new Log(HostClient.forCall(links, { token, deadline })) };
}

test("lines arrive in their order with what they say", async (t) => {
  const { host, log, logger } = await setUp(t);
  for (let number = 0; number < 250; number += 1) log.warn(`line ${number}`, { number });
  await log.flush();
  const expected = Array.from({ length: 250 }, (_, number) => {
    return { plugin: "p", tenant: "acme", severity: "warn", message: `line ${number}`, attributes: { number: String(number) } };
  });
  assert.deepEqual(host.logLines, expected);
  assert.equal(host.calls.length, 3, "at most 100 lines for each request");
  assert.deepEqual(logger.lines, []);
});

test("each level and each kind of attribute has its form", async (t) => {
  const { host, log } = await setUp(t);
  log.debug("a", { text: "x", number: 0.5, big: 2n ** 60n, flag: false, nothing: null, absent: undefined, error: new TypeError("wrong") });
  log.info("b");
  log.warn("c");
  log.error("half \ud800");
  await log.flush();
  assert.deepEqual(
    host.logLines.map(({ severity, message }) => [severity, message]),
    [
      ["debug", "a"],
      ["info", "b"],
      ["warn", "c"],
      ["error", "half \ufffd"],
    ],
  );
  const [first] = host.logLines;
  assert.deepEqual(first?.attributes, {
    text: "x",
    number: "0.5",
    big: "1152921504606846976",
    flag: "false",
    nothing: "null",
    error: "TypeError: wrong",
  });
});

test("lines beyond those that may wait are dropped and reported, and later ones arrive", async (t) => {
  const { host, log, logger } = await setUp(t);
  // Nothing is sent before the loop ends.
  for (let number = 0; number < MAX_QUEUED + 5; number += 1) log.info(String(number));
  await log.flush();
  assert.equal(host.logLines.length, MAX_QUEUED);
  assert.deepEqual(logger.lines, [
    { level: "warn", message: "lines for the gateway's log were dropped: too many wait", attributes: { lines: 5 } },
  ]);
  log.info("last");
  await log.flush();
  assert.equal(host.logLines.at(-1)?.message, "last");
});

test("an invalid line is dropped alone, and a long one is cut", async (t) => {
  const { host, log, logger } = await setUp(t);
  log.info("one");
  log.info("");
  log.info("two", { "with space": 1 });
  log.info("three", { left_out: 1 });
  log.info("four", { odd: { toString: () => assert.fail("no text") } as never });
  log.info("five", ["a"] as never);
  log.info("xü".repeat(4000), { long: "€".repeat(1000) });
  await log.flush();
  assert.deepEqual(
    host.logLines.map(({ message }) => Buffer.byteLength(message)),
    [3, 8191],
  );
  assert.equal(Buffer.byteLength(host.logLines[1]?.attributes["long"] ?? ""), 1023);
  const fields = logger.lines.map(({ attributes }) => attributes["field"] ?? String(attributes["error"]));
  const errors = ["AssertionError [ERR_ASSERTION]: no text", "TypeError: `attributes` must be an object, not array"];
  assert.deepEqual(fields, ["message", "attributes", "attributes", ...errors]);
});

test("lost lines are reported, and nothing is thrown", async (t) => {
  const { log, logger } = await setUp(t, { capabilities: ["emit"] });
  log.error("one");
  log.error("two");
  await log.flush();
  const error = "the gateway refused the call: the plugin lacks the capability `log`";
  assert.deepEqual(logger.lines, [{ level: "warn", message: "lines for the gateway's log were lost", attributes: { lines: 2, error } }]);
});

test("lines that the gateway drops are reported", async (t) => {
  const { host, log, logger } = await setUp(t);
  host.droppedLines = 2;
  for (const message of ["one", "two", "three"]) log.info(message);
  await log.flush();
  assert.equal(host.logLines.length, 1);
  assert.deepEqual(logger.lines, [
    { level: "warn", message: "the gateway dropped lines for its log: too many in a second", attributes: { lines: 2 } },
  ]);
});

test("lines may be sent after the deadline of the call", async (t) => {
  const { host, log } = await setUp(t, { deadline: Date.now() });
  log.info("late");
  await log.flush();
  assert.equal(host.logLines.length, 1);
});

test("a flush waits for the lines so far only", async (t) => {
  const { host, log } = await setUp(t);
  await log.flush();
  let isFlushed = false;
  log.info("first");
  const flushed = log.flush().then(() => (isFlushed = true));
  // Lines without end don't hold it up.
  host.onCall = () => {
    if (!isFlushed) log.info("another");
  };
  await flushed;
  await log.flush();
  assert.equal(host.logLines[0]?.message, "first");
});

test("lines that were written before the end of the plugin are sent, and later ones are lost", async (t) => {
  const { host, links, log, logger } = await setUp(t);
  log.info("last");
  links.close();
  await log.flush();
  assert.deepEqual(
    host.logLines.map(({ message }) => message),
    ["last"],
  );
  log.info("too late");
  await log.flush();
  assert.equal(host.logLines.length, 1);
  const error = "the gateway's host services are unavailable: the plugin has been shut down";
  assert.deepEqual(logger.lines[0]?.attributes, { lines: 1, error });
});
