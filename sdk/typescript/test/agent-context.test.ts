import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type CallContext, currentContext, withContext } from "../src/agent/index.js";
import { continues, startGrpc, startHttp } from "./support/fake-gateway.js";

test("nested contexts merge, and the outer one is back afterwards", async () => {
  const outer = { tenant: "acme", sessionId: "s", runId: "r", labels: { a: "1", b: "1" } };
  await withContext(outer, async () => {
    await withContext({ runId: "child", parentRunId: "r", sessionId: undefined, labels: { b: "2" } }, async () => {
      await sleep(1);
      assert.deepEqual(currentContext(), { ...outer, runId: "child", parentRunId: "r", labels: { a: "1", b: "2" } });
    });
    assert.deepEqual(currentContext(), outer);
  });
  assert.deepEqual(currentContext(), {});
  assert.equal(
    withContext({}, () => 7),
    7,
  );
  assert.throws(() => withContext({}, () => assert.fail("thrown")), /thrown/);
});

test("a context is copied, so later changes don't count", () => {
  const context = { runId: "r" };
  withContext(context, () => {
    context.runId = "changed";
    assert.equal(currentContext().runId, "r");
  });
});

for (const [name, start] of Object.entries({ grpc: startGrpc, http: startHttp })) {
  test(`${name}: concurrent runs don't mix, and each has its tenant's token`, async () => {
    await using gateway = await start();
    gateway.reply(async ({ body }) => {
      await sleep(Math.random() * 5);
      const payload = body["payload"] as { content: string };
      return continues(payload, { request_id: payload.content });
    });
    const token = async ({ tenant }: CallContext) => {
      await sleep(Math.random() * 3);
      return `token-of-${tenant}`;
    };
    const agent = gateway.agent({ token });
    const run = (index: number) =>
      withContext({ tenant: `t${index % 7}`, runId: `r${index}`, correlationId: `c${index}` }, async () => {
        for (let turn = 0; turn < 3; turn += 1) {
          await sleep(Math.random() * 3);
          const content = `r${index}`;
          const { payload, requestId } = await agent.beforeResponse({ content });
          assert.deepEqual([payload.content, requestId], [content, content]);
        }
      });
    await Promise.all(Array.from({ length: 40 }, (_, index) => run(index)));
    assert.equal(gateway.calls.length, 120);
    for (const { headers, body } of gateway.calls) {
      const index = Number((body["payload"] as { content: string }).content.slice(1));
      assert.deepEqual(body["context"], { run_id: `r${index}` });
      assert.equal(headers["authorization"], `Bearer token-of-t${index % 7}`);
      assert.equal(headers["x-request-id"], `c${index}`);
    }
  });

  test(`${name}: the call's context has precedence over that of the run, and it over the agent's`, async () => {
    await using gateway = await start();
    const agent = gateway.agent({ context: { agentId: "agent", runId: "agent", sessionId: "agent" } });
    await withContext({ runId: "run", sessionId: "run" }, () => agent.runHook("recall", {}, { context: { sessionId: "call" } }));
    assert.deepEqual(gateway.calls[0]?.body["context"], { agent_id: "agent", run_id: "run", session_id: "call" });
  });
}
