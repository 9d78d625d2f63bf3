import assert from "node:assert/strict";
import { test } from "node:test";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { HostError } from "../src/host/index.js";
import { statusDetails } from "../src/status.js";
import { HostStatus } from "../src/testing/host-status.js";

test("the details of a status are read", () => {
  const errorInfo = { reason: "LIMIT", domain: "hookgate", metadata: { a: "1", b: "" } };
  const badRequest = { field: "key", description: "1 to 512 bytes" };
  const details = statusDetails(new HostStatus(status.INVALID_ARGUMENT, "wrong", { errorInfo, badRequest, retryDelayMs: 1500 }));
  assert.deepEqual(details, { errorInfo, badRequest: [badRequest], retryInfo: { retryDelayMs: 1500 }, others: [] });
});

test("details of an unknown type are kept as bytes", () => {
  const metadata = new Metadata();
  const any = [0x0a, 3, ...Buffer.from("t/x"), 0x12, 2, 8, 7];
  metadata.set("grpc-status-details-bin", Buffer.from([0x08, 3, 0x12, 1, 0x61, 0x1a, any.length, ...any]));
  const { others } = statusDetails({ metadata });
  assert.deepEqual(
    others.map(({ typeUrl, value }) => [typeUrl, [...value]]),
    [["t/x", [8, 7]]],
  );
});

test("a status without details, or with malformed ones, has none", () => {
  const metadata = new Metadata();
  metadata.set("grpc-status-details-bin", Buffer.from([0x1a, 200]));
  assert.deepEqual([statusDetails({ metadata }), statusDetails({ metadata: new Metadata() })], [{ others: [] }, { others: [] }]);
});

test("each status becomes a kind of error with its reason", () => {
  const kindOf = (code: status, details = {}) => {
    const error = HostError.fromStatus(new HostStatus(code, "why", details) as ServiceError);
    return [error.kind, error.isUnavailable, error.message];
  };
  const unavailable = ["unavailable", true, "the gateway's host services are unavailable: why"];
  for (const code of [status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.CANCELLED]) assert.deepEqual(kindOf(code), unavailable);
  for (const code of [status.PERMISSION_DENIED, status.UNAUTHENTICATED]) {
    assert.deepEqual(kindOf(code), ["denied", false, "the gateway refused the call: why"]);
  }
  assert.deepEqual(kindOf(status.INVALID_ARGUMENT), ["invalid", false, "invalid call to the gateway: why"]);
  const badRequest = { field: "key", description: "1 to 512 bytes" };
  assert.deepEqual(kindOf(status.INVALID_ARGUMENT, { badRequest }), [
    "invalid",
    false,
    "invalid call to the gateway: `key`: 1 to 512 bytes",
  ]);
  assert.deepEqual(kindOf(status.RESOURCE_EXHAUSTED), ["quota_exceeded", false, "the gateway's storage is full: why"]);
  assert.deepEqual(kindOf(status.RESOURCE_EXHAUSTED, { retryDelayMs: 400 }), ["rate_limited", false, "the gateway dropped the event: why"]);
  assert.deepEqual(kindOf(status.FAILED_PRECONDITION), ["not_a_counter", false, "not a counter: why"]);
  assert.deepEqual(kindOf(status.INTERNAL), ["failed", false, "the gateway's host services failed: INTERNAL: why"]);
});

test("an error says when events are taken again", () => {
  const error = HostError.fromStatus(new HostStatus(status.RESOURCE_EXHAUSTED, "", { retryDelayMs: 400 }) as ServiceError);
  assert.equal(error.retryAfterMs, 400);
});
