/** What a plugin of Master Mind does wrong must not let anything pass, nor stop other plugins. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { ShutdownOrder } from "../dist/mastermind/shutdown-order.js";
import { DROVER_FORM, MASTER_MIND_FORM, textResultOf } from "../dist/tool-result.js";
import { type PluginClient, RawJson, failure } from "./support/client.js";
import { FIXTURES, type Runner, runnerFailure, startRunner, temporaryFolder, write } from "./support/runner.js";

const FOLDER = `${FIXTURES}/master-mind`;
const LISTEN = ["--listen", "unix:///tmp/never-listens"];

async function serve(t: TestContext, source: string): Promise<{ client: PluginClient; runner: Runner }> {
  const path = write(temporaryFolder(t), "plugin.mjs", source);
  const runner = await startRunner(t, ["--dialect", "mastermind", path]);
  return { client: runner.client("p"), runner };
}

test("a shutdown that never returns doesn't stop the others", async () => {
  const order = new ShutdownOrder(20);
  const over: string[] = [];
  const hangs = order.shutDown(2, "hangs", () => new Promise(() => {}));
  const fails = order.shutDown(1, "fails", async () => Promise.reject(new Error("broken")));
  const works = order.shutDown(0, "works", async () => void over.push("works"));
  await Promise.all([hangs, fails, works]);
  assert.deepEqual(over, ["works"]);
});

test("a configuration starts, and SIGTERM ends the process, although an onShutdown never returns", async (t) => {
  const { client, runner } = await serve(
    t,
    "export default (options) => ({ name: 'p', hooks: { beforeMessage: (m) => m + options.mark, onShutdown: () => new Promise(() => {}) } });",
  );
  const begin = performance.now();
  await client.initialize({ mark: "!" });
  assert.ok(performance.now() - begin < 4000);
  assert.deepEqual((await client.llmRequest({ text: "hi" })).modify, { text: "hi!" });
  assert.equal(await runner.end(), 0);
  assert.equal((await runner.line(/takes too long/)).plugin, "p");
});

test("a result with members beside the text is JSON for a plugin, so that it redacts them all", async (t) => {
  const result = { content: "ok", stderr: "a secret" };
  const seen = (value: object, form = DROVER_FORM) => textResultOf({ result: value, success: true } as never, form);
  assert.deepEqual(seen(result), { content: JSON.stringify(result), isError: false });
  assert.deepEqual(seen({ content: "ok", data: [1] }), { content: "ok", isError: false, data: [1] });
  assert.equal(seen({ content: "ok", data: [1] }, MASTER_MIND_FORM).content, '{"content":"ok","data":[1]}');
  assert.equal(seen({ content: "ok", isError: "a secret" }).content, '{"content":"ok","isError":"a secret"}');
  const runner = await startRunner(t, ["--dialect", "mastermind", `${FOLDER}/kubectl.js`]);
  const client = runner.client("kubectl");
  await client.initialize();
  for (const success of [true, false]) {
    const reply = await client.toolResult("ls", { ...result, isError: !success }, { success });
    assert.match(reply.modify.result as string, /a \[x\]/);
    assert.doesNotMatch(reply.modify.result as string, /secret/);
  }
});

test("a redacted result with other members is still an object", async (t) => {
  const { client } = await serve(
    t,
    `export default { name: "p", hooks: { afterToolExecute: (name, input, { content }) => ({ content: content.replaceAll("secret", "[x]") }) } };`,
  );
  await client.initialize();
  const reply = await client.toolResult("ls", { content: "ok", stderr: "a secret" });
  assert.equal(reply.modify.result, '{"content":"ok","stderr":"a [x]"}');
  const replaced = await client.toolResult("ls", { content: "failed", isError: true }, { success: false });
  assert.equal(replaced.modify.result, '{"content":"failed","isError":false}', "without `isError` it is none");
});

test("a tool gets numbers where the arguments have integers beyond 2^53", async (t) => {
  const { client } = await serve(
    t,
    `export default { name: "p", tools: [{ name: "x", inputSchema: { type: "object" },
      execute: (input) => ({ content: JSON.stringify(input) + typeof input.id }) }] };`,
  );
  await client.initialize();
  const { result } = await client.toolCall("x", new RawJson('{"id":9007199254740993}'), { runTool: true });
  assert.equal(result, '{"content":"{\\"id\\":9007199254740992}number"}');
});

test("a factory may change its options", async (t) => {
  const { client, runner } = await serve(
    t,
    "let made = 0; export default (options) => { made += 1; options.mark = made; return { name: 'p', hooks: { beforeMessage: () => String(made) } }; };",
  );
  await client.initialize();
  assert.deepEqual((await client.llmRequest({ text: "hi" })).modify, { text: "1" }, "the one of the start is used");
  assert.equal(runner.lines().filter(({ level }) => level === "error").length, 0);
});

test("a configuration that is refused is shut down, and one that fails doesn't lose the instance of the start", async (t) => {
  const { client, runner } = await serve(
    t,
    `export default ({ strict, fail }) => {
      if (fail) throw new Error("no key");
      return { name: "p", hooks: { beforeMessage: (m) => m + "!", ...(strict && { beforeToolExecute: () => null }),
        onShutdown: () => console.log("shut down", strict) } };
    };`,
  );
  assert.match((await failure(client.initialize({ fail: true }))).details, /no key/);
  assert.match((await failure(client.initialize({ strict: 1 }))).details, /only with the gateway's configuration/);
  await runner.line(/shut down 1/);
  await runner.line(/shut down undefined/);
});

test("a plugin with both forms of a hook is refused", (t) => {
  const path = write(
    temporaryFolder(t),
    "both.mjs",
    "export default { name: 'both', hooks: { beforeToolExecute: (name, input) => ({ name, input }), beforeToolCall: () => null } };",
  );
  const { status, message } = runnerFailure(["--dialect", "mastermind", path, ...LISTEN]);
  assert.equal(status, 1);
  assert.match(message, /has the hooks `beforeToolExecute` and `beforeToolCall`, which mean the same: leave one of them out/);
});
