import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { TestPlugin } from "@hookgate/sdk/testing";
import llmJudge from "./llm-judge.ts";

/** A model's request, as far as the tests look at it. */
interface ModelRequest {
  readonly authorization: string | undefined;
  readonly path: string | undefined;
  readonly body: { readonly model: string; readonly messages: { readonly role: string; readonly content: string }[] };
}

/** A model that answers as it is told; `undefined`: never. */
async function startModel(t: TestContext, reply: { status: number; content: string } | undefined) {
  const requests: ModelRequest[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { authorization } = request.headers;
    requests.push({ authorization, path: request.url, body: JSON.parse(Buffer.concat(chunks).toString()) });
    if (reply === undefined) return;
    const body = { choices: [{ message: { role: "assistant", content: reply.content } }] };
    response.writeHead(reply.status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { requests, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1` };
}

function startJudge(url: string, timeoutMs = 5_000) {
  return TestPlugin.start(llmJudge, { url, model: "judge-1", api_key: "sk-1", policy: "No medical advice.", timeout_ms: timeoutMs });
}

test("the model decides, and gets the answer as data beside the policy", async (t) => {
  const { url, requests } = await startModel(t, { status: 200, content: '{"allowed": false, "reason": "It says: two."}' });
  const plugin = await startJudge(url);
  const { cancelled } = await plugin.beforeResponse({ content: 'Take "two".', reasoning: "Two is right." });
  assert.deepEqual([cancelled?.code, cancelled?.message], ["RESPONSE_NOT_ALLOWED", "The answer breaks the policy."]);
  const [request] = requests;
  assert.deepEqual([request?.authorization, request?.path, request?.body.model], ["Bearer sk-1", "/v1/chat/completions", "judge-1"]);
  assert.match(request?.body.messages[0]?.content ?? "", /No medical advice\.$/);
  assert.equal(request?.body.messages[1]?.content, '{"answer":"Take \\"two\\".","reasoning":"Two is right."}');
});

test("an allowed answer passes", async (t) => {
  const { url } = await startModel(t, { status: 200, content: '{"allowed": true}' });
  assert.equal((await (await startJudge(url)).beforeResponse({ content: "Hello." })).cancelled, undefined);
});

test("without a verdict no answer passes", async (t) => {
  const noVerdict = { code: "UNAVAILABLE", message: "the model gave no verdict" };
  for (const reply of [
    { status: 500, content: '{"allowed": true}' },
    { status: 200, content: "Yes." },
    { status: 200, content: "{}" },
  ]) {
    const { url } = await startModel(t, reply);
    await assert.rejects((await startJudge(url)).beforeResponse({ content: "Hello." }), noVerdict, reply.content);
  }
  await assert.rejects((await startJudge("http://127.0.0.1:1/v1")).beforeResponse({ content: "Hello." }), noVerdict);
});

test("the model's time ends before the call's, with the configured one, or when the agent hangs up", async (t) => {
  const { url, requests } = await startModel(t, undefined);
  const plugin = await startJudge(url);
  const began = Date.now();
  await assert.rejects(plugin.withTimeLeft(400).beforeResponse({ content: "" }), { code: "UNAVAILABLE" });
  assert.ok(Date.now() - began < 5_000, "before the configured time");
  await assert.rejects((await startJudge(url, 50)).beforeResponse({ content: "" }), { code: "UNAVAILABLE" });
  const hangUp = new AbortController();
  const judging = plugin.withSignal(hangUp.signal).beforeResponse({ content: "" });
  while (requests.length < 3) await new Promise((resolve) => setTimeout(resolve, 5));
  hangUp.abort();
  await assert.rejects(judging, { code: "UNAVAILABLE" });
});
