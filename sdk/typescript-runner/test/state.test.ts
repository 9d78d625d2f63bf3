import assert from "node:assert/strict";
import { test } from "node:test";
import { BoundedMap } from "../dist/bounded-map.js";
import { exactIntegers, plainNumbers } from "../dist/numbers.js";

test("state is bounded: the entry that was unused for the longest is dropped, and an idle one too", () => {
  let now = 0;
  const dropped: string[] = [];
  const map = new BoundedMap<string, string>(
    2,
    100,
    (value) => dropped.push(value),
    () => now,
  );
  map.set("a", "A");
  map.set("b", "B");
  assert.equal(map.get("a"), "A");
  map.set("c", "C");
  assert.deepEqual([dropped, map.get("b"), map.size], [["B"], undefined, 2]);
  now = 60;
  map.get("a");
  now = 110;
  assert.deepEqual([map.get("a"), map.get("c"), dropped], ["A", undefined, ["B", "C"]]);
  assert.equal(map.take("a"), "A");
  assert.deepEqual([map.size, dropped.length], [0, 2], "what is taken isn't dropped");
  map.set("d", "D");
  map.set("d", "E");
  map.clear();
  assert.deepEqual(dropped.slice(2), ["D", "E"]);
});

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
