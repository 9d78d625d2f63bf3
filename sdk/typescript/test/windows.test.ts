import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import {
  type BeforeResponsePatch,
  type BeforeResponsePayload,
  type Notice,
  type ProceedOptions,
  type Reply,
  type ResponseWindow,
  cancel,
  definePlugin,
  proceed,
} from "../src/index.js";
import { TestPlugin } from "../src/testing/index.js";

const base = { name: "p", version: "1.0.0" };
const KEY = "\u{1f511}";
const WINDOW: ResponseWindow = { seq: 0, before: "", offset: 0, last: false };

type Judge = (call: BeforeResponsePayload) => Reply<BeforeResponsePatch>;

function started(judge: Judge, access: "read" | "modify" = "modify"): Promise<TestPlugin> {
  return TestPlugin.start(definePlugin({ ...base, points: { beforeResponse: { access, windows: true } }, beforeResponse: judge }), {});
}

function fails(message: RegExp | string, code = "INTERNAL"): object {
  return { code, message };
}

/** Consumes words, and replaces those with digits. */
function hideDigits({ content, window }: BeforeResponsePayload): Reply<BeforeResponsePatch> {
  const isEnd = window === undefined || window.last;
  const consumed = isEnd ? content.length : content.lastIndexOf(" ") + 1;
  return proceed({ content: content.slice(0, consumed).replaceAll(/\S*\d\S*/g, "#") }, { consumed });
}

test("windows are refused where there can be none", () => {
  const handlers = { beforeToolCall: () => proceed(), beforeResponse: () => proceed() };
  for (const [points, message] of [
    [{ beforeToolCall: { windows: true as never } }, /^`points.beforeToolCall.windows`: only beforeResponse has windows$/],
    [{ beforeResponse: { windows: true, reads: ["reasoning"] } }, /^`points.beforeResponse.windows` needs `content`: add it to `reads`$/],
    [{ beforeResponse: { windows: "yes" as never } }, /^`points.beforeResponse.windows` must be true or false$/],
  ] as const) {
    assert.throws(() => definePlugin({ ...base, ...handlers, points }), { name: "TypeError", message });
  }
  const hooks = { recall: { windows: true } } as never;
  assert.throws(() => definePlugin({ ...base, hooks, onHook: (() => undefined) as never }), /`hooks.recall.windows`: only beforeResponse/);
  definePlugin({ ...base, ...handlers, points: { beforeResponse: { windows: true, reads: ["content"] }, beforeToolCall: {} } });
});

test("a handler sees its window and says how much it consumed", async () => {
  const seen: (ResponseWindow | undefined)[] = [];
  const plugin = await started(({ window }) => {
    seen.push(window);
    return proceed({ content: "J" }, { consumed: 3, notices: [{ kind: "info", message: "n" }] });
  });
  const window = { seq: 3, before: `${KEY} `, offset: 1_000_000, last: false };
  const reply = await plugin.beforeResponse({ content: `${KEY}é?` }, { window });
  assert.deepEqual([reply.consumed, reply.patch, reply.notices.length], [3, { content: "J" }, 1]);
  const whole = await plugin.beforeResponse({ content: "abc" });
  assert.deepEqual([whole.consumed, whole.patch], [3, { content: "J" }]);
  assert.deepEqual(seen, [window, undefined]);
  // The rest of a whole answer would pass unjudged.
  await assert.rejects(
    plugin.beforeResponse({ content: "abcd" }),
    fails(/`consumed` is 3, but nothing follows: all must go on, the length 4$/),
  );
});

test("without a word about it, all of a window goes on", async () => {
  const reply = async (options: ProceedOptions) =>
    (await started(() => proceed({}, options))).beforeResponse({ content: "text" }, { window: {} });
  assert.equal((await reply({})).consumed, undefined);
  assert.equal((await reply({ consumed: undefined })).consumed, undefined);
  assert.equal((await reply({ consumed: 0 })).consumed, 0);
});

