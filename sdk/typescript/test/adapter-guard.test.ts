import assert from "node:assert/strict";
import { test } from "node:test";
import { PatchError, findGatewayError, guardModelRequest, guardModelResponse, guardToolRun } from "../src/adapters/guard.js";
import { fromJson, isSameJson, mergeList, toJson, toText } from "../src/values.js";
import { Blocked, NoDecision } from "../src/agent/index.js";
import type { JsonValue } from "../src/json.js";
import { block, outage, patch, pointGateway } from "./support/point-script.js";

test("values become what JSON.stringify writes, but bytes are base64 and large integers exact", () => {
  const date = new Date(0);
  const value = {
    a: undefined,
    b: [undefined, () => 1, Number.NaN, 2 ** 60],
    c: new Uint8Array([1, 2, 3]),
    d: date,
    e: new URL("https://x/y"),
    f: 1e300,
    g: 5n,
  };
  assert.deepEqual(toJson(value), {
    b: [null, null, null, 1152921504606846976n],
    c: "AQID",
    d: date.toJSON(),
    e: "https://x/y",
    f: 1e300,
    g: 5n,
  });
  assert.equal(toJson(undefined), null);
  assert.equal(toJson(Symbol("s")), null);
  const own: Record<string, unknown> = {};
  own["self"] = own;
  assert.throws(() => toJson(own), { name: "JsonError" });
  assert.equal(toJson(new Uint8Array(100_000)), Buffer.alloc(100_000).toString("base64"));
});

test("JSON for a library has no BigInt, and no integer is rounded", () => {
  assert.deepEqual(fromJson({ a: [1152921504606846976n], b: 9007199254740993n, c: null, ["__proto__"]: 1 }), {
    a: [2 ** 60],
    b: "9007199254740993",
    c: null,
    ["__proto__"]: 1,
  });
  assert.equal(toText({ id: 9007199254740993n }), '{"id":9007199254740993}');
  assert.equal(toText("text"), "text");
  assert.ok(isSameJson(toJson({ id: 2 ** 60 }), { id: 1152921504606846976n }));
});

test("a merged list keeps the originals that nobody changed, wherever they are", () => {
  const originals = [{ n: 1 }, { n: 2 }, { n: 2 }, { n: 3 }];
  const sent = originals.map((item) => toJson(item));
  const merge = (returned: JsonValue[]) => {
    const decoded: unknown[] = [];
    const merged = mergeList<unknown>(originals, sent, returned, (item, original) => {
      decoded.push(original);
      return item;
    });
    return { places: merged.map((item) => originals.indexOf(item as { n: number })), decoded };
  };
  assert.deepEqual(merge([{ n: 2 }, { n: 2 }, { n: 3 }]).places, [1, 2, 3]);
  assert.deepEqual(merge([{ n: 0 }, { n: 1 }, { n: 2 }, { n: 2 }, { n: 3 }]), { places: [-1, 0, 1, 2, 3], decoded: [undefined] });
  assert.deepEqual(merge([{ n: 1 }, { n: 9 }, { n: 2 }, { n: 3 }]), { places: [0, -1, 1, 3], decoded: [originals[1]] });
  assert.deepEqual(merge([]).places, []);
});

test("the gateway's error is found in whatever a library wraps it in", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("no"), beforeLlmRequest: outage });
  const blocked = await gateway.client.beforeResponse({ content: "" }).catch((error: unknown) => error);
  const noDecision = await gateway.client.beforeLlmRequest({ text: "" }).catch((error: unknown) => error);
  assert.ok(blocked instanceof Blocked && noDecision instanceof NoDecision);
  assert.equal(findGatewayError(new Error("a", { cause: new Error("b", { cause: blocked }) })), blocked);
  assert.equal(findGatewayError(Object.assign(new Error("a"), { error: noDecision })), noDecision);
  const circle: { cause?: unknown } = {};
  circle.cause = circle;
  for (const other of [circle, new Error("a"), null, undefined, "text", new PatchError("p")])
    assert.equal(findGatewayError(other), undefined);
});

test("an agent that was told to go on without a decision goes on with its own values", async () => {
  await using gateway = await pointGateway({
    beforeLlmRequest: outage,
    beforeToolCall: outage,
    afterToolResult: outage,
    beforeResponse: outage,
  });
  const client = gateway.gateway.agent({ onNoDecision: "go_on" });
  assert.deepEqual(await guardModelRequest(client, { text: "hi", messages: [{ role: "user" }] }, {}), {});
  const response = { texts: ["c", "d"], thoughts: [], hasToolCalls: false, isStructured: false };
  assert.equal(await guardModelResponse(client, response, {}), undefined);
  const args = { id: 1 };
  const outcome = await guardToolRun(client, { toolName: "t", args }, async (name, own) => ({
    value: [name, own === args],
    result: "r",
    success: true,
  }));
  assert.deepEqual(outcome, { kind: "own", value: ["t", true] });
});

