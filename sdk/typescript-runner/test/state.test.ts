import assert from "node:assert/strict";
import { test } from "node:test";
import { exactIntegers, plainNumbers } from "../dist/numbers.js";

test("integers beyond 2^53 are numbers for a plugin, and exact again afterwards", () => {
  const one = 9007199254740993n;
  const other = 9007199254740992n;
  const plain = plainNumbers({ list: [one, 1.5, null], text: "x" });
  assert.equal(JSON.stringify(plain), '{"list":[9007199254740992,1.5,null],"text":"x"}');
  assert.deepEqual(exactIntegers({ moved: Number(one) }, [one]), { moved: one });
  assert.deepEqual(exactIntegers([Number(one), Number(other)], [one, other]), [one, other], "by their place");
  assert.deepEqual(exactIntegers({ moved: Number(one) }, [one, other]), { moved: Number(one) }, "ambiguous: the SDK refuses it");
  assert.deepEqual(exactIntegers({ a: new Date(0) }, [one]), { a: new Date(0) });
});
