import assert from "node:assert/strict";
import { test } from "node:test";
import { failure } from "./support/client.js";
import { FIXTURES, runnerFailure, startRunner, temporaryFolder, write } from "./support/runner.js";

const AGENT_DIR = `$${"{{dexto.agent_dir}}"}`;
const LISTEN = ["--listen", "unix:///tmp/never-listens"];

test("D39, D6: each mistake in a class has Dexto's code", (t) => {
  const folder = temporaryFolder(t);
  write(folder, "package.json", JSON.stringify({ type: "module" }));
  const cases: [string, string, RegExp][] = [
    ["no-default", "export class A { beforeToolCall() {} }", /^PLUGIN_INVALID_SHAPE: plugin 'no-default' at '.*' has no default export/],
    [
      "no-class",
      "export default { beforeToolCall() {} }",
      /^PLUGIN_INVALID_SHAPE: plugin 'no-class' must export a class by default, not object/,
    ],
    [
      "no-object",
      "export default class { constructor() { throw new Error('boom'); } beforeToolCall() {} }",
      /^PLUGIN_INSTANTIATION_FAILED: .*boom/,
    ],
    ["no-point", "export default class { initialize() {} }", /^PLUGIN_INVALID_SHAPE: .* needs a method for at least one point/],
    [
      "no-method",
      "export default class { initialize = 1; beforeToolCall() {} }",
      /^PLUGIN_INVALID_SHAPE: .*`initialize` that must be a method, and is number/,
    ],
    [
      "no-cleanup",
      "export default class { cleanup = 'x'; beforeToolCall() {} }",
      /^PLUGIN_INVALID_SHAPE: .*`cleanup` that must be a method, and is string/,
    ],
    ["no-module", "import './missing.js';", /^PLUGIN_LOAD_FAILED: plugin 'no-module' can't be loaded from/],
  ];
  for (const [name, source, expected] of cases) {
    const { status, message, stdout } = runnerFailure(["--dialect", "dexto", write(folder, `${name}.js`, source), ...LISTEN]);
    assert.match(message, expected);
    assert.deepEqual([status, stdout], [1, ""]);
  }
});

test("D36: a relative path of a module in a file is refused with a hint", (t) => {
  const file = write(temporaryFolder(t), "runner.yaml", "plugins: [{ dialect: dexto, module: ./plugins/a.ts }]");
  const { status, message } = runnerFailure([file, ...LISTEN]);
  assert.equal(status, 1);
  assert.match(
    message,
    /PLUGIN_CONFIGURATION_INVALID: `module`: .* must be absolute, and `.\/plugins\/a.ts` isn't: .*`\$\{\{dexto.agent_dir\}\}\/plugins\/a.ts`/,
  );
});

test("D37: the template dexto.agent_dir stands for the agent's folder, in paths, options and the gateway's configuration", async (t) => {
  const file = write(
    temporaryFolder(t),
    "runner.yaml",
    `
    agent_dir: ${FIXTURES}
    plugins:
      - { dialect: dexto, module: "\${{dexto.agent_dir}}/scripted.js", name: one, options: { log: "\${{ dexto.agent_dir }}/log" } }
      - { dialect: dexto, module: "\${{dexto.agent_dir}}/broken.js", enabled: false }`,
  );
  const client = (await startRunner(t, [file])).client("one");
  await client.initialize({ more: [`${AGENT_DIR}/x`] });
  const { modify } = await client.toolCall("t", { code: "return { ok: true, modify: { args: self.config } }" });
  assert.deepEqual(JSON.parse(modify.args as string), { log: `${FIXTURES}/log`, more: [`${FIXTURES}/x`] });

  const other = await startRunner(t, ["--dialect", "dexto", `${AGENT_DIR}/scripted.js`, "--agent-dir", FIXTURES, "--name", "two"]);
  await other.client("two").initialize();
});

test("several plugins share a process and an address, and keep their names", async (t) => {
  const runner = await startRunner(t, ["--dialect", "dexto", `${FIXTURES}/scripted.js`, `${FIXTURES}/tenant-auth.ts`]);
  assert.equal((await runner.client("scripted").call("describe", {})).points.length, 4);
  assert.equal((await runner.client("tenant-auth").call("describe", {})).points.length, 3);
  assert.equal((await failure(runner.client("other").call("describe", {}))).code, 5);
});

test("M23: what a plugin prints goes to the log with its name, and never to stdout", async (t) => {
  const folder = temporaryFolder(t);
  const path = write(
    folder,
    "printer.mjs",
    `
    console.log("loading");
    export default class {
      async beforeToolCall(payload) {
        console.log("called %s", payload.toolName, { a: 1 });
        console.table([{ b: 2 }]);
        console.error("wrong");
        process.stdout.write("direct\\n");
        return { ok: true };
      }
    }`,
  );
  for (const bun of [false, true]) {
    const runner = await startRunner(t, ["--dialect", "dexto", path], { bun });
    const client = runner.client("printer");
    await client.initialize();
    await client.toolCall("ls", {}, { tenant: "globex" });
    assert.equal((await runner.line(/^.*"message":"loading"/)).plugin, "printer");
    const called = await runner.line(/called ls/);
    assert.deepEqual([called.plugin, called.tenant, called.level], ["printer", "globex", "info"]);
    assert.equal((await runner.line(/"wrong"/)).level, "error");
    await runner.line(/"direct"/);
    assert.equal(await runner.end(), 0);
    assert.equal(runner.stdout(), "", bun ? "Bun" : "Node");
  }
});

test("a plugin that fails outside of a call, or ends the process, doesn't take it down", async (t) => {
  for (const bun of [false, true]) {
    const runner = await startRunner(t, ["--dialect", "dexto", `${FIXTURES}/scripted.js`], { bun });
    const client = runner.client("scripted");
    await client.initialize();
    const scripts = [
      "Promise.reject(new Error('lost promise')); return { ok: true }",
      "setTimeout(() => { throw new Error('lost timer'); }); return { ok: true }",
    ];
    for (const script of scripts) await client.toolCall("t", { code: script });
    await runner.line(/lost promise/);
    await runner.line(/lost timer/);
    assert.match((await failure(client.toolCall("t", { code: "process.exit(3)" }))).details, /process\.exit\(\) isn't available here/);
    assert.equal((await client.toolCall("t", { code: "return { ok: true }" })).verdict, "continue");
    assert.equal(await runner.end(), 0);
  }
});

test("Bun serves a class in TypeScript", async (t) => {
  const runner = await startRunner(t, ["--dialect", "dexto", `${FIXTURES}/tenant-auth.ts`], { bun: true });
  const client = runner.client("tenant-auth");
  await client.initialize({ blockedTenants: ["globex"] });
  const verdicts = await Promise.all(
    ["acme", "globex", "acme"].map(async (tenant) => (await client.toolCall("t", {}, { tenant })).verdict),
  );
  assert.deepEqual(verdicts, ["continue", "cancel", "continue"]);
});
