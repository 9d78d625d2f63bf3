import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type PluginClient, failure } from "./support/client.js";
import { FIXTURES, type Runner, runnerFailure, startRunner, temporaryFolder, write } from "./support/runner.js";

const FOLDER = `${FIXTURES}/master-mind`;
const LISTEN = ["--listen", "unix:///tmp/never-listens"];

async function serve(
  t: TestContext,
  module: string,
  plugin: string,
  more: readonly string[] = [],
): Promise<{ client: PluginClient; runner: Runner }> {
  const runner = await startRunner(t, ["--dialect", "mastermind", `${FOLDER}/${module}`, ...more]);
  const client = runner.client(plugin);
  await client.initialize();
  return { client, runner };
}

function messages(runner: Runner): string[] {
  return runner
    .lines()
    .filter(({ level, tenant }) => level === "info" && tenant === undefined)
    .map(({ message }) => message as string)
    .filter((message) => !message.startsWith("plugin "));
}

test("M1, M8: a factory is served with its options, and rewrites messages", async (t) => {
  const { client, runner } = await serve(t, "audit-logger.ts", "audit-logger", ["--options", '{"label":"mine"}']);
  const manifest = await client.call("describe", {});
  assert.deepEqual([manifest.version, manifest.points.length, manifest.hooks.map(({ hook }) => hook)], ["1.2.0", 2, ["turn_end"]]);
  assert.deepEqual((await client.llmRequest({ text: "hello" })).modify, { text: "hello [A]" });
  await runner.line(/mine init/);
});

test("M1: an object is served", async (t) => {
  const { client } = await serve(t, "kubectl.js", "kubectl");
  assert.equal((await client.toolCall("ls", {})).verdict, "continue");
});

test("M2, M3: a list is served in its order: relative to its folder, with options, without the disabled ones", async (t) => {
  for (const [args, options] of [
    [[`${FOLDER}/master-mind.plugins.ts`], { cwd: "/" }],
    [[], { env: { MASTER_MIND_PLUGIN_CONFIG: `${FOLDER}/master-mind.plugins.ts` }, cwd: "/" }],
    [[], { cwd: FOLDER }],
  ] as const) {
    const runner = await startRunner(t, ["--dialect", "mastermind", ...args], options);
    assert.deepEqual(messages(runner), [
      "kubectl init",
      '{"content":"Unknown tool: missing","isError":true}',
      "listed init, tools: kubectl,added",
    ]);
    assert.deepEqual((await runner.client("audit-logger").call("describe", {})).name, "audit-logger");
  }
});

test("M2: a list may be the member `plugins` of an object", async (t) => {
  const folder = temporaryFolder(t);
  const list = write(folder, "list.mjs", `export default { plugins: [{ path: "${FOLDER}/kubectl.js" }] };`);
  await (await startRunner(t, ["--dialect", "mastermind", list])).client("kubectl").initialize();
});

test("M6, M7: plugins are initialised in their order and shut down in the reverse one, whatever fails", async (t) => {
  const runner = await startRunner(t, ["--dialect", "mastermind", `${FOLDER}/master-mind.plugins.ts`]);
  // As gateways do, in another order than the list's.
  for (const name of ["audit-logger", "kubectl"]) await runner.client(name).initialize();
  assert.equal(messages(runner).filter((message) => message.includes("init")).length, 2, "once each");
  assert.equal(await runner.end(), 0);
  assert.deepEqual(messages(runner).slice(-2), ["listed shutdown", "kubectl shutdown"]);
});

test("M6: a factory gets the gateway's configuration over its options, and onInit again", async (t) => {
  const { client, runner } = await serve(t, "audit-logger.ts", "audit-logger", ["--options", '{"label":"a"}']);
  const other = runner.client("audit-logger");
  other.digest = "other";
  await other.initialize({ label: "b" });
  await runner.line(/b init/);
  await other.response({ content: "done", stopReason: "stop" });
  await runner.line(/b response done stop/);
  await client.hook("turn_end", { messages: [{ role: "assistant", content: [{ text: "do" }, { text: "ne" }] }], outcome: "ended" });
  await runner.line(/a response done ended/);
  await client.call("shutdown", { gatewayInstanceId: "g" });
  await runner.line(/a shutdown/);
  await runner.line(/b shutdown/);
});

