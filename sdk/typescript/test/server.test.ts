import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type Client, credentials, loadPackageDefinition, status } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { protoPath } from "grpc-health-check";
import { grpcTarget, parseAddress } from "../src/address.js";
import { definePlugin, proceed, serve } from "../src/index.js";
import { GatewayClient, served, temporaryFolder } from "./support/gateway-client.js";

const pluginNamed = (name: string, beforeToolCall = async () => proceed()) => definePlugin({ name, version: "1.0.0", beforeToolCall });

/** What grpc.health.v1 answers. */
function health(address: string): Promise<string> {
  const { grpc } = loadPackageDefinition(loadSync(protoPath, { enums: String })) as any;
  const client: any = new grpc.health.v1.Health(grpcTarget(parseAddress(address)), credentials.createInsecure());
  return new Promise<string>((resolve, reject) => {
    client.check({ service: "" }, (error: Error | null, answer: { status: string }) => (error ? reject(error) : resolve(answer.status)));
  }).finally(() => (client as Client).close());
}

test("several plugins share an address, and each call names its own", async (t) => {
  const { server } = await served(t, [pluginNamed("one"), pluginNamed("two")]);
  const describe = async (name?: string) => {
    const client = GatewayClient.connect(server.address, name);
    t.after(() => client.client.close());
    return client.call("describe", {}).then(
      ({ name: answered }) => answered,
      ({ code, details }) => `${status[code]}: ${details}`,
    );
  };
  assert.deepEqual([await describe("one"), await describe("two")], ["one", "two"]);
  assert.equal(await describe("three"), "NOT_FOUND: no plugin `three` is served here, only `one`, `two`");
  assert.equal(
    await describe(),
    "NOT_FOUND: the metadata `hookgate-plugin` must name one of the plugins that are served here: `one`, `two`",
  );
  await assert.rejects(serve([pluginNamed("one"), pluginNamed("one")], server.address), /two of the plugins are named `one`/);
});

test("a single plugin also answers calls that name none, but not those for another", async (t) => {
  const { client, server } = await served(t, pluginNamed("one"));
  assert.equal((await client.call("describe", {})).name, "one");
  const other = GatewayClient.connect(server.address, "two");
  t.after(() => other.client.close());
  assert.equal((await other.failure(other.call("describe", {}))).code, status.NOT_FOUND);
});

test("a Unix socket is for user and group, a stale one is replaced, and one in use is not", async (t) => {
  const path = `${temporaryFolder(t)}/p.sock`;
  const crashed = createServer().listen(path);
  await sleep(50);
  await assert.rejects(
    serve(pluginNamed("p"), `unix://${path}`, { signals: false }),
    new RegExp(`can't listen at unix://${path}: another process listens there`),
  );
  await new Promise((resolve) => crashed.close(resolve));
  // Node removes the file of a socket that it closes. A process that is killed leaves it.
  const listen = `require("node:net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
  spawnSync(process.execPath, ["--eval", listen]);
  assert.ok(statSync(path).isSocket());
  const { client } = await served(t, pluginNamed("p"), { address: `unix://${path}` });
  assert.equal(statSync(path).mode & 0o777, 0o660);
  assert.equal((await client.call("describe", {})).name, "p");
});

test("health is SERVING until the stop, which finishes the calls in flight", async (t) => {
  let answer = () => {};
  const slow = pluginNamed("p", async () => {
    await new Promise<void>((resolve) => (answer = resolve));
    return proceed();
  });
  const { client, server, logger } = await served(t, slow, { drainMs: 5_000 });
  assert.equal(await health(server.address), "SERVING");
  await client.initialize("d");
  const call = client.toolCall("a", {});
  await sleep(50);
  const stopped = server.stop();
  await sleep(50);
  assert.throws(() => statSync(server.address.slice("unix://".length)), /ENOENT/, "a successor can listen");
  answer();
  assert.equal((await call).verdict.case, "continue");
  await stopped;
  assert.deepEqual(logger.lines.slice(-1), ["plugin stopped p"]);
});

test("a call that doesn't end is given up after the drain", async (t) => {
  const { client, server, logger } = await served(
    t,
    pluginNamed("p", () => new Promise(() => {})),
    { drainMs: 50 },
  );
  await client.initialize("d");
  const call = client.failure(client.toolCall("a", {}));
  await sleep(50);
  await server.stop();
  assert.ok([status.CANCELLED, status.UNAVAILABLE].includes((await call).code));
  assert.ok(logger.lines.some((line) => line.startsWith("calls are still in flight")));
});

test("TCP serves on a free port, and TLS with a certificate", async (t) => {
  const { client, server } = await served(t, pluginNamed("p"), { address: "http://127.0.0.1:0" });
  assert.match(server.address, /^http:\/\/127\.0\.0\.1:\d{2,}$/);
  assert.equal((await client.call("describe", {})).name, "p");

  const folder = temporaryFolder(t);
  const openssl = [
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
    "-days",
    "2",
    "-subj",
    "/CN=localhost",
    "-addext",
    "subjectAltName=DNS:localhost",
    "-keyout",
    `${folder}/key.pem`,
    "-out",
    `${folder}/cert.pem`,
  ];
  execFileSync("openssl", openssl, { stdio: "ignore" });
  const cert = readFileSync(`${folder}/cert.pem`);
  const tls = { cert, key: readFileSync(`${folder}/key.pem`) };
  const secure = await served(t, pluginNamed("p"), { address: "https://localhost:0", tls });
  const trusting = GatewayClient.connect(secure.server.address, "p", credentials.createSsl(cert));
  t.after(() => trusting.client.close());
  assert.equal((await trusting.call("describe", {})).name, "p");
  await assert.rejects(serve(pluginNamed("p"), "https://localhost:0"), /https:\/\/localhost:0 needs a certificate and a key/);
  await assert.rejects(serve(pluginNamed("p"), "http://localhost:0", { tls }), /a certificate and a key need an https:\/\/ address/);
});

test("an address is unix://, http:// or https://", async () => {
  for (const address of ["/tmp/p.sock", "unix://p.sock", "unix:///", "http://a/b", "ftp://a", "http://u:p@a:1", ""]) {
    await assert.rejects(
      serve(pluginNamed("p"), address),
      /is neither unix:\/\/\/path, http:\/\/host:port nor https:\/\/host:port/,
      address,
    );
  }
});

test("reflection lists the service", async (t) => {
  const { server } = await served(t, pluginNamed("p"));
  const reflectionProto = new URL(import.meta.resolve("@grpc/reflection/build/proto/grpc/reflection/v1/reflection.proto"));
  const { grpc } = loadPackageDefinition(loadSync(reflectionProto.pathname)) as any;
  const client: any = new grpc.reflection.v1.ServerReflection(grpcTarget(parseAddress(server.address)), credentials.createInsecure());
  t.after(() => client.close());
  const stream = client.ServerReflectionInfo();
  stream.on("error", () => {});
  const answer = new Promise<any>((resolve) => stream.once("data", resolve));
  stream.write({ listServices: "" });
  assert.deepEqual((await answer).listServicesResponse.service, [{ name: "hookgate.plugin.v1.PluginService" }]);
  stream.end();
});
