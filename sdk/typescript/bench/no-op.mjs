// Calls of a plugin that does nothing, served by the SDK and by bare grpc-js, in turns: `node bench/no-op.mjs [ROUNDS]`.
// Run prepare.sh first. Prints the ratio of the SDK to bare grpc-js; 0.8 and more is the target.
import { spawn } from "node:child_process";
import { readFileSync, rmSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Server, ServerCredentials, credentials, loadPackageDefinition } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

const CALLERS = 32;
const WARM_UP_MS = 500;
const ROUND_MS = 2_000;

const options = {
  includeDirs: [fileURLToPath(new URL("../../../proto", import.meta.url))],
  keepCase: true,
  enums: String,
  longs: String,
  defaults: true,
  oneofs: true,
};
const { PluginService } = loadPackageDefinition(loadSync("hookgate/plugin/v1/plugin.proto", options)).hookgate.plugin.v1;

/** What the guide for any language shows, with one configuration. */
function serveBare(path) {
  const server = new Server({ "grpc.max_receive_message_length": 17 * 1024 * 1024 });
  const configs = new Map();
  server.addService(PluginService.service, {
    Initialize(call, answer) {
      configs.set(call.request.config_digest, JSON.parse(call.request.config));
      answer(null, {});
    },
    BeforeToolCall(call, answer) {
      if (!configs.has(call.request.call.config_digest)) throw new Error("not initialised");
      answer(null, { continue: {} });
    },
  });
  server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) => {
    if (error) throw error;
    process.send("ready");
  });
}

async function serveWithSdk(path) {
  const { definePlugin, proceed, serve } = await import("../dist/index.js");
  const points = { beforeToolCall: { access: "read", sideEffects: "none" } };
  await serve(definePlugin({ name: "no-op", version: "1.0.0", points, beforeToolCall: () => proceed() }), `unix://${path}`);
  process.send("ready");
}

/** CPU time of a process in clock ticks, user and system. */
function cpuTicks(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

class Side {
  constructor(name, child, path) {
    this.child = child;
    this.name = name;
    this.client = new PluginService(`unix:${path}`, credentials.createInsecure());
  }

  static async start(name, folder) {
    const path = join(folder, name);
    const child = spawn(process.execPath, [fileURLToPath(import.meta.url), "serve", name, path], {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    await new Promise((resolve) => child.once("message", resolve));
    const side = new Side(name, child, path);
    await side.call("Initialize", { config: Buffer.from("{}"), config_digest: "d", gateway_instance_id: "bench" });
    return side;
  }

  call(method, request) {
    return new Promise((resolve, reject) => this.client[method](request, (error, answer) => (error ? reject(error) : resolve(answer))));
  }

  /** Calls for a while; the calls per second, and per tick of the server's CPU time. */
  async measure(ms) {
    const args = Buffer.from(JSON.stringify({ path: "x".repeat(1000) }));
    const context = { tenant: "acme", operator: "agent", request_id: "01930000-0000-7000-8000-000000000000" };
    const request = { call: { context, config_digest: "d" }, payload: { tool_name: "fs.read", args } };
    const began = performance.now();
    const ticks = cpuTicks(this.child.pid);
    let calls = 0;
    const caller = async () => {
      while (performance.now() - began < ms) {
        await this.call("BeforeToolCall", request);
        calls += 1;
      }
    };
    await Promise.all(Array.from({ length: CALLERS }, caller));
    return { rate: (calls * 1000) / (performance.now() - began), perTick: calls / (cpuTicks(this.child.pid) - ticks) };
  }
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

async function main(rounds) {
  const folder = mkdtempSync(join(tmpdir(), "hookgate-bench-"));
  const sides = await Promise.all(["bare", "sdk"].map((name) => Side.start(name, folder)));
  const ratios = { rate: [], perTick: [] };
  for (let round = 0; round < rounds; round += 1) {
    const figures = {};
    for (const side of round % 2 ? sides : sides.toReversed()) {
      await side.measure(WARM_UP_MS);
      figures[side.name] = await side.measure(ROUND_MS);
    }
    for (const name of Object.keys(ratios)) ratios[name].push(figures.sdk[name] / figures.bare[name]);
    console.log(`round ${round + 1}: bare ${figures.bare.rate.toFixed(0)}/s, SDK ${figures.sdk.rate.toFixed(0)}/s`);
  }
  console.log(`calls per second: ${median(ratios.rate).toFixed(2)}`);
  console.log(`calls per CPU second of the plugin: ${median(ratios.perTick).toFixed(2)}`);
  for (const { child, client } of sides) {
    client.close();
    child.kill();
  }
  rmSync(folder, { recursive: true });
}

if (process.argv[2] === "serve") {
  await (process.argv[3] === "sdk" ? serveWithSdk : serveBare)(process.argv[4]);
} else {
  await main(Number(process.argv[2] ?? 5));
}