test("M4, M5, M6, M18: what keeps Master Mind from starting keeps the runner from starting", (t) => {
  const folder = temporaryFolder(t);
  write(
    folder,
    "a.mjs",
    "export default { name: 'a', tools: [{ name: 'x', description: '', inputSchema: { type: 'object' }, execute() {} }] };",
  );
  write(
    folder,
    "b.mjs",
    "export default { name: 'b', tools: [{ name: 'x', description: '', inputSchema: { type: 'object' }, execute() {} }] };",
  );
  write(
    folder,
    "init.mjs",
    "export default { name: 'init', hooks: { beforeMessage: (m) => m, onInit() { throw new Error('no key'); } } };",
  );
  write(folder, "number.mjs", "export default 5;");
  write(folder, "nameless.mjs", "export default () => ({ hooks: {} });");
  write(folder, "empty.mjs", "export default { name: 'empty' };");
  write(folder, "text.mjs", "export default { name: 'text', hooks: { beforeMessage: 'x' } };");
  write(folder, "schema.mjs", "export default { name: 's', tools: [{ name: 'x', inputSchema: { type: 'string' }, execute() {} }] };");
  for (const [modules, expected] of [
    [["a.mjs", "a.mjs"], /two plugins have the name 'a'/],
    [["a.mjs", "b.mjs"], /plugin 'b' has the tool x, and so has 'a': set `replace: true`/],
    [["missing.mjs"], /missing\.mjs doesn't exist/],
    [["number.mjs"], /must export a plugin or a function that returns one/],
    [["nameless.mjs"], /has no `name`/],
    [["empty.mjs"], /has neither tools nor a hook/],
    [["text.mjs"], /a hook `beforeMessage` that must be a function, and is string/],
    [["schema.mjs"], /`inputSchema` of the tool x must be a JSON Schema with the type `object`/],
    [["init.mjs"], /plugin 'init' failed in `onInit`: no key/],
  ] as [string[], RegExp][]) {
    const { status, message, stdout } = runnerFailure([
      "--dialect",
      "mastermind",
      ...modules.map((module) => `${folder}/${module}`),
      ...LISTEN,
    ]);
    assert.match(message, expected);
    assert.deepEqual([status, stdout], [1, ""]);
  }
});

test("M17, M18: with replace a later plugin has the tool, and the earlier one doesn't any more", async (t) => {
  const folder = temporaryFolder(t);
  write(
    folder,
    "other.mjs",
    "export default { name: 'other', tools: [{ name: 'kubectl', inputSchema: { type: 'object' }, execute: () => ({ content: 'other' }) }] };",
  );
  const list = write(folder, "list.mjs", `export default [{ path: "${FOLDER}/kubectl.js" }, { path: "./other.mjs", replace: true }];`);
  const runner = await startRunner(t, ["--dialect", "mastermind", list]);
  const toolsOf = async (name: string) => (await runner.client(name).initialize()).tools.map((tool) => tool.name);
  assert.deepEqual([await toolsOf("kubectl"), await toolsOf("other")], [["added"], ["kubectl"]]);
});

test("M17, M19: tools are described and run, and their failures are for the model", async (t) => {
  const { client } = await serve(t, "kubectl.js", "kubectl");
  const { tools } = await client.initialize();
  assert.deepEqual(
    tools.map(({ name, description }) => [name, description]),
    [
      ["kubectl", "Runs kubectl."],
      ["added", "added"],
    ],
  );
  assert.deepEqual(JSON.parse(Buffer.from(tools[0]?.inputSchema ?? []).toString()).required, ["args"]);
  const run = (args: unknown, tool = "kubectl") => client.toolCall(tool, args, { runTool: true });
  assert.equal((await run({ args: "get pods" })).result, '{"content":"ran get pods","runs":1}');
  assert.deepEqual(await run({ args: "fail" }), {
    verdict: "cancel",
    code: "TOOL_FAILED",
    message: "not found",
    result: undefined,
    modify: {},
    notices: [],
  });
  assert.equal((await run({ args: "throw" })).message, "Tool execution error: no cluster");
  assert.equal((await run({}, "added")).result, '{"content":"added"}');
  assert.equal((await failure(run({}, "unknown"))).code, 5, "NOT_FOUND");
});

test("M11, M12, M13, M16: a tool call is rewritten, renamed or blocked, and a throw is the tool's error", async (t) => {
  const { client } = await serve(t, "kubectl.js", "kubectl");
  assert.deepEqual((await client.toolCall("ls", { a: 1 })).modify, { args: '{"a":1,"checked":true}' });
  assert.deepEqual((await client.toolCall("bash", { command: "ls" })).modify, {
    toolName: "BASH",
    args: '{"command":"ls","checked":true}',
  });
  const blocked = await client.toolCall("bash", { command: "rm -rf /" });
  assert.deepEqual([blocked.code, blocked.message], ["TOOL_NOT_ALLOWED", "Tool execution blocked by plugin for tool: bash"]);
  const broken = await client.toolCall("throw", {});
  assert.deepEqual([broken.verdict, broken.code, broken.message], ["cancel", "TOOL_FAILED", "Tool execution error: hook broke"]);
  assert.match((await client.toolCall("nothing", {})).message ?? "", /beforeToolExecute returned no tool call: return null to block it/);
  assert.deepEqual((await failure(client.toolCall("ls", "text"))).code, 3, "INVALID_ARGUMENT: not an object");
});

test("M14: a result is rewritten in the agent's own form", async (t) => {
  const { client } = await serve(t, "kubectl.js", "kubectl");
  const options = { args: { a: 1 } };
  assert.equal((await client.toolResult("ls", "a secret", options)).modify.result, '"a [x] (ls {\\"a\\":1})"');
  const object = await client.toolResult("ls", { content: "secret", isError: false }, options);
  assert.deepEqual(JSON.parse(object.modify.result as string), { content: '[x] (ls {"a":1})', isError: false });
  assert.equal((await client.toolResult("ls", { rows: ["secret"] })).modify.result, '"{\\"rows\\":[\\"[x]\\"]} (ls {})"');
  const broken = await client.toolResult("ls", "throw");
  assert.deepEqual([broken.verdict, broken.message], ["cancel", "Tool execution error: after broke"]);
});

test("M15: plugins aren't asked about a tool that threw, but about one that returned an error", async (t) => {
  const { client } = await serve(t, "kubectl.js", "kubectl");
  assert.deepEqual((await client.toolResult("ls", "ENOENT secret", { success: false })).modify, {});
  const returned = await client.toolResult("ls", { content: "a secret", isError: true }, { success: false });
  assert.deepEqual(JSON.parse(returned.modify.result as string), { content: "a [x] (ls {})", isError: true });
});

test("M24: the newer form has events with an id and a duration, and tools of Mastra", async (t) => {
  const { client } = await serve(t, "newer.ts", "newer");
  assert.equal((await client.toolCall("bash", {})).verdict, "cancel");
  assert.deepEqual((await client.toolCall("ls", { a: 1 }, { callId: "c-1" })).modify, { args: '{"a":1,"id":"c-1"}' });
  assert.equal((await client.toolResult("ls", "done", { callId: "c-1" })).modify.result, '"done c-1 0"');
  assert.equal((await client.toolCall("weather", { city: "Oslo" }, { runTool: true })).result, '{"city":"Oslo","degrees":20}');
  assert.match((await client.toolCall("weather", {}, { runTool: true })).message ?? "", /The arguments are wrong: field `city`/);
});

test("M22, M23: Bun serves a list in TypeScript, and what it prints goes to stderr with the plugin's name", async (t) => {
  const runner = await startRunner(t, ["--dialect", "mastermind", `${FOLDER}/master-mind.plugins.ts`], { bun: true });
  const client = runner.client("audit-logger");
  await client.initialize();
  assert.deepEqual((await client.llmRequest({ text: "hello" })).modify, { text: "hello [A]" });
  assert.equal((await runner.line(/listed init/)).plugin, "audit-logger");
  assert.equal(await runner.end(), 0);
  assert.equal(runner.stdout(), "");
  assert.deepEqual(messages(runner).slice(-2), ["listed shutdown", "kubectl shutdown"]);
});

test("a hook that only the gateway's configuration adds is refused, because it would never be called", async (t) => {
  const path = write(
    temporaryFolder(t),
    "optional.mjs",
    `
    export default ({ strict }) => ({
      name: "optional",
      tools: strict ? [{ name: "more", inputSchema: { type: "object" }, execute: () => ({ content: "" }) }] : [],
      hooks: { beforeMessage: (m) => m, ...(strict === 1 && { beforeToolExecute: () => null }) },
    });`,
  );
  const client = (await startRunner(t, ["--dialect", "mastermind", path])).client("optional");
  assert.match(
    (await failure(client.initialize({ strict: 1 }))).details,
    /answers at beforeToolCall only with the gateway's configuration/,
  );
  assert.match(
    (await failure(client.initialize({ strict: 2 }))).details,
    /has the tool more only with the gateway's configuration: list it in .*`tool_names`/,
  );
});
