import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { PatchError, guardModelRequest, guardModelResponse, guardToolRun } from "../src/adapters/guard.js";
import { throwNestedRunEnd } from "../src/adapters/run-end.js";
import { type CallContext, withContext } from "../src/agent/index.js";
import { type PointGateway, block, pointGateway, signal } from "./support/point-script.js";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

const STOP = { name: "Blocked", message: "stop" };

/** A run that a plugin ends. */
function endRun({ client }: PointGateway): Promise<unknown> {
  return guardModelResponse(client, { texts: ["c"], thoughts: [], hasToolCalls: false, isStructured: false }, {});
}

test("tools whose errors a library catches hear of a run that ends within", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("stop", "run"), beforeLlmRequest: block("no") });
  const blockStep = () => guardModelRequest(gateway.client, { text: "hi", messages: [] }, {});
  const caught = (work: () => Promise<unknown>) => throwNestedRunEnd(() => work().catch(({ message }: Error) => message));
  assert.equal(await caught(blockStep), "no");
  await assert.rejects(
    caught(() => endRun(gateway)),
    { name: "Blocked", message: "stop" },
  );
  await assert.rejects(
    caught(() => caught(() => endRun(gateway))),
    { name: "Blocked", message: "stop" },
  );
  await assert.rejects(
    caught(async () => Promise.reject(new PatchError("no such tool"))),
    PatchError,
  );
  await assert.rejects(
    throwNestedRunEnd(() => Promise.reject(new Error("own"))),
    /own/,
  );
});

test("every tool ends the run if one within it ended", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("stop", "run") });
  const outcome = guardToolRun(gateway.client, { toolName: "t", args: {} }, async () => {
    await assert.rejects(endRun(gateway), STOP);
    return { value: "never mind", result: "never mind", success: true };
  });
  await assert.rejects(outcome, STOP);
  assert.ok(!gateway.points.includes("afterToolResult"));
});

/** A tool of the run `r` has a worker, which works for another run that ends. */
function endRunOfWorker(gateway: PointGateway, context: CallContext): Promise<void> {
  const work = () => assert.rejects(endRun(gateway), STOP);
  return withContext({ tenant: "a", sessionId: "s", runId: "r" }, () => throwNestedRunEnd(async () => withContext(context, work)));
}

for (const context of [{ tenant: "b" }, { sessionId: "other" }, { runId: "other" }]) {
  test(`a tool doesn't hear of other runs of a worker that it started: ${Object.keys(context)[0]}`, async () => {
    await using gateway = await pointGateway({ beforeResponse: block("stop", "run") });
    await endRunOfWorker(gateway, context);
  });
}

test("a tool hears of its own run and of the runs that name it as their parent", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("stop", "run") });
  await assert.rejects(endRunOfWorker(gateway, {}), STOP);
  await assert.rejects(endRunOfWorker(gateway, { runId: "child", parentRunId: "r" }), STOP);
});

test("a tool hears of runs that are nested deeper", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("stop", "run") });
  const grandchild = () => withContext({ runId: "grandchild", parentRunId: "child" }, () => assert.rejects(endRun(gateway), STOP));
  const child = () => withContext({ runId: "child", parentRunId: "r" }, () => assert.rejects(throwNestedRunEnd(grandchild), STOP));
  await assert.rejects(
    withContext({ runId: "r" }, () => throwNestedRunEnd(child)),
    STOP,
  );
});

test("a tool that ended keeps no error of a worker that outlives it", async () => {
  await using gateway = await pointGateway({ beforeResponse: block("stop", "run") });
  const hasEnded = signal();
  const work = async () => {
    await hasEnded.given;
    const kept = await endRun(gateway).catch((error: object) => new WeakRef(error));
    await new Promise(setImmediate);
    collectGarbage();
    return (kept as WeakRef<object>).deref();
  };
  let worker: ReturnType<typeof work> | undefined;
  await throwNestedRunEnd(async () => {
    worker = work();
  });
  hasEnded.give();
  assert.equal(await worker, undefined);
});
