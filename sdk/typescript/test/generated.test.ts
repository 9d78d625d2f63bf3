import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";

test("generated code in git equals what the .proto files generate", () => {
  const { status, stderr } = spawnSync(process.execPath, ["generate.mjs", "--check"], { encoding: "utf8" });
  assert.equal(status, 0, stderr);
});
