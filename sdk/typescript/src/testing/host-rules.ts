/** The ranges of requests to the gateway's storage (`host.proto`). */
import { status } from "@grpc/grpc-js";
import type { Operation } from "../gen/hookgate/host/v1/host_pb.js";
import { HostStatus } from "./host-status.js";

/** Counters stay between minus this and this. */
export const MAX_COUNTER = 2n ** 53n;
const MAX_KEY_BYTES = 512;
const MAX_VALUE_BYTES = 64 << 10;
const MAX_PERIOD_MS = 366n * 24n * 60n * 60n * 1000n;
const MAX_OPERATIONS = 32;

/** One change. */
export type WireOperation = Exclude<Operation["operation"], { case: undefined }>;

/** Throws INVALID_ARGUMENT with the field unless it is right. */
export function check(isRight: boolean, field: string, description: string): void {
  if (!isRight) throw new HostStatus(status.INVALID_ARGUMENT, "a field is outside its range", { badRequest: { field, description } });
}

export function checkKeys(keys: readonly string[]): void {
  const isKey = (key: string) => key !== "" && Buffer.byteLength(key) <= MAX_KEY_BYTES && !/\p{Cc}/u.test(key);
  check(keys.every(isKey), "key", "1 to 512 bytes, no control characters");
}

export function checkOperation(operation: WireOperation): void {
  checkKeys([operation.value.key]);
  switch (operation.case) {
    case "put":
      check(operation.value.value.length <= MAX_VALUE_BYTES, "value", "at most 64 KiB");
      checkPeriod("ttl_ms", operation.value.ttlMs);
      break;
    case "delete":
      check(operation.value.expectedVersion !== 0n, "expected_version", "at least 1");
      break;
    case "add":
      checkCounter("delta", operation.value.delta);
      checkCounter("limit", operation.value.limit ?? 0n);
      checkPeriod("window_ms", operation.value.windowMs);
  }
}

/** The operations of a transaction. */
export function checkOperations(operations: readonly Operation[]): WireOperation[] {
  check(operations.length >= 1 && operations.length <= MAX_OPERATIONS, "operations", "1 to 32 operations");
  const checked = operations.map(({ operation }) => {
    check(operation.case !== undefined, "operations", "each a put, a delete or an add");
    return operation as WireOperation;
  });
  check(new Set(checked.map(({ value }) => value.key)).size === checked.length, "operations", "each on another key");
  for (const operation of checked) checkOperation(operation);
  return checked;
}

function checkPeriod(field: string, ms: bigint | undefined): void {
  check(ms === undefined || (ms >= 1n && ms <= MAX_PERIOD_MS), field, `1 to ${MAX_PERIOD_MS} milliseconds`);
}

function checkCounter(field: string, value: bigint): void {
  check(value >= -MAX_COUNTER && value <= MAX_COUNTER, field, "between -2^53 and 2^53");
}
