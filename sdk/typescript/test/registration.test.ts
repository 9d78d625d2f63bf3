import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { ServerCredentials, status } from "@grpc/grpc-js";
import { type Registration, type RegistrationOptions, type RegistrationTimes, startRegistration } from "../src/server/registration.js";
import { FakeRegistrar } from "./support/fake-registrar.js";
import { newDirectory, writeCertificate } from "./support/files.js";
import { RecordingLogger, until } from "./support/recording-logger.js";

const ENDPOINT = "http://10.1.2.3:7000";
const TIMES: RegistrationTimes = { answerMs: 5_000, refusalRetryMs: 30 };

interface Setup {
  readonly gateway: FakeRegistrar;
  readonly logger: RecordingLogger;
  start(options?: Partial<RegistrationOptions>, times?: Partial<RegistrationTimes>): Registration;
}

async function setUp(t: TestContext): Promise<Setup> {
  const gateway = new FakeRegistrar();
  const address = await gateway.listen();
  const logger = new RecordingLogger();
  t.after(() => gateway.stop());
  const start = (options = {}, times = {}) => {
    const registration = startRegistration("guard", ENDPOINT, { gateway: address, token: "t1", ...options }, logger, {
      ...TIMES,
      ...times,
    });
    t.after(() => registration.stop());
    return registration;
  };
  return { gateway, logger, start };
}

test("a process registers, renews, and ends the registration at the stop", async (t) => {
  const { gateway, logger, start } = await setUp(t);
  const registration = start();
  assert.deepEqual(await gateway.next(), { stream: "Bearer t1" });
  assert.deepEqual(await gateway.next(), { registration: ["guard", ENDPOINT] });
  assert.deepEqual(await registration.firstAnswer, { leaseMs: 300, approvalPending: false });
  for (let renewals = 0; renewals < 2; renewals += 1) assert.deepEqual(await gateway.next(), { renewal: true });
  assert.deepEqual(
    logger.lines.map(({ message }) => message),
    ["registered"],
  );

  gateway.endsClosedStreams = false;
  let hasStopped = false;
  const stopping = registration.stop().then(() => (hasStopped = true));
  assert.deepEqual(await gateway.nextButRenewal(), { closed: true });
  assert.equal(hasStopped, false, "the gateway has not removed the endpoint yet");
  gateway.endStream(status.OK, "");
  await stopping;
});

test("a gateway that never ends the stream does not keep the process", async (t) => {
  const { gateway, start } = await setUp(t);
  gateway.endsClosedStreams = false;
  const registration = start({ endpoint: "https://guard.example:443" });
  await registration.firstAnswer;
  assert.deepEqual(await gateway.next(), { stream: "Bearer t1" });
  assert.deepEqual(await gateway.next(), { registration: ["guard", "https://guard.example:443"] });
  const began = Date.now();
  await registration.stop();
  assert.ok(Date.now() - began < 3_000);
});

test("a stream that ends is followed by a registration with the current token", async (t) => {
  const { gateway, start } = await setUp(t);
  const tokens = ["t1", "t2", "t3", "t4"];
  const registration = start({ token: () => Promise.resolve(tokens.shift() as string) });
  // An expired token, and a gateway that is full, are no refusals.
  const ends: [status, string][] = [
    [status.UNAVAILABLE, "shutting down"],
    [status.UNAUTHENTICATED, "the token has expired"],
    [status.RESOURCE_EXHAUSTED, "too many streams"],
  ];
  for (const [number, [code, details]] of ends.entries()) {
    assert.deepEqual(await gateway.nextButRenewal(), { stream: `Bearer t${number + 1}` });
    assert.deepEqual(await gateway.next(), { registration: ["guard", ENDPOINT] });
    assert.deepEqual(await gateway.next(), { renewal: true });
    gateway.endStream(code, details);
  }
  assert.deepEqual(await gateway.nextButRenewal(), { stream: "Bearer t4" });
  assert.deepEqual(await registration.firstAnswer, { leaseMs: 300, approvalPending: false });
});