test("a plugin with access `read` may consume, as `{}` changes nothing", async () => {
  const plugin = await started(() => proceed({}, { consumed: 1 }), "read");
  assert.equal((await plugin.beforeResponse({ content: "ab" }, { window: {} })).consumed, 1);
});

test("a count that a gateway would refuse is an error", async () => {
  const kib = 1024;
  for (const [content, last, consumed, message] of [
    ["Füße", false, 5, "`consumed` is 5, but `content` has only the length 4"],
    ["Füße", true, 3, "`consumed` is 3, but nothing follows: all must go on, the length 4"],
    ["Füße", false, -1, /^`consumed` must be a length, as of `content.slice\(0, consumed\)`, not -1$/],
    ["Füße", false, 0.5, /not 0.5$/],
    ["Füße", false, "1", /not 1$/],
    ["Füße", false, null, /not null$/],
    [`a${KEY}b`, false, 2, "`consumed` is 2, which splits a character of two UTF-16 units"],
    [`a${KEY}`, true, 2, "`consumed` is 2, which splits a character of two UTF-16 units"],
    [KEY.repeat(17 * kib), false, 2 * kib - 2, /which leaves 65540 bytes of `content` to come again, 65536 are allowed$/],
  ] as const) {
    const plugin = await started(() => proceed({}, { consumed: consumed as number }));
    await assert.rejects(plugin.beforeResponse({ content }, { window: { last } }), fails(message));
  }
  const plugin = await started(() => proceed({}, { consumed: 2 * kib }));
  const reply = await plugin.beforeResponse({ content: KEY.repeat(17 * kib) }, { window: WINDOW });
  assert.equal(reply.consumed, 2 * kib, "the rest may have 64 KiB");
});

test("`consumed` is refused at other points", async () => {
  const plugin = await TestPlugin.start(definePlugin({ ...base, beforeToolCall: () => proceed({}, { consumed: 1 }) }), {});
  await assert.rejects(plugin.beforeToolCall({ toolName: "t" }), fails("`consumed` is only for beforeResponse, not for beforeToolCall"));
});

test("a plugin that offers no windows gets none", async () => {
  const plugin = await TestPlugin.start(definePlugin({ ...base, beforeResponse: () => proceed() }), {});
  const refused = fails("`call.window`: the plugin doesn't offer `windows`", "INVALID_ARGUMENT");
  await assert.rejects(plugin.beforeResponse({ content: "part" }, { window: {} }), refused);
  await assert.rejects(plugin.beforeResponseInWindows(["part"]), refused);
  assert.equal((await plugin.beforeResponse({ content: "all" })).cancelled, undefined);
});

test("cuts don't matter to a plugin that is exact", async () => {
  const plugin = await started(hideDigits);
  const text = `Zimmer 4b, ${KEY} 0815\u{1f600} und Füße.`;
  const expected = `Zimmer # ${KEY} # und Füße.`;
  assert.deepEqual((await plugin.beforeResponse({ content: text })).patch, { content: expected });
  const characters = [...text];
  for (let first = 0; first <= characters.length; first += 1) {
    for (let second = first; second <= characters.length; second += 1) {
      const cuts = [characters.slice(0, first), characters.slice(first, second), characters.slice(second)];
      const answer = await plugin.beforeResponseInWindows(cuts.map((piece) => piece.join("")));
      assert.deepEqual(answer, { content: expected, reasoning: undefined, cancelled: undefined, notices: [] });
    }
  }
  assert.equal((await plugin.beforeResponseInWindows(text)).content, expected, "a character at a time");
});

