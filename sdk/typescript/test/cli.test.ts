import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseRunOptions } from "../src/cli/options.js";
import { GatewayClient, temporaryFolder } from "./support/gateway-client.js";

const sdk = fileURLToPath(new URL("../..", import.meta.url));
const program = `${sdk}dist/cli/main.js`;

/** A project with the SDK installed. */
function project(test: TestContext, type: "module" | "commonjs" = "module"): string {
  const folder = temporaryFolder(test);
  mkdirSync(`${folder}/node_modules/@hookgate`, { recursive: true });
  symlinkSync(sdk, `${folder}/node_modules/@hookgate/sdk`);
  writeFileSync(`${folder}/package.json`, JSON.stringify({ type }));
  return folder;
}

const plugin = (message: string) => `
  import { cancel, definePlugin } from "@hookgate/sdk";
  import { suffix } from "./suffix.ts";
  enum Code { No = "NO" }
  export default definePlugin({ name: "p", version: "1.0.0", beforeToolCall: () => cancel(Code.No, ${JSON.stringify(message)} + suffix) });
`;

function run(folder: string, ...args: string[]) {
  return spawnSync(process.execPath, [program, ...args], { cwd: folder, encoding: "utf8", timeout: 20_000 });
}

/** What the plugin at the address says, as soon as it says something else than before. */
async function message(address: string, before?: string): Promise<string> {
  for (let tries = 0; tries < 200; tries += 1) {
    const client = GatewayClient.connect(address);
    try {
      await client.initialize("d");
      const said = ((await client.toolCall("a", {})).verdict.value as { message: string }).message;
      if (said !== before) return said;
    } catch {
      // It starts, or starts again.
    } finally {
      client.client.close();
    }
    await sleep(50);
  }
  throw new Error("the plugin doesn't answer");
}

async function end(child: ChildProcess): Promise<number | null> {
  const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  return ended;
}

test("a plugin in TypeScript is served, starts again when a file changes, and ends on SIGTERM", async (t) => {
  const folder = project(t);
  writeFileSync(`${folder}/plugin.ts`, plugin("one"));
  writeFileSync(`${folder}/suffix.ts`, `export const suffix: string = "!";`);
  const address = `unix://${folder}/s`;
  const child = spawn(process.execPath, [program, "run", "plugin.ts", "--listen", address, "--watch"], { cwd: folder, stdio: "ignore" });
  t.after(() => child.kill("SIGKILL"));
  assert.equal(await message(address), "one!");
  writeFileSync(`${folder}/suffix.ts`, `export const suffix: string = "?";`);
  assert.equal(await message(address, "one!"), "one?");
  writeFileSync(`${folder}/plugin.ts`, plugin("two"));
  assert.equal(await message(address, "one?"), "two?");
  assert.equal(await end(child), 0);
});

test("a served plugin ends with the exit code 0 on SIGTERM", async (t) => {
  const folder = project(t);
  writeFileSync(`${folder}/plugin.ts`, plugin("one"));
  writeFileSync(`${folder}/suffix.ts`, `export const suffix = "";`);
  const address = `unix://${folder}/s`;
  const child = spawn(process.execPath, [program, "run", "plugin.ts", "--listen", address], { cwd: folder, stdio: "ignore" });
  t.after(() => child.kill("SIGKILL"));
  assert.equal(await message(address), "one");
  assert.equal(await end(child), 0);
});

test("a module that exports no plugin, and one of CommonJS, say what to write", (t) => {
  const folder = project(t);
  writeFileSync(`${folder}/none.ts`, "export default 1;");
  const none = run(folder, "run", "none.ts", "--listen", `unix://${folder}/s`);
  assert.deepEqual([none.status, none.stdout], [1, ""]);
  assert.match(none.stderr, /none\.ts doesn't export a plugin: write `export default definePlugin/);

  const commonjs = project(t, "commonjs");
  writeFileSync(`${commonjs}/plugin.ts`, plugin("one"));
  writeFileSync(`${commonjs}/suffix.ts`, `export const suffix = "";`);
  const { status, stderr } = run(commonjs, "run", "plugin.ts", "--listen", `unix://${commonjs}/s`);
  assert.equal(status, 1);
  assert.match(stderr, /plugin\.ts is CommonJS: run `npm pkg set type=module`/);
});

test("a registration of an address of every network is refused with the option that mends it", (t) => {
  const folder = project(t);
  writeFileSync(`${folder}/plugin.ts`, plugin("no"));
  writeFileSync(`${folder}/suffix.ts`, 'export const suffix = "";');
  const registration = ["--register", "http://127.0.0.1:1", "--register-token", "token"];
  const { status, stderr } = run(folder, "run", "plugin.ts", "--listen", "http://0.0.0.0:0", ...registration);
  assert.equal(status, 1, stderr);
  assert.match(stderr, /http:\/\/0\.0\.0\.0:\d+`, which is no address that gateways can reach: .*`--register-endpoint`/);
});

test("errors of the token for a registration name its file", () => {
  const options = parseRunOptions(["run", "p.ts", "--listen", "unix:///s", "--register", "http://h:1", "--register-token", "t"]);
  assert.deepEqual(options?.serve.registration, { gateway: "http://h:1", token: { file: "t" } });
});

test("a mistake on the command line names the option and has the exit code 2", (t) => {
  const folder = project(t);
  for (const [args, expected] of [
    [["run", "p.ts"], "--listen is missing"],
    [["run", "--listen", "unix:///s"], "PLUGIN is missing"],
    [["serve"], "unknown command `serve`"],
    [["run", "p.ts", "--listen", "unix:///s", "--drain", "x"], "--drain must be between 0 and 3600 seconds"],
    [["run", "p.ts", "--listen", "unix:///s", "--tls-key", "k"], "--tls-cert and --tls-key need each other"],
    [["run", "p.ts", "--listen", "unix:///s", "--register", "http://h:1"], "--register needs --register-token"],
    [["run", "p.ts", "--listen", "unix:///s", "--lisen", "x"], "'--lisen'"],
  ] as [string[], string][]) {
    const { status, stderr } = run(folder, ...args);
    assert.equal(status, 2, stderr);
    assert.ok(stderr.startsWith("hookgate: ") && stderr.split("\n")[0]!.includes(expected), stderr);
  }
  const help = run(folder, "--help");
  assert.deepEqual([help.status, help.stderr], [0, ""]);
  assert.match(help.stdout, /^Serves Hookgate plugins\.\n\nUsage: hookgate run PLUGIN/);
});
