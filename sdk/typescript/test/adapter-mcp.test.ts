import assert from "node:assert/strict";
import { test } from "node:test";
import * as client2 from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { CallToolRequestSchema, CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";
import * as server2 from "@modelcontextprotocol/server";
import { z } from "zod";
import { guardToolRun } from "../src/adapters/guard.js";
import { type AnyMcpServer, type McpClient, findGatewayError, guardClient, guardServer } from "../src/adapters/mcp.js";
import { Blocked, NoDecision, withContext } from "../src/agent/index.js";
import type { JsonObject, JsonValue } from "../src/json.js";
import { type PointGateway, answer, block, outage, patch, pointGateway, replaceText } from "./support/point-script.js";

/** A result of a tool. */
interface ToolResult {
  readonly content: readonly { readonly type: string; readonly text?: string }[];
  readonly structuredContent?: unknown;
  readonly isError?: boolean;
}

const INFO = { name: "test", version: "1.0.0" };
const PATH = z.object({ path: z.string() });
type Execute = (input: { path: string }) => ToolResult;
const read: Execute = ({ path }) => ({ content: [{ type: "text", text: `the content of ${path}` }] });

/** A client and a server of one SDK, connected once they are guarded. */
interface Peers {
  readonly client: McpClient;
  readonly server: AnyMcpServer & { readonly server: AnyMcpServer & { onerror?: ((error: Error) => void) | undefined } };
  register(name: string, execute: Execute, more?: object): void;
  connect(): Promise<void>;
}

function peersOfVersion1(): Peers {
  const client = new Client(INFO);
  const server = new McpServer(INFO);
  const [near, far] = InMemoryTransport.createLinkedPair();
  return {
    client,
    server,
    register: (name, execute, more = {}) =>
      void server.registerTool(name, { inputSchema: { path: z.string() }, ...more }, async (input) => execute(input) as never),
    connect: async () => void (await Promise.all([server.connect(far), client.connect(near)])),
  };
}

function peersOfVersion2(): Peers {
  const client = new client2.Client(INFO);
  const server = new server2.McpServer(INFO);
  const [near, far] = client2.InMemoryTransport.createLinkedPair();
  return {
    client,
    server,
    register: (name, execute, more = {}) =>
      void server.registerTool(name, { inputSchema: PATH, ...more }, async (input) => execute(input) as never),
    connect: async () => void (await Promise.all([server.connect(far as never), client.connect(near)])),
  };
}

type Side = "client" | "server";

/** Guards one side, and calls `read` through both. */
async function setUp(side: Side, peers: Peers, { client }: PointGateway, execute: Execute = read, more: object = {}) {
  const inputs: unknown[] = [];
  if (side === "client") assert.equal(guardClient(client, peers.client), peers.client);
  else assert.equal(guardServer(client, peers.server), peers.server);
  peers.register(
    "read",
    (input) => {
      inputs.push(input);
      return execute(input);
    },
    more,
  );
  await peers.connect();
  const call = (name = "read"): Promise<ToolResult> => peers.client.callTool({ name, arguments: { path: "/etc/hosts" } });
  return { inputs, call };
}

const OK = { content: [{ type: "text", text: "the content of /etc/hosts" }] };
const withoutMeta = ({ _meta, resultType, ...result }: ToolResult & { _meta?: unknown; resultType?: unknown }) => result;
const text = ({ content, isError = false }: ToolResult) => `${isError ? "error " : ""}${content[0]?.text}`;

for (const [version, peers] of Object.entries({ 1: peersOfVersion1, 2: peersOfVersion2 })) {
  for (const side of ["client", "server"] as const) {
    const name = `mcp ${version} ${side}`;

    test(`${name}: an allowed call passes both points, and nothing changes`, async () => {
      await using gateway = await pointGateway();
      const { call, inputs } = await setUp(side, peers(), gateway);
      const result = await withContext({ sessionId: "s-1" }, () => call());
      assert.deepEqual(withoutMeta(result), OK);
      assert.deepEqual(inputs, [{ path: "/etc/hosts" }]);
      assert.deepEqual(gateway.points, ["beforeToolCall", "afterToolResult"]);
      const [before = {}] = gateway.payloads("beforeToolCall");
      assert.deepEqual({ ...before, call_id: "1" }, { tool_name: "read", args: { path: "/etc/hosts" }, call_id: "1" });
      assert.equal(typeof before["call_id"], side === "server" ? "string" : "undefined");
      const [after = {}] = gateway.payloads("afterToolResult");
      assert.deepEqual((after["result"] as JsonObject)["content"], OK.content);
      assert.equal(after["success"], true);
      if (side === "client") assert.deepEqual(gateway.contexts, [{ session_id: "s-1" }, { session_id: "s-1" }]);
    });

    test(`${name}: rewritten arguments are what the tool gets, after the server's validation`, async () => {
      await using gateway = await pointGateway({ beforeToolCall: patch({ args: { path: "/tmp/a" } }) });
      const { call, inputs } = await setUp(side, peers(), gateway);
      assert.equal(text(await call()), "the content of /tmp/a");
      assert.deepEqual(inputs, [{ path: "/tmp/a" }]);
      await using wrong = await pointGateway({ beforeToolCall: patch({ args: { path: 1 } }) });
      const second = await setUp(side, peers(), wrong);
      assert.match(text(await second.call()), /^error .*Invalid arguments for tool read/s);
      assert.deepEqual(second.inputs, []);
      assert.equal(wrong.payloads("afterToolResult")[0]?.["success"], false);
    });

    test(`${name}: a renamed call runs the other tool`, async () => {
      await using gateway = await pointGateway({ beforeToolCall: patch({ tool_name: "safe_read" }) });
      const both = peers();
      const { call, inputs } = await setUp(side, both, gateway);
      both.register("safe_read", () => ({ content: [{ type: "text", text: "safe" }] }));
      assert.equal(text(await call()), "safe");
      assert.deepEqual(inputs, []);
    });

    test(`${name}: a rewritten result is what the client gets`, async () => {
      await using gateway = await pointGateway({ afterToolResult: replaceText("/etc/hosts", "[X]") });
      const { call } = await setUp(side, peers(), gateway);
      assert.equal(text(await call()), "the content of [X]");
    });

    test(`${name}: a plugin's answer replaces the tool, whatever value it is`, async () => {
      const answers: [JsonValue, object][] = [
        [{ content: [{ type: "text", text: "whole" }] }, { content: [{ type: "text", text: "whole" }] }],
        [
          { id: 9007199254740993n },
          { content: [{ type: "text", text: '{"id":9007199254740993}' }], structuredContent: { id: "9007199254740993" } },
        ],
        ["cached", { content: [{ type: "text", text: "cached" }] }],
        [null, { content: [{ type: "text", text: "null" }] }],
      ];
      for (const [value, expected] of answers) {
        await using gateway = await pointGateway({ beforeToolCall: answer(value) });
        const { call, inputs } = await setUp(side, peers(), gateway);
        assert.deepEqual(withoutMeta(await call()), expected);
        assert.deepEqual(inputs, []);
        assert.equal(gateway.payloads("afterToolResult").length, 1);
      }
    });

    test(`${name}: a tool that throws is told as a failure`, async () => {
      const fail = () => {
        throw new Error("no such file: /home/ada");
      };
      await using gateway = await pointGateway();
      const { call } = await setUp(side, peers(), gateway, fail);
      assert.equal(text(await call()), "error no such file: /home/ada");
      assert.equal(gateway.payloads("afterToolResult")[0]?.["success"], false);
      await using redacting = await pointGateway({ afterToolResult: replaceText("/home/ada", "[X]") });
      assert.equal(text(await (await setUp(side, peers(), redacting, fail)).call()), "error no such file: [X]");
    });

    test(`${name}: a rewritten failure stays one`, async () => {
      await using gateway = await pointGateway({ afterToolResult: patch({ result: { content: [{ type: "text", text: "no" }] } }) });
      const { call } = await setUp(side, peers(), gateway, () => ({ content: [{ type: "text", text: "no such file" }], isError: true }));
      assert.equal(text(await call()), "error no");
    });

    test(`${name}: the message of a block is an error result, and the tool doesn't run`, async () => {
      await using gateway = await pointGateway({ beforeToolCall: block("not on your plan") });
      const { call, inputs } = await setUp(side, peers(), gateway, read, { outputSchema: PATH });
      assert.deepEqual(withoutMeta(await call()), { content: [{ type: "text", text: "not on your plan" }], isError: true });
      assert.deepEqual(inputs, []);
      assert.equal(gateway.payloads("afterToolResult").length, 0);
    });

    test(`${name}: the message of a block replaces the result`, async () => {
      await using gateway = await pointGateway({ afterToolResult: block("contains secrets") });
      const { call, inputs } = await setUp(side, peers(), gateway);
      assert.deepEqual(withoutMeta(await call()), { content: [{ type: "text", text: "contains secrets" }], isError: true });
      assert.equal(inputs.length, 1);
    });

    for (const point of ["beforeToolCall", "afterToolResult"] as const) {
      test(`${name}: a block of the run and no decision at ${point} are errors`, async () => {
        await using blocking = await pointGateway({ [point]: block("stop", "run") });
        const first = peers();
        const { call, inputs } = await setUp(side, first, blocking);
        await assert.rejects(call(), (error: Error & { code?: unknown }) => {
          if (side === "client") return error instanceof Blocked && error.scope === "run";
          return error.code === 40300 && error.message.endsWith("stop");
        });
        assert.equal(inputs.length, point === "beforeToolCall" ? 0 : 1);

        await using down = await pointGateway({ [point]: outage });
        const second = peers();
        const errors: Error[] = [];
        second.server.server.onerror = (error) => void errors.push(error);
        const guarded = await setUp(side, second, down);
        await assert.rejects(guarded.call(), (error: Error & { code?: unknown }) => {
          if (side === "client") return error instanceof NoDecision;
          assert.doesNotMatch(JSON.stringify(error) + error.message, /unix/);
          return error.code === 50300 && findGatewayError(errors[0]) instanceof NoDecision;
        });
        assert.equal(guarded.inputs.length, point === "beforeToolCall" ? 0 : 1);
      });
    }
  }

  for (const [what, reply] of Object.entries({ "a block of the run": block("stop", "run"), "no decision": outage })) {
    test(`mcp ${version} server: ${what} within a tool is an error, and no result`, async () => {
      await using inner = await pointGateway({ beforeToolCall: reply });
      await using gateway = await pointGateway();
      const askInner = () => guardToolRun(inner.client, { toolName: "inner", args: {} }, () => Promise.reject(new Error("it ran")));
      const { call } = await setUp("server", peers(), gateway, askInner as never);
      await assert.rejects(call(), (error: Error & { code?: unknown }) => {
        assert.doesNotMatch(JSON.stringify(error) + error.message, /unix/);
        return error.code === (reply === outage ? 50300 : 40300);
      });
      assert.equal(gateway.payloads("afterToolResult").length, 0);
    });
  }

  test(`mcp ${version} client: a request past callTool is guarded too, and callTool only once`, async () => {
    await using gateway = await pointGateway({ beforeToolCall: block("no") });
    const both = peers();
    await setUp("client", both, gateway);
    const message = { method: "tools/call", params: { name: "read", arguments: { path: "a" } } };
    const result: ToolResult = await both.client.request(message, ...(version === "1" ? [CallToolResultSchema] : []));
    assert.equal(text(result), "error no");
    await both.client.callTool(message.params);
    assert.deepEqual(gateway.points, ["beforeToolCall", "beforeToolCall"]);
  });

  test(`mcp ${version} client: the signal cancels the gateway's call`, async () => {
    await using gateway = await pointGateway({ beforeToolCall: () => ({ hang: true }) });
    const both = peers();
    await setUp("client", both, gateway);
    const abort = new AbortController();
    const options = { signal: abort.signal };
    const running = both.client.callTool({ name: "read", arguments: {} }, ...(version === "1" ? [undefined, options] : [options]));
    while (gateway.points.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    abort.abort(new Error("enough"));
    await assert.rejects(running, /enough/);
  });

  test(`mcp ${version} server: other requests pass, and a server with tools is refused`, async () => {
    await using gateway = await pointGateway();
    const both = peers();
    await setUp("server", both, gateway);
    const { tools } = (await (both.client as unknown as Client).listTools()) as { tools: { name: string }[] };
    assert.deepEqual(
      tools.map((tool) => tool.name),
      ["read"],
    );
    assert.deepEqual(gateway.points, []);
    assert.throws(() => guardServer(gateway.client, both.server), /^TypeError: the server already has tools/);
  });
}

test("mcp 1: a rewritten result has to fit the tool's schema at the client, an error result hasn't", async () => {
  const execute = () => ({ content: [], structuredContent: { path: "/etc/hosts" } });
  const patchPath = (path: JsonValue) => patch({ result: { content: [], structuredContent: { path } } });
  for (const [path, expected] of [
    ["/x", "result"],
    [1, "error"],
  ] as const) {
    await using gateway = await pointGateway({ afterToolResult: patchPath(path) });
    const both = peersOfVersion1();
    const { call } = await setUp("server", both, gateway, execute, { outputSchema: { path: z.string() } });
    await (both.client as Client).listTools();
    const outcome = await call().then(
      ({ structuredContent }) => ({ result: structuredContent }),
      () => ({ error: true }),
    );
    assert.deepEqual(Object.keys(outcome), [expected]);
  }
});

test("mcp 1: calls as tasks are refused at both sides", async () => {
  await using gateway = await pointGateway();
  const client = guardClient(gateway.client, new Client(INFO));
  const task = { ttl: 1000 };
  await assert.rejects(client.callTool({ name: "read", arguments: {} }, undefined, { task }), /the tool read can't run as a task/);
  const stream = client.experimental.tasks.callToolStream({ name: "read", arguments: {} }, undefined, { task });
  const { value } = await stream.next();
  assert.equal(value?.type, "error");

  const capabilities = { tools: {}, tasks: { requests: { tools: { call: {} } } } };
  const server = guardServer(gateway.client, new Server(INFO, { capabilities }));
  server.setRequestHandler(CallToolRequestSchema, () => assert.fail("the tool ran"));
  const [near, far] = InMemoryTransport.createLinkedPair();
  const other = new Client(INFO);
  await Promise.all([server.connect(far), other.connect(near)]);
  const params = { name: "read", arguments: {}, task };
  await assert.rejects(other.request({ method: "tools/call", params }, CallToolResultSchema), /the tool read can't run as a task/);
  assert.deepEqual(gateway.points, []);
});

test("mcp 1: a server without McpServer around it is guarded", async () => {
  await using gateway = await pointGateway({ afterToolResult: replaceText("secret", "[X]") });
  const server = guardServer(gateway.client, new Server(INFO, { capabilities: { tools: {} } }));
  server.setRequestHandler(CallToolRequestSchema, async () => ({ content: [{ type: "text", text: "a secret" }] }));
  const [near, far] = InMemoryTransport.createLinkedPair();
  const client = new Client(INFO);
  await Promise.all([server.connect(far), client.connect(near)]);
  assert.equal(text((await client.callTool({ name: "any", arguments: {} })) as ToolResult), "a [X]");
  assert.equal(gateway.payloads("beforeToolCall")[0]?.["tool_name"], "any");
});

test("mcp 1: requests without a handler of their own are guarded, as proxies answer them", async () => {
  for (const when of ["before", "after"]) {
    await using gateway = await pointGateway({ beforeToolCall: block("no") });
    const server = new Server(INFO, { capabilities: { tools: {} } });
    let calls = 0;
    const proxy = async () => {
      calls += 1;
      return { content: [{ type: "text", text: "a secret" }] };
    };
    if (when === "before") server.fallbackRequestHandler = proxy;
    guardServer(gateway.client, server);
    if (when === "after") server.fallbackRequestHandler = proxy;
    const [near, far] = InMemoryTransport.createLinkedPair();
    const client = new Client(INFO);
    await Promise.all([server.connect(far), client.connect(near)]);
    assert.equal(text((await client.callTool({ name: "any", arguments: {} })) as ToolResult), "error no", when);
    assert.equal(calls, 0, when);
  }
});

test("mcp 2: a handler of the parameters alone is guarded", async () => {
  await using gateway = await pointGateway({ beforeToolCall: block("no") });
  const server = new server2.Server(INFO, { capabilities: { tools: {} } });
  guardServer(gateway.client, server);
  let calls = 0;
  const params = z.object({ name: z.string(), arguments: z.record(z.string(), z.unknown()).optional() });
  const result = z.object({ content: z.array(z.unknown()) });
  (server.setRequestHandler as (...args: unknown[]) => void)("tools/call", { params, result }, async () => {
    calls += 1;
    return { content: [{ type: "text", text: "a secret" }] };
  });
  const [near, far] = client2.InMemoryTransport.createLinkedPair();
  const client = new client2.Client(INFO);
  await Promise.all([server.connect(far as never), client.connect(near)]);
  assert.equal(text((await client.callTool({ name: "any", arguments: {} })) as ToolResult), "error no");
  assert.equal(calls, 0);
});