test("whatever a handler consumes, all of the text goes out once", async () => {
  const text = fc.string({ unit: "grapheme", maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(fc.array(text, { maxLength: 5 }), fc.nat(), async (pieces, seed) => {
      const plugin = await started(({ content, window }) => {
        const characters = [...content];
        const count = window?.last ? characters.length : (seed + (window?.seq ?? 0)) % (characters.length + 1);
        return proceed({}, { consumed: characters.slice(0, count).join("").length });
      });
      assert.equal((await plugin.beforeResponseInWindows(pieces)).content, pieces.join(""));
    }),
    { numRuns: 200 },
  );
});

test("windows show the rest with more behind it", async () => {
  const seen: [string, ResponseWindow | undefined][] = [];
  const plugin = await started((call) => {
    seen.push([call.content, call.window]);
    return hideDigits(call);
  });
  const answer = await plugin.beforeResponseInWindows([`${KEY} 1`, "2 is", " free", ""]);
  assert.equal(answer.content, `${KEY} # is free`);
  assert.deepEqual(seen, [
    [`${KEY} 1`, WINDOW],
    ["12 is", { seq: 1, before: `${KEY} `, offset: 2, last: false }],
    ["is free", { seq: 2, before: `${KEY} 12 `, offset: 5, last: false }],
    ["free", { seq: 3, before: `${KEY} 12 is `, offset: 8, last: true }],
  ]);
});

test("`before` has the last 1,024 consumed characters", async () => {
  const seen: ResponseWindow[] = [];
  const plugin = await started(({ window }) => {
    seen.push(window!);
    return proceed({ content: "" });
  });
  assert.equal((await plugin.beforeResponseInWindows([`a${KEY.repeat(1022)}`, "b", `c${KEY}`, "d"])).content, "");
  assert.deepEqual(
    seen.map(({ before, offset }) => [[...before].length, offset]),
    [
      [0, 0],
      [1023, 1023],
      [1024, 1024],
      [1024, 1026],
    ],
  );
  assert.equal(seen[2]!.before, `a${KEY.repeat(1022)}b`);
  assert.equal(seen[3]!.before, `${KEY.repeat(1021)}bc${KEY}`);
});

test("a cancel stops the answer after what went out", async () => {
  const plugin = await started(({ content }) => {
    const notices: Notice[] = [{ kind: "info", message: content }];
    return content.includes("bad") ? cancel("SEEN", "no", { notices }) : proceed({}, { notices });
  });
  const answer = await plugin.beforeResponseInWindows(["good ", "bad ", "never seen"]);
  assert.deepEqual([answer.content, answer.cancelled?.code], ["good ", "SEEN"]);
  assert.deepEqual(
    answer.notices.map(({ message }) => message),
    ["good ", "bad "],
  );
});

test("reasoning is in the first window, and the usage in the last", async () => {
  const seen: unknown[] = [];
  const plugin = await started(({ reasoning, model, tokenUsage, stopReason }) => {
    seen.push([reasoning, model, tokenUsage, stopReason]);
    return reasoning === undefined ? proceed() : proceed({ reasoning: "hidden" });
  });
  const tokenUsage = { input: 1, output: 2 };
  const answer = await plugin.beforeResponseInWindows(["a", "b"], { reasoning: "why", model: "m", tokenUsage, stopReason: "stop" });
  assert.deepEqual(seen, [
    ["why", "m", undefined, undefined],
    [undefined, "m", tokenUsage, "stop"],
  ]);
  assert.deepEqual([answer.content, answer.reasoning], ["ab", "hidden"]);
  const passed = await (await started(() => proceed())).beforeResponseInWindows(["a"], { reasoning: "why" });
  assert.equal(passed.reasoning, "why");
});

test("an empty answer is one window, a bad reply ends it, and a piece has whole characters", async () => {
  const seen: (ResponseWindow | undefined)[] = [];
  const plugin = await started(({ window }) => {
    seen.push(window);
    return proceed({}, { consumed: 0 });
  });
  assert.equal((await plugin.beforeResponseInWindows([])).content, "");
  assert.deepEqual(seen, [{ ...WINDOW, last: true }]);
  await assert.rejects(plugin.beforeResponseInWindows(["a", "b"]), fails(/nothing follows: all must go on, the length 2$/));
  await assert.rejects(
    plugin.beforeResponseInWindows(["a", KEY.slice(0, 1), KEY.slice(1)]),
    /^TypeError: the piece 1 has half of a character/,
  );
});