test("an answer without any parts is asked about once, unless it calls tools, and takes what plugins add", async () => {
  await using gateway = await pointGateway({ beforeResponse: patch({ content: "added", reasoning: "thought" }) });
  const empty = { texts: [], thoughts: [], hasToolCalls: false, isStructured: false };
  assert.deepEqual(await guardModelResponse(gateway.client, empty, {}), { texts: ["added"], thoughts: ["thought"] });
  assert.equal(await guardModelResponse(gateway.client, { ...empty, hasToolCalls: true }, {}), undefined);
  assert.equal(gateway.points.length, 1);
});

test("an answer gets the changes of each of its parts, and what is added to a later one is dropped", async () => {
  await using gateway = await pointGateway({ beforeResponse: patch(({ content }) => ({ content: `${content}!`, reasoning: "thought" })) });
  const response = { texts: ["a", "b"], thoughts: ["t"], stopReason: "stop", hasToolCalls: true, isStructured: false };
  const call = { provider: "p", model: "m" };
  const judged = await guardModelResponse(gateway.client, { ...response, tokenUsage: { input: 1, output: 2 } }, call);
  assert.deepEqual(judged, { texts: ["a!", "b!"], thoughts: ["thought", undefined] });
  const common = { provider: "p", model: "m", stop_reason: "stop" };
  assert.deepEqual(gateway.payloads("beforeResponse"), [
    { content: "a", reasoning: "t", token_usage: { input: 1, output: 2 }, ...common },
    { content: "b", ...common },
  ]);
});

test("a request without anything, and one of which a plugin takes everything, are requests", async () => {
  await using gateway = await pointGateway();
  assert.deepEqual(await guardModelRequest(gateway.client, { text: "", messages: [] }, {}), {});
  await using taking = await pointGateway({
    beforeLlmRequest: () => ({
      answer: {
        decision: "continue",
        payload: { text: "" },
        modified: true,
        notices: [],
        steps: [],
        plan_digest: "",
        revision: 1,
        request_id: "",
      },
    }),
  });
  const media = [{ url: "https://x/y", mimeType: "image/png" }];
  const taken = await guardModelRequest(
    taking.client,
    { text: "hi", systemPrompt: "s", messages: [1], tools: [{}], media, extra: { a: 1 } },
    {},
  );
  assert.deepEqual(taken, {
    messages: { sent: [1], returned: [] },
    text: "",
    systemPrompt: "",
    tools: { sent: [{}], returned: [] },
    droppedMedia: media,
    extra: {},
  });
});

test("numbers that JavaScript has rounded are judged as they are", async () => {
  await using gateway = await pointGateway({ afterToolResult: patch({ result: { id: 1152921504606846976n, safe: true } }) });
  const args = { id: 2 ** 60 };
  const outcome = await guardToolRun(gateway.client, { toolName: "t", args }, async (_, own) => ({
    value: own,
    result: own,
    success: true,
  }));
  assert.deepEqual(gateway.payloads("beforeToolCall"), [{ tool_name: "t", args: { id: 1152921504606846976n } }]);
  assert.deepEqual(outcome, { kind: "replaced", result: { id: 1152921504606846976n, safe: true }, success: true });
});

for (const what of ["block", "outage", "patch"]) {
  for (const isWrapped of [false, true]) {
    test(`the end of a run within a tool is no failure of the tool: ${what}${isWrapped ? ", wrapped" : ""}`, async () => {
      await using inner = await pointGateway({ beforeResponse: what === "block" ? block("stop", "run") : outage });
      const inside = () =>
        what === "patch" ? Promise.reject(new PatchError("no such tool")) : inner.client.beforeResponse({ content: "" });
      const error = await inside().catch((thrown: unknown) => thrown);
      const thrown = isWrapped ? new Error("the run failed", { cause: error }) : error;
      await using gateway = await pointGateway({ afterToolResult: patch({ result: "redacted" }) });
      const outcome = guardToolRun(gateway.client, { toolName: "t", args: {} }, () => Promise.reject(thrown));
      await assert.rejects(outcome, (rejected) => rejected === thrown);
      assert.deepEqual(gateway.points, ["beforeToolCall"]);
    });
  }
}

test("a block of a step within a tool is a failure of the tool", async () => {
  await using inner = await pointGateway({ beforeResponse: block("not on your plan") });
  const error = await inner.client.beforeResponse({ content: "" }).catch((thrown: unknown) => thrown);
  await using gateway = await pointGateway();
  const outcome = await guardToolRun(gateway.client, { toolName: "t", args: {} }, () => Promise.reject(error));
  assert.deepEqual(outcome, { kind: "failed", error });
  assert.equal(gateway.payloads("afterToolResult")[0]?.["result"], "not on your plan");
});
