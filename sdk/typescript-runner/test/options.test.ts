import assert from "node:assert/strict";
import { test } from "node:test";
import { FIXTURES, runnerFailure, startRunner, temporaryFolder, write } from "./support/runner.js";

const LISTEN = ["--listen", "unix:///tmp/never-listens"];

test("a mistake on the command line names the option and has the exit code 2", () => {
  for (const [args, expected] of [
    [["a.ts", ...LISTEN], /--dialect is missing: dexto, mastermind, drover; or name a file in YAML or JSON/],
    [["--dialect", "kaged", "a.ts", ...LISTEN], /--dialect kaged: must be dexto, mastermind, drover/],
    [["--dialect", "dexto", "a.ts"], /--listen is missing/],
    [["--dialect", "dexto", ...LISTEN], /MODULE is missing/],
    [["--dialect", "dexto", "a.ts", "--lisen", "x", ...LISTEN], /'--lisen'/],
    [["--dialect", "dexto", "a.ts", "--name", ...LISTEN.slice(0, 0)], /--name needs a value/],
    [["--dialect", "dexto", "a.ts", "b.ts", "--name", "n", ...LISTEN], /--name is for one plugin/],
    [["--dialect", "dexto", "a.ts", "--options", "[1]", ...LISTEN], /--options must be a JSON object or a file with one/],
    [["--dialect", "dexto", "a.ts", "--options", "{", ...LISTEN], /--options must be a JSON object or a file with one: not JSON/],
    [
      ["--dialect", "dexto", "a.ts", "--capabilities", "log,storage", ...LISTEN],
      /--capabilities: `storage` must be one of storage:read, storage:write, log, emit/,
    ],
    [["--dialect", "dexto", "a.ts", "--watch", ...LISTEN], /--watch isn't available/],
    [["--dialect", "dexto", "a.ts", "--register", "http://h:1", ...LISTEN], /--register needs --register-token/],
    [["a.yaml", "--name", "n", ...LISTEN], /--name is for a plugin of the command line: write it in a.yaml/],
    [["a.yaml", "b.yaml", ...LISTEN], /only one file is possible: b.yaml/],
  ] as [string[], RegExp][]) {
    const { status, stderr, stdout } = runnerFailure(args);
    assert.match(stderr.split("\n")[0] ?? "", expected);
    assert.deepEqual([status, stdout], [2, ""], stderr);
  }
  const help = runnerFailure(["--help"]);
  assert.deepEqual([help.status, help.stderr], [0, ""]);
  assert.match(help.stdout, /^Serves plugins of Dexto, Master Mind and drover/);
});

test("a mistake in a file names the plugin and the member, and says what is right", (t) => {
  const folder = temporaryFolder(t);
  for (const [content, expected] of [
    ["plugins: [{ dialect: dexto, module: /a.ts, nam: x }]", /`plugins\[0\]`: `nam` is unknown: there are dialect, module, name,/],
    ["plugins: [{ dialect: other, module: /a.ts }]", /`plugins\[0\]`: `dialect` must be one of dexto, mastermind, drover/],
    ["plugins: [{ dialect: dexto }]", /`plugins\[0\]`: `module` is missing: a text/],
    ["plugins: [{ dialect: dexto, module: /a.ts, state: run }]", /`state` is only for drover/],
    ["plugins: [{ dialect: drover, module: a.ts, state: tenant }]", /`state` must be one of run, session, process/],
    [
      "plugins: [{ dialect: drover, module: a.ts, agent_tools: [{ name: x }] }]",
      /`agent_tools` must be a list; each entry: an object with the text `id`/,
    ],
    ["plugins: [{ dialect: dexto, module: /a.ts, enabled: false }]", /`plugins` has no enabled plugin/],
    ["plugin: []", /`plugin` is unknown: there are agent_dir, plugins/],
    ["{}", /`plugins` is missing: a list/],
    ["plugins: [", /runner\.yaml: .*line 1/],
    [`plugins: [{ dialect: dexto, module: ${FIXTURES}/scripted.js, name: "a b" }]`, /`name`: "a b" must begin with a letter/],
    [`plugins: [{ dialect: dexto, module: ${FIXTURES}/scripted.js, version: "1" }]`, /`version`: "1" isn't a semantic version/],
    [`plugins: [{ dialect: drover, module: ${FIXTURES}/master-mind/kubectl.js }]`, /must export a plugin with the text `id`/],
  ] as [string, RegExp][]) {
    const { status, message } = runnerFailure([write(folder, "runner.yaml", content), ...LISTEN]);
    assert.match(message, expected);
    assert.equal(status, 1);
  }
  assert.match(runnerFailure([`${folder}/missing.yaml`, ...LISTEN]).message, /missing\.yaml can't be read: ENOENT/);
});

test("options may be in a file, and the name and the version on the command line", async (t) => {
  const options = write(temporaryFolder(t), "options.json", '{"a":1}');
  const args = ["--dialect=dexto", `${FIXTURES}/scripted.js`, "--name=own", "--plugin-version", "2.1.0", "--options", options];
  const client = (await startRunner(t, args)).client("own");
  assert.equal((await client.call("describe", {})).version, "2.1.0");
  await client.initialize({ b: 2 });
  const { modify } = await client.toolCall("t", { code: "return { ok: true, modify: { args: self.config } }" });
  assert.equal(modify.args, '{"a":1,"b":2}');
});
