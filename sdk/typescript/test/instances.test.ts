/** The instances of a plugin, at each step of a start. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { HostLinks } from "../src/host/index.js";
import { type GatewayLink, HeldInstance, Instances } from "../src/server/instances.js";

/** More microtasks than a start takes until its instance is ready. */
const STEPS = [...Array(12).keys()];

/** Starts that end at once, or fail. */
class CountedStarts {
  count = 0;

  constructor(readonly error?: Error) {}

  readonly start = async (): Promise<HeldInstance> => {
    this.count += 1;
    await Promise.resolve();
    if (this.error !== undefined) throw this.error;
    return new HeldInstance({ handlers: {}, config: {}, state: {}, tools: [] }, new HostLinks(), Number.POSITIVE_INFINITY);
  };
}

function link(gateway: string): GatewayLink {
  return { gateway, endpoint: "", token: "" };
}

function newInstances(): Instances {
  return new Instances(() => assert.fail("there is room for all"));
}

async function runMicrotasks(count: number): Promise<void> {
  for (let step = 0; step < count; step++) await Promise.resolve();
}

for (const steps of STEPS) {
  test(`a gateway that comes ${steps} microtasks after another shares its start`, async () => {
    const instances = newInstances();
    const starts = new CountedStarts();
    const first = instances.start("d", link("g-1"), starts.start);
    await runMicrotasks(steps);
    const [second, left] = await instances.start("d", link("g-2"), starts.start);
    assert.deepEqual([await first, left], [[second, undefined], undefined]);
    assert.equal(starts.count, 1);
    assert.deepEqual(instances.release("g-1", "d"), []);
    assert.deepEqual(instances.release("g-2", "d"), [second]);
  });

  test(`${steps} microtasks after a start that fails there is another one`, async () => {
    const instances = newInstances();
    const failing = new CountedStarts(new Error("no"));
    const first = assert.rejects(instances.start("d", link("g-1"), failing.start), failing.error);
    await runMicrotasks(steps);
    await assert.rejects(instances.start("d", link("g-2"), failing.start), failing.error);
    await first;
    const starts = new CountedStarts();
    await instances.start("d", link("g-1"), starts.start);
    assert.equal(starts.count, 1);
  });
}
