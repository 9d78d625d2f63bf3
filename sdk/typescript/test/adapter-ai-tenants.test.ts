import assert from "node:assert/strict";
import { test } from "node:test";
import { type ModelMessage, generateText, stepCountIs, tool, wrapLanguageModel } from "ai";
import { z } from "zod";
import { findGatewayError, guard, guardTools } from "../src/adapters/ai.js";
import { type Blocked, withContext } from "../src/agent/index.js";
import { type ModelAnswer, scriptedModel } from "./support/ai-model.js";
import { block, pointGateway } from "./support/point-script.js";

const DONE: ModelAnswer = { text: "done" };
const read = tool({
  inputSchema: z.object({ path: z.string() }),
  execute: (): string => {
    throw new Error("the call is blocked");
  },
});

test("ai: runs of two tenants with the same ids end with their own blocks, and another one without any", async () => {
  await using gateway = await pointGateway({ beforeToolCall: block("stop", "run") });
  const { client } = gateway;
  const run = (path: string, answers: ModelAnswer[]) => {
    const model = wrapLanguageModel({ model: scriptedModel(...answers), middleware: guard(client) });
    const tools = guardTools(client, { read });
    return generateText({ model, tools, stopWhen: stepCountIs(5), maxRetries: 0, prompt: path }).catch(findGatewayError);
  };
  const call = (path: string): ModelAnswer => ({ toolCalls: [{ id: "shared", name: "read", input: { path } }] });
  const ended = await Promise.all(["acme", "globex"].map((tenant) => withContext({ tenant }, () => run(tenant, [call(tenant), DONE]))));
  assert.deepEqual(
    ended.map((error) => (error as Blocked).payload),
    ["acme", "globex"].map((path) => ({ toolName: "read", args: { path }, callId: "shared" })),
  );
  const model = wrapLanguageModel({ model: scriptedModel(DONE), middleware: guard(client) });
  const output = { type: "error-text" as const, value: "stop" };
  const messages: ModelMessage[] = [
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "shared", toolName: "read", input: {} }] },
    { role: "tool", content: [{ type: "tool-result", toolCallId: "shared", toolName: "read", output }] },
  ];
  const other = withContext({ tenant: "initech" }, () => generateText({ model, messages, maxRetries: 0 }));
  await assert.rejects(other, (error) => findGatewayError(error) === undefined && /same id and message/.test(String(error)));
});
