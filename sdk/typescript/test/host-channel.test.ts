import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { type Client, Server, ServerCredentials } from "@grpc/grpc-js";
import { parseAddress } from "../src/address.js";
import { dial } from "../src/channel.js";
import { RenewTokenResponseSchema, TokenService } from "../src/gen/hookgate/host/v1/host_pb.js";
import { callUnary, serviceDefinition } from "../src/grpc.js";
import { readEndpoint } from "../src/host/dial.js";
import { newDirectory, writeCertificate } from "./support/files.js";

/** Serves TokenService, and answers with the authority that it was called by. Returns its address. */
async function serve(t: TestContext, target: string, credentials = ServerCredentials.createInsecure()): Promise<number> {
  const server = new Server();
  const renewToken = (call: { getHost(): string }, callback: (error: null, answer: object) => void) => {
    callback(null, create(RenewTokenResponseSchema, { token: call.getHost() }));
  };
  server.addService(serviceDefinition(TokenService), { renewToken });
  t.after(() => server.forceShutdown());
  return new Promise((resolve, reject) => server.bindAsync(target, credentials, (error, port) => (error ? reject(error) : resolve(port))));
}

async function authority(t: TestContext, client: Client): Promise<string> {
  t.after(() => client.close());
  return (await renew(client)).token;
}

function renew(client: Client): Promise<{ token: string }> {
  return callUnary(client, TokenService.method.renewToken, {});
}

test("a server is reached over TCP and a Unix socket", async (t) => {
  const socket = join(newDirectory(t), "a.sock");
  await serve(t, `unix:${socket}`);
  assert.equal(await authority(t, dial(parseAddress(`unix://${socket}`))), "localhost");
  const port = await serve(t, "127.0.0.1:0");
  assert.equal(await authority(t, dial(parseAddress(`http://127.0.0.1:${port}`))), `127.0.0.1:${port}`);
});

test("a server is reached over TLS with a CA of its own, and no other", async (t) => {
  const directory = newDirectory(t);
  const { certificate, key } = writeCertificate(directory, "server");
  const ca = readFileSync(certificate, "utf8");
  const pair = { cert_chain: readFileSync(certificate), private_key: readFileSync(key) };
  const port = await serve(t, "localhost:0", ServerCredentials.createSsl(null, [pair]));
  const address = parseAddress(`https://localhost:${port}`);
  assert.equal(await authority(t, dial(address, { ca })), `localhost:${port}`);
  for (const files of [{}, { ca: readFileSync(writeCertificate(directory, "other").certificate, "utf8") }]) {
    await assert.rejects(authority(t, dial(address, files)), /self.signed certificate/);
  }
});

test("a server can ask for a client certificate", async (t) => {
  const directory = newDirectory(t);
  const { certificate, key } = writeCertificate(directory, "both");
  const pem = { certificate: readFileSync(certificate, "utf8"), key: readFileSync(key, "utf8") };
  const pair = { cert_chain: Buffer.from(pem.certificate), private_key: Buffer.from(pem.key) };
  const port = await serve(t, "localhost:0", ServerCredentials.createSsl(Buffer.from(pem.certificate), [pair], true));
  const address = parseAddress(`https://localhost:${port}`);
  assert.equal(await authority(t, dial(address, { ca: pem.certificate, ...pem })), `localhost:${port}`);
  await assert.rejects(authority(t, dial(address, { ca: pem.certificate })), { code: 14 });
});

test("a server that starts later is reached soon", async (t) => {
  const socket = join(newDirectory(t), "a.sock");
  const client = dial(parseAddress(`unix://${socket}`));
  t.after(() => client.close());
  await assert.rejects(renew(client), { code: 14, details: /ENOENT/ });
  await serve(t, `unix:${socket}`);
  const began = Date.now();
  const isReached = () =>
    renew(client).then(
      () => true,
      () => false,
    );
  while (!(await isReached())) await new Promise((resolve) => setTimeout(resolve, 10));
  assert.ok(Date.now() - began < 900, "sooner than grpc-js tries by default");
});

test("an endpoint or a file that cannot be used is named", (t) => {
  const directory = newDirectory(t);
  const file = (name: string, text: string) => {
    writeFileSync(join(directory, name), text);
    return join(directory, name);
  };
  const text = file("text", "nothing");
  const pem = file("pem", "-----BEGIN CERTIFICATE-----");
  const encrypted = file("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----");
  const one = writeCertificate(directory, "one");
  const other = writeCertificate(directory, "other");
  const [CA, CERT, KEY] = ["HOOKGATE_HOST_CA_FILE", "HOOKGATE_HOST_CERT_FILE", "HOOKGATE_HOST_KEY_FILE"];
  const cases: [string, { [variable: string]: string }, string][] = [
    ["localhost:80", {}, "is neither unix:///path, http://host:port nor https://host:port"],
    ["http://a b", {}, "is neither"],
    ["https://localhost:1", { [CA]: "/no/such/ca.pem" }, "HOST_CA_FILE: can't read /no/such/ca.pem"],
    ["https://localhost:1", { [CA]: text }, "text has no certificate in PEM form"],
    ["https://localhost:1", { [CERT]: one.certificate }, "HOOKGATE_HOST_KEY_FILE is not set"],
    ["https://localhost:1", { [KEY]: one.key }, "HOOKGATE_HOST_CERT_FILE is not set"],
    ["https://localhost:1", { [CERT]: one.certificate, [KEY]: text }, "text has no private key in PEM form"],
    ["https://localhost:1", { [CERT]: one.certificate, [KEY]: encrypted }, "encrypted is encrypted; name a file"],
    ["https://localhost:1", { [CERT]: one.certificate, [KEY]: other.key }, "check the files that HOOKGATE_HOST_CA_FILE"],
    ["https://localhost:1", { [CERT]: pem, [KEY]: one.key }, "TLS can't be used for the host services"],
  ];
  for (const [endpoint, environment, expected] of cases) {
    assert.throws(
      () => readEndpoint(endpoint, environment),
      (error: Error) => error.name === "DialError" && error.message.includes(expected),
      expected,
    );
  }
  assert.deepEqual(readEndpoint("http://localhost:1", { [CA]: "/no/such/ca.pem" }).files, {}, "without TLS no file is read");
  const { files } = readEndpoint("https://localhost:1", { [CA]: one.certificate, [CERT]: one.certificate, [KEY]: one.key });
  assert.equal(files.key, readFileSync(one.key, "utf8"));
});
