import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { Agent } from "../src/agent/index.js";
import { FetchAgent } from "../src/agent/fetch.js";
import { type Reply, continues, startGrpc, startHttp } from "./support/fake-gateway.js";

for (const [name, start] of Object.entries({ grpc: startGrpc, http: startHttp })) {
  test(`${name}: calls share connections`, async () => {
    await using gateway = await start();
    const agent = gateway.agent();
    for (let call = 0; call < 20; call += 1) await agent.beforeResponse({ content: "c" });
    // Node's `fetch` may open a second connection while it still frees the first.
    assert.ok(new Set(gateway.calls.map(({ peer }) => peer)).size <= (name === "grpc" ? 1 : 2));
  });

  test(`${name}: a call in flight finishes after close, and no other begins`, async () => {
    await using gateway = await start();
    const agent = gateway.agent({ onNoDecision: "go_on" });
    let answer = (_reply: Reply) => {};
    const arrived = new Promise<void>((resolve) => {
      gateway.reply(() => {
        resolve();
        return new Promise((reply) => (answer = reply));
      });
    });
    const call = agent.beforeResponse({ content: "c" });
    await arrived;
    agent.close();
    agent.close();
    answer(continues({ content: "late" }));
    assert.equal((await call).payload.content, "late");
    await assert.rejects(agent.beforeResponse({ content: "c" }), new Error("the agent is closed"));
  });

  test(`${name}: an agent can be disposed of`, async () => {
    await using gateway = await start();
    const agent = gateway.agent();
    {
      await using inner = agent;
      await inner.beforeResponse({ content: "c" });
    }
    await assert.rejects(agent.beforeResponse({ content: "c" }), /closed/);
  });

  test(`${name}: a gateway that has come back is reached again`, async () => {
    const first = await start();
    const port = Number(new URL(first.url).port);
    using agent = name === "grpc" ? new Agent(first.url, { token: "t" }) : new FetchAgent(first.url, { token: "t" });
    await agent.beforeResponse({ content: "c" });
    await first.close();
    await assert.rejects(agent.beforeResponse({ content: "c" }), { kind: "unreachable" });
    await using second = name === "grpc" ? await startGrpc(`127.0.0.1:${port}`) : await startHttp(port);
    const end = Date.now() + 5000;
    while (second.calls.length === 0 && Date.now() < end) await agent.beforeResponse({ content: "c" }, { onNoDecision: "go_on" });
    assert.equal(second.calls.length > 0, true);
  });
}

test("grpc: a gateway may listen on a Unix socket", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "socket-"));
  t.after(() => rm(directory, { recursive: true }));
  await using gateway = await startGrpc(`unix:${directory}/gateway.sock`);
  assert.equal((await gateway.agent().beforeResponse({ content: "c" })).payload.content, "c");
});

test("addresses and options that can't be right are refused", () => {
  assert.throws(() => new FetchAgent("unix:///run/hookgate.sock"), /fetch can't connect to unix:\/\/\/run\/hookgate\.sock/);
  for (const AgentClass of [Agent, FetchAgent]) {
    assert.throws(() => new AgentClass("127.0.0.1:8080"), TypeError);
    assert.throws(() => new AgentClass("http://127.0.0.1:1", { timeoutMs: Infinity }), /timeoutMs/);
    assert.throws(() => new AgentClass("http://127.0.0.1:1", { onNoDecision: "goOn" as never }), /onNoDecision/);
    assert.throws(() => new AgentClass("http://127.0.0.1:1", { onNoDecision: { before_tool_call: "go_on" } as never }), /onNoDecision/);
  }
});

test("http: a fetch of one's own is used", async () => {
  await using gateway = await startHttp();
  const urls: string[] = [];
  const agent = new FetchAgent(gateway.url, {
    token: "t",
    fetch: (input, init) => {
      urls.push(String(input));
      return fetch(input, init);
    },
  });
  await agent.runHook("recall", {});
  assert.deepEqual(urls, [`${gateway.url}/v1/hooks/recall`]);
});

for (const [name, start, module, agentClass] of [
  ["grpc", startGrpc, "index", "Agent"],
  ["http", startHttp, "fetch", "FetchAgent"],
] as const) {
  test(`${name}: an agent that isn't closed keeps no process alive`, async () => {
    await using gateway = await start();
    const script = `import { ${agentClass} } from ${JSON.stringify(new URL(`../src/agent/${module}.js`, import.meta.url).href)};
      const agent = new ${agentClass}(process.argv[1], { token: "t", timeoutMs: 60_000 });
      await agent.beforeResponse({ content: "c" });
      console.log("done");`;
    const args = ["--input-type=module", "--eval", script, gateway.url];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 10_000 });
    assert.equal(stdout, "done\n");
  });
}
