import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { JsonError, parseJson, writeJson } from "../src/json.js";

test("integers beyond 2^53 survive wherever they are", () => {
  const text = '{"id":9007199254740993,"list":[-12345678901234567890123,0],"o":{"n":18446744073709551615},"s":"9007199254740993"}';
  assert.equal(writeJson(parseJson(text)), text);
  assert.equal((parseJson(text) as { id: unknown }).id, 9007199254740993n);
});

test("floats keep their value, and integers that are written as floats too", () => {
  for (const text of ["1e300", "-1.5E-7", "0.1", "123456789012.25", "1e21", "-0.0"]) {
    assert.equal(Number(writeJson(parseJson(text))), Number(text), text);
  }
  assert.equal(writeJson(parseJson("1e20")), "100000000000000000000");
});

test("a number with a fraction or an exponent is a double, also beyond 2^53", () => {
  assert.deepEqual(parseJson("[9007199254740993.0,1.2345678901234567e16,12345678901234567.5]"), [
    9007199254740992n,
    12345678901234568n,
    12345678901234568n,
  ]);
});

test("long digits in a string don't matter", () => {
  const text = JSON.stringify({ "4111111111111111": 'a "4111111111111111": 9007199254740993 \\', n: 1 });
  assert.deepEqual(parseJson(text), JSON.parse(text));
});

test("a number that JavaScript has rounded is refused by its path", () => {
  const rounded = JSON.parse('{"a":[{"id":9007199254740993}]}');
  const expected = "args.a[0].id is 9007199254740992, an integer beyond 2^53 that JavaScript may have rounded: use a BigInt";
  assert.throws(() => writeJson(rounded, "args"), new JsonError(expected));
  assert.throws(() => writeJson({ n: NaN }, "args"), /args\.n is NaN/);
});

test("strings and names of members are made well-formed", () => {
  assert.equal(writeJson({ "\ud83d": "a\udca9b" }), '{"\ufffd":"a\ufffdb"}');
});

test("values without a JSON form are refused or left out as JSON.stringify does", () => {
  assert.equal(
    writeJson({ a: undefined, b: [undefined], c: Array(1), d: new Date(0) }),
    '{"b":[null],"c":[null],"d":"1970-01-01T00:00:00.000Z"}',
  );
  assert.throws(() => writeJson(undefined, "args"), /args is undefined/);
  const circle: unknown[] = [];
  circle.push(circle);
  assert.throws(() => writeJson(circle, "args"), /deeper than 64 levels/);
});

test("what isn't JSON is refused", () => {
  for (const text of ["", "{", "1 2", '{"a":9007199254740993,}', "[1e]", "NaN"]) {
    assert.throws(() => parseJson(text), JsonError, text);
  }
  assert.throws(() => parseJson(new Uint8Array([0x22, 0xff, 0x22])), JsonError);
});

test("every JSON text keeps its value", () => {
  const value = fc.jsonValue({ noUnicodeString: false, maxDepth: 6 });
  fc.assert(
    fc.property(value, fc.bigInt(), (json, large) => {
      const text = `{"large":${large},"json":${JSON.stringify(json)},"e":1e3}`;
      const parsed = parseJson(text) as { large: number | bigint; json: unknown };
      assert.equal(BigInt(parsed.large), large);
      const written = parseJson(writeJson(parsed));
      assert.deepEqual(written, parsed);
    }),
    { numRuns: 2000 },
  );
});
