import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { globToRegExp } from "../src/testing/glob.js";

test("globs match as the gateway's do", () => {
  // From the compiled file in build/test.
  const table = readFileSync(new URL("../../../../glob/table.json", import.meta.url), "utf8");
  for (const [glob, value, expected] of JSON.parse(table) as [string, string, boolean][]) {
    assert.equal(globToRegExp(glob).test(value), expected, `${glob} on ${value}`);
  }
  for (const [glob, fault] of [
    ["", /empty/],
    ["fs[", /without its `\]`/],
    ["a[]", /without its/],
    ["[!", /without its/],
    ["[z-a]", /`z-a`, which is the wrong way round/],
  ] as const) {
    assert.throws(() => globToRegExp(glob), fault, glob);
  }
});
