import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { type DescEnum, type DescMessage, create, fromBinary, toBinary } from "@bufbuild/protobuf";
import fc from "fast-check";
import * as messages from "../src/agent/messages.js";
import * as gateway from "../src/gen/hookgate/gateway/v1/gateway_pb.js";
import { CancelScopeSchema, DecisionSchema, NoticeKindSchema } from "../src/gen/hookgate/types/v1/types_pb.js";
import { type JsonObject, type JsonValue, parseJson } from "../src/json.js";

/** Any JSON value, as `parseJson` gives it. */
const json = fc.jsonValue({ noUnicodeString: false, maxDepth: 4 }).chain((value) => {
  const parsed = parseJson(JSON.stringify(value));
  return fc.oneof(
    fc.constant(parsed),
    fc.bigInt({ min: 2n ** 53n }).map((id): JsonValue => ({ id, parsed })),
  );
});
const object = json.map((value): JsonObject => ({ value }));
const text = fc.string({ unit: "grapheme" });

/** An object with these members, of which those of `optional` may be absent. */
function objects(required: Record<string, fc.Arbitrary<unknown>>, optional: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<object> {
  return fc.record({ ...required, ...optional }, { requiredKeys: Object.keys(required), noNullPrototype: true });
}

const media = fc.oneof(
  objects({ data: fc.uint8Array(), mimeType: text }, { filename: text }),
  objects({ url: text, mimeType: text }, { filename: text }),
);
const medias = fc.array(media, { minLength: 1, maxLength: 3 });

const tokenUsage = objects({ input: fc.maxSafeNat(), output: fc.maxSafeNat() }, {});

interface Case {
  readonly point: messages.PointMessages<any>;
  readonly request: DescMessage;
  readonly response: DescMessage;
  readonly payload: fc.Arbitrary<object>;
}

const CASES: readonly Case[] = [
  {
    point: messages.beforeLlmRequest,
    request: gateway.BeforeLlmRequestRequestSchema,
    response: gateway.BeforeLlmRequestResponseSchema,
    payload: objects(
      { text },
      { images: medias, files: medias, systemPrompt: text, messages: fc.array(json), tools: fc.array(json), extra: object },
    ),
  },
  {
    point: messages.beforeToolCall,
    request: gateway.BeforeToolCallRequestSchema,
    response: gateway.BeforeToolCallResponseSchema,
    payload: objects({ toolName: text, args: json }, { callId: text, extra: object }),
  },
  {
    point: messages.afterToolResult,
    request: gateway.AfterToolResultRequestSchema,
    response: gateway.AfterToolResultResponseSchema,
    payload: objects(
      { toolName: text, result: json, success: fc.boolean() },
      { args: json, callId: text, durationMs: fc.maxSafeNat(), extra: object },
    ),
  },
  {
    point: messages.beforeResponse,
    request: gateway.BeforeResponseRequestSchema,
    response: gateway.BeforeResponseResponseSchema,
    payload: objects(
      { content: text },
      { reasoning: text, provider: text, model: text, router: text, stopReason: text, extra: object, tokenUsage },
    ),
  },
];

/** Sends the payload as a protobuf message, and gets it back in an answer. */
function throughProto({ point, request, response }: Case, payload: object): object {
  const sent = create(request, point.request.toProto({ context: {}, payload }, "") as never);
  const received = fromBinary(request, toBinary(request, sent)) as unknown as { payload: object };
  return point.answer.fromProto(create(response, { decision: 1, payload: received.payload } as never), "").payload;
}

/** Sends the payload as JSON, and gets it back in an answer. */
function throughJson({ point }: Case, payload: object): object {
  const received = parseJson(point.request.toJson({ context: {}, payload }, "") ?? "") as JsonObject;
  const facts = { modified: true, notices: [], steps: [], plan_digest: "", revision: 1, request_id: "" };
  return point.answer.fromJson({ decision: "continue", payload: received["payload"] ?? null, ...facts }, "").payload;
}

test("every payload survives both forms", () => {
  for (const point of CASES) {
    fc.assert(
      fc.property(point.payload, (payload) => {
        assert.deepEqual(throughProto(point, payload), payload);
        assert.deepEqual(throughJson(point, payload), payload);
      }),
      { numRuns: 300 },
    );
  }
});

test("an answer that lacks a member, or has one of another type, is malformed", () => {
  const step = { plugin: "p", binding: "b", outcome: "continued", duration_us: 1 };
  const notice = { kind: "warn", message: "m" };
  const block = { code: "X", message: "m", scope: "step" };
  const facts = { notices: [notice], steps: [step], plan_digest: "p", revision: 1, request_id: "i" };
  const answer: JsonObject = { decision: "block", payload: { tool_name: "t", args: {} }, modified: false, block, ...facts };
  const { fromJson } = messages.beforeToolCall.answer;
  assert.ok(fromJson(answer, ""));
  const parents: (readonly (string | number)[])[] = [[], ["payload"], ["block"], ["steps", 0], ["notices", 0]];
  for (const path of parents) {
    const inAnswer = (root: JsonObject) => path.reduce<any>((value, key) => value[key], root);
    for (const [name, value] of Object.entries<JsonValue>(inAnswer(answer))) {
      const changed = structuredClone(answer);
      const parent = inAnswer(changed);
      const where = [...path, name].join(".");
      delete parent[name];
      if (name !== "block") assert.throws(() => fromJson(changed, ""), TypeError, `without ${where}`);
      parent[name] = typeof value === "string" ? 1 : "x";
      if (name !== "args") assert.throws(() => fromJson(changed, ""), TypeError, `with a wrong ${where}`);
      parent[name] = null;
      if (name !== "args") assert.throws(() => fromJson(changed, ""), TypeError, `with null as ${where}`);
    }
  }
});

test("no JSON value by chance is an answer", () => {
  fc.assert(
    fc.property(json, (value) => {
      for (const { answer } of [messages.beforeToolCall, messages.runHook, messages.listTools]) {
        assert.throws(() => answer.fromJson(value, ""), TypeError);
      }
    }),
  );
});

test("names of enums are those of the protos, in their order", () => {
  const names = ({ values, sharedPrefix = "" }: DescEnum) =>
    values.map(({ name, number }) => [name.slice(sharedPrefix.length).toLowerCase(), number] as const);
  const step = (outcome: number, reason: number) => create(gateway.StepSchema, { outcome, reason });
  for (const [name, number] of names(gateway.StepOutcomeSchema)) {
    assert.equal(messages.steps.fromProto([step(number, 0)], "")[0]?.outcome, number === 0 ? "unknown" : name);
  }
  for (const [name, number] of names(gateway.StepReasonSchema)) {
    assert.equal(messages.steps.fromProto([step(1, number)], "")[0]?.reason, number === 0 ? undefined : name);
  }
  const answer = (decision: number, scope: number, kind: number) =>
    messages.beforeResponse.answer.fromProto(
      create(gateway.BeforeResponseResponseSchema, { decision, payload: { content: "" }, block: { scope }, notices: [{ kind }] }),
      "",
    );
  for (const [name, number] of names(DecisionSchema)) assert.equal(answer(number, 0, 0).decision, number === 0 ? "unknown" : name);
  for (const [name, number] of names(CancelScopeSchema)) assert.equal(answer(0, number, 0).block?.scope, number === 0 ? "unknown" : name);
  for (const [name, number] of names(NoticeKindSchema))
    assert.equal(answer(0, 0, number).notices[0]?.kind, number === 0 ? "unknown" : name);
});

test("the entry for edge runtimes needs no gRPC and nothing of Node but async_hooks", () => {
  const files = new Set<string>();
  const packages = new Set<string>();
  const visit = (url: URL) => {
    if (files.has(url.href)) return;
    files.add(url.href);
    for (const [, name = ""] of readFileSync(url, "utf8").matchAll(/^(?:import|export) [^;]*?from "([^"]+)"/gm)) {
      if (name.startsWith(".")) visit(new URL(name, url));
      else packages.add(name);
    }
  };
  visit(new URL("../src/agent/fetch.js", import.meta.url));
  assert.ok(files.size > 5);
  assert.deepEqual([...packages].sort(), ["@opentelemetry/api", "lossless-json", "node:async_hooks"]);
  for (const file of files) assert.doesNotMatch(readFileSync(new URL(file), "utf8"), /\b(Buffer|process|require)\b[.(]/, file);
});
