import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { Agent, NoDecision, hs256Signer, tokenFile } from "../src/agent/index.js";
import { startGrpc, startHttp } from "./support/fake-gateway.js";

const SECRET = "0123456789abcdef0123456789abcdef";
const CLAIMS = { secret: SECRET, issuer: "iss", audience: "aud", operator: "bot" };

function parts(token: string): { header: Record<string, unknown>; claims: Record<string, number> } {
  const [header = "", claims = ""] = token.split(".");
  const parse = (part: string) => JSON.parse(Buffer.from(part, "base64url").toString());
  return { header: parse(header), claims: parse(claims) };
}

test("a signed token says who and for how long", () => {
  const token = hs256Signer({ ...CLAIMS, tenant: "acme", ttlSeconds: 120, keyId: "k1" })({});
  const { header, claims } = parts(token);
  assert.deepEqual(header, { typ: "JWT", alg: "HS256", kid: "k1" });
  const { iat = 0, exp, ...others } = claims;
  assert.deepEqual(others, { iss: "iss", aud: "aud", sub: "bot", tenant_id: "acme", scope: "hookgate:invoke" });
  assert.equal(exp, iat + 120);
  const [, , signature] = token.split(".");
  assert.equal(
    signature,
    createHmac("sha256", SECRET)
      .update(token.slice(0, token.lastIndexOf(".")))
      .digest("base64url"),
  );
});

test("a signer keeps each tenant's token until a fifth of its life is left", (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  t.mock.method(Date, "now", () => now);
  const sign = hs256Signer(CLAIMS);
  const [acme, globex] = [sign({ tenant: "acme" }), sign({ tenant: "globex" })];
  assert.deepEqual([parts(acme).claims["tenant_id"], parts(globex).claims["tenant_id"]], ["acme", "globex"]);
  now = 47_999;
  assert.equal(sign({ tenant: "acme" }), acme);
  now = 48_000;
  assert.notEqual(sign({ tenant: "acme" }), acme);
});

test("a signer refuses short secrets, and calls without a tenant", () => {
  const short = { ...CLAIMS, secret: SECRET.slice(1) };
  assert.throws(() => hs256Signer(short), new TypeError("the secret has 31 bytes; HS256 wants at least 32"));
  assert.throws(() => hs256Signer({ ...CLAIMS, ttlSeconds: 0.5 }), /ttlSeconds/);
  assert.throws(() => hs256Signer(CLAIMS)({}), /no tenant/);
});

test("a token that a header can't carry is refused and not shown", () => {
  for (const token of ["CANARY\n", "", "CANARY CANARY"]) {
    assert.throws(
      () => new Agent("http://127.0.0.1:1", { token }),
      (error) => {
        assert.ok(error instanceof TypeError && !error.message.includes("CANARY"));
        return true;
      },
    );
  }
  assert.throws(() => new Agent("http://127.0.0.1:1", { token: 1 as never }), TypeError);
  const agent = new Agent("http://127.0.0.1:1", { token: "CANARY" });
  assert.ok(!inspect(agent, { depth: 10, showHidden: true }).includes("CANARY"));
});

for (const [name, start] of Object.entries({ grpc: startGrpc, http: startHttp })) {
  test(`${name}: a token file is fresh when it changes`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "token-"));
    t.after(() => rm(directory, { recursive: true }));
    const path = join(directory, "token");
    await using gateway = await start();
    const agent = gateway.agent({ token: tokenFile(path) });
    for (const token of ["first", "second"]) {
      await writeFile(path, `${token}\n`);
      await agent.beforeResponse({ content: "c" });
    }
    assert.deepEqual(
      gateway.calls.map(({ headers }) => headers["authorization"]),
      ["Bearer first", "Bearer second"],
    );
    await writeFile(path, "\n");
    await assert.rejects(agent.beforeResponse({ content: "c" }), { kind: "token", message: /the token file .* is empty/ });
  });

  test(`${name}: a token source that fails or gives no token is no decision, and nothing is sent`, async () => {
    await using gateway = await start();
    const failure = new Error("no connection to the issuer");
    const sources: [RegExp, () => string | Promise<string>][] = [
      [/the token source failed: no connection to the issuer/, () => Promise.reject(failure)],
      [
        /the token source failed: no connection to the issuer/,
        () => {
          throw failure;
        },
      ],
      [/must be a text of visible ASCII characters/, () => "a\nb"],
      [/must be a text of visible ASCII characters/, () => undefined as never],
      [/the token has 8193 characters; at most 8192 are allowed/, () => "t".repeat(8193)],
    ];
    for (const [expected, token] of sources) {
      await assert.rejects(gateway.agent({ token }).beforeResponse({ content: "c" }), (error) => {
        assert.ok(error instanceof NoDecision && error.kind === "token");
        assert.match(error.message, expected);
        return true;
      });
    }
    const agent = gateway.agent({ token: () => Promise.reject(failure), onNoDecision: "go_on" });
    await assert.rejects(agent.beforeResponse({ content: "c" }), { name: "NoDecision", cause: failure });
    assert.equal(gateway.calls.length, 0);
  });

  test(`${name}: a token source that hangs is a timeout, and can be cancelled`, async () => {
    await using gateway = await start();
    const agent = gateway.agent({ token: () => new Promise<string>(() => {}) });
    await assert.rejects(agent.beforeResponse({ content: "c" }, { timeoutMs: 30 }), { name: "NoDecision", kind: "timeout" });
    const controller = new AbortController();
    const call = agent.beforeResponse({ content: "c" }, { signal: controller.signal });
    controller.abort();
    await assert.rejects(call, { name: "AbortError" });
    assert.equal(gateway.calls.length, 0);
  });
}