test("a process registers as soon as there are a token and a gateway", async (t) => {
  const directory = newDirectory(t);
  const { logger, start } = await setUp(t);
  const token = { file: join(directory, "token") };
  const registration = start({ gateway: `unix://${directory}/host.sock`, token });
  await until(() => logger.lines.length === 1);
  assert.match(String(logger.lines[0]?.attributes["error"]), /can't get the token from .*token: ENOENT/);
  writeFileSync(token.file, "t1\n");
  await until(() => logger.lines.length === 2);
  assert.match(String(logger.lines[1]?.attributes["error"]), /^UNAVAILABLE: connect ENOENT .*host.sock$/);

  const gateway = new FakeRegistrar();
  await gateway.listen(`unix:${directory}/host.sock`);
  t.after(() => gateway.stop());
  assert.deepEqual(await gateway.next(), { stream: "Bearer t1" });
  await registration.firstAnswer;
  assert.deepEqual(
    logger.lines.map(({ level, message }) => [level, message]),
    [
      ["error", "can't register"],
      ["warn", "not registered; trying again"],
      ["info", "registered"],
    ],
  );
});

test("a process registers over TLS with the CAs that the environment names", async (t) => {
  const { logger, start } = await setUp(t);
  const directory = newDirectory(t);
  const { certificate, key } = writeCertificate(directory, "gateway");
  const gateway = new FakeRegistrar();
  const pair = { cert_chain: readFileSync(certificate), private_key: readFileSync(key) };
  const address = await gateway.listen("localhost:0", ServerCredentials.createSsl(null, [pair]));
  t.after(() => gateway.stop());
  t.after(() => delete process.env["HOOKGATE_HOST_CA_FILE"]);
  start({ gateway: address });
  await until(() => logger.lines.length === 1);
  assert.match(String(logger.lines[0]?.attributes["error"]), /^UNAVAILABLE: self.signed certificate/);
  process.env["HOOKGATE_HOST_CA_FILE"] = certificate;
  assert.deepEqual(await gateway.next(), { stream: "Bearer t1" });
  assert.deepEqual(await gateway.next(), { registration: ["guard", ENDPOINT] });
});

test("a process keeps trying after a refusal, which is logged once", async (t) => {
  const { gateway, logger, start } = await setUp(t);
  gateway.refusal = { code: status.PERMISSION_DENIED, details: "the token's claim with plugins doesn't have `guard`" };
  const registration = start();
  for (let refusals = 0; refusals < 3; refusals += 1) assert.deepEqual(await gateway.next(), { stream: "Bearer t1" });
  gateway.refusal = undefined;
  await registration.firstAnswer;
  const [refused, registered] = logger.lines;
  assert.deepEqual([refused?.level, refused?.message], ["error", "the gateway refuses the registration"]);
  assert.deepEqual(
    [refused?.attributes["code"], refused?.attributes["error"]],
    ["PERMISSION_DENIED", "the token's claim with plugins doesn't have `guard`"],
  );
  assert.equal(registered?.message, "registered");
});

test("a registration without an answer counts as broken", async (t) => {
  const { gateway, logger, start } = await setUp(t);
  gateway.answer = undefined;
  start({}, { answerMs: 50 });
  for (let attempts = 0; attempts < 2; attempts += 1) {
    assert.deepEqual(await gateway.next(), { stream: "Bearer t1" });
    assert.deepEqual(await gateway.next(), { registration: ["guard", ENDPOINT] });
    assert.deepEqual(await gateway.next(), { broken: true });
  }
  assert.equal(logger.lines[0]?.attributes["error"], "no answer within 50 ms");
});

test("a stream that counts as broken is not closed in order, because that would remove the endpoint", async (t) => {
  const { start } = await setUp(t);
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const end = new Promise<string>((resolve) => {
    // Node tells of an abort before it ends the requests of a broken connection, but after an end that the client sent.
    server.on("stream", (stream) => stream.on("end", () => resolve(stream.aborted ? "broken" : "closed")).resume());
  });
  const registration = start({ gateway: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }, { answerMs: 50 });
  assert.equal(await end, "broken");
  await registration.stop();
  server.close();
});

test("a renewal without an answer counts as broken", async (t) => {
  const { gateway, start } = await setUp(t);
  const registration = start({}, { answerMs: 50 });
  await registration.firstAnswer;
  gateway.answer = undefined;
  while (!("broken" in (await gateway.nextButRenewal())));
  gateway.answer = { leaseMs: 300n };
  assert.deepEqual(await gateway.nextButRenewal(), { stream: "Bearer t1" });
});

test("the operator's approval is awaited and reported", async (t) => {
  const { gateway, logger, start } = await setUp(t);
  gateway.answer = { leaseMs: 150n, approvalPending: true };
  const registration = start();
  assert.deepEqual(await registration.firstAnswer, { leaseMs: 150, approvalPending: true });
  gateway.answer = { leaseMs: 150n, approvalPending: false };
  await until(() => logger.lines.length === 3);
  const messages = logger.lines.map(({ level, message }) => [level, message]);
  assert.deepEqual(messages, [
    ["info", "registered"],
    ["warn", "waits for approval: run `hookgate plugin approve guard`"],
    ["info", "approved"],
  ]);
});

test("a stop ends every wait", async (t) => {
  const { gateway, start } = await setUp(t);
  const withoutToken = start({ token: () => new Promise<string>(() => {}) });
  await withoutToken.stop();
  assert.equal(await withoutToken.firstAnswer, undefined);

  gateway.refusal = { code: status.PERMISSION_DENIED, details: "" };
  const refused = start({}, { refusalRetryMs: 1_000_000 });
  await gateway.next();
  await refused.stop();

  const unreachable = start({ gateway: "unix:///nonexistent/host.sock" });
  await unreachable.stop();
  await unreachable.stop();
});

test("an address that takes no registrations is named with the remedy", async (t) => {
  const { logger, start } = await setUp(t);
  const server = createServer((_, response) => response.writeHead(404, { "content-type": "text/plain" }).end("no such page"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  start({ gateway: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  await until(() => logger.lines.length === 1);
  assert.equal(logger.lines[0]?.message, "the address takes no registrations: name that of `server.host_addr` or `server.host_socket`");
});

test("an address that no gateway can reach is not registered", async (t) => {
  const { start } = await setUp(t);
  for (const endpoint of ["http://0.0.0.0:7000", "https://[::]:7000", "http://[::ffff:0.0.0.0]:7000", "http://0:7000"]) {
    const message =
      /is no address that gateways can reach: say where .* with `--register-endpoint` on the command line, or with `registration\.endpoint`/;
    assert.throws(() => start({ endpoint }), { name: "RegistrationError", message }, endpoint);
  }
});

test("a gateway or an endpoint that cannot be used is named with the remedy", async (t) => {
  const { start } = await setUp(t);
  const cases: [Partial<RegistrationOptions>, RegExp][] = [
    [{ gateway: "hookgate:9092" }, /gateway `hookgate:9092`: the address "hookgate:9092" is neither unix/],
    [{ gateway: "http://a b" }, /gateway `http:\/\/a b`: the address "http:\/\/a b" is neither/],
    [{ endpoint: "10.1.2.3:7000" }, /endpoint `10.1.2.3:7000`: write unix:\/\/\/absolute\/path/],
    [{ endpoint: "http://10.1.2.3:0" }, /endpoint `http:\/\/10.1.2.3:0`: write/],
    [{ endpoint: `unix:///${"a".repeat(400)}` }, /at most 400 bytes/],
  ];
  for (const [options, expected] of cases) assert.throws(() => start(options), { name: "RegistrationError", message: expected });
});

test("a token that no header can hold is reported by its source, and never printed", async (t) => {
  const { logger, start } = await setUp(t);
  start({ token: "se\ncret" });
  await until(() => logger.lines.length === 1);
  assert.equal(logger.lines[0]?.attributes["error"], "the option `token` has no token that a header can hold");
  assert.ok(!JSON.stringify(logger.lines).includes("cret"));
});
