/** Gateways that answer each point as a test says, and echo the others. */
import type { GatewayClient } from "../../src/agent/index.js";
import type { JsonObject, JsonValue } from "../../src/json.js";
import type { PointName } from "../../src/point.js";
import { type FakeGateway, type ReceivedCall, type Reply, continues, startGrpc } from "./fake-gateway.js";

/** How to answer at a point. */
export type PointReply = (payload: JsonObject, call: ReceivedCall) => Reply | Promise<Reply>;

/** A gateway with an agent. */
export interface PointGateway extends AsyncDisposable {
  readonly client: GatewayClient;
  readonly gateway: FakeGateway;
  /** The points that were called, in order. */
  readonly points: string[];
  /** The payloads at a point, in order. */
  payloads(point: PointName): JsonObject[];
  /** The contexts of all calls, in order. */
  readonly contexts: JsonValue[];
}

/** Starts a gateway that answers at these points. */
export async function pointGateway(replies: { readonly [Name in PointName]?: PointReply } = {}): Promise<PointGateway> {
  const gateway = await startGrpc();
  gateway.reply((call) => {
    const payload = call.body["payload"] as JsonObject;
    return replies[call.method as PointName]?.(payload, call) ?? continues(payload);
  });
  return {
    client: gateway.agent(),
    gateway,
    get points() {
      return gateway.calls.map(({ method }) => method);
    },
    payloads: (point) => gateway.calls.filter(({ method }) => method === point).map(({ body }) => body["payload"] as JsonObject),
    get contexts() {
      return gateway.calls.map(({ body }) => body["context"] as JsonValue);
    },
    [Symbol.asyncDispose]: () => gateway.close(),
  };
}

/** Changes members of the payload. */
export function patch(changes: JsonObject | ((payload: JsonObject) => JsonObject)): PointReply {
  return (payload) => {
    const changed = typeof changes === "function" ? changes(payload) : changes;
    return continues({ ...payload, ...changed }, { modified: true });
  };
}

/** Stops the action. */
export function block(message: string, scope: "step" | "run" = "step"): PointReply {
  return (payload) => continues(payload, { decision: "block", block: { code: "BLOCKED", message, scope } });
}

/** Gives the tool's result. */
export function answer(result: JsonValue): PointReply {
  return (payload) => continues(payload, { decision: "answer", result });
}

/** Makes no decision. */
export const outage: PointReply = () => ({
  error: { code: "PLUGIN_UNAVAILABLE", status: 503, detail: "plugin p failed: cannot connect to unix:///p" },
});

/** Answers so before this tool, and changes nothing before others. */
export function forTool(name: string, reply: PointReply): PointReply {
  return (payload, call) => (payload["tool_name"] === name ? reply(payload, call) : continues(payload));
}

/** Replaces a text everywhere in a payload. */
export function replaceText(from: string, to: string): PointReply {
  return (payload) => continues(replace(payload, from, to) as JsonObject, { modified: true });
}

function replace(value: JsonValue, from: string, to: string): JsonValue {
  if (typeof value === "string") return value.replaceAll(from, to);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((item) => replace(item, from, to));
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, replace(member, from, to)]));
}

/** A promise and what resolves it. */
export function signal(): { readonly given: Promise<void>; give(): void } {
  let give: () => void = () => {};
  const given = new Promise<void>((resolve) => {
    give = resolve;
  });
  return { given, give };
}

/** A reply that waits until the test lets it go. */
export function held(until: Promise<void>, reply: PointReply = (payload) => continues(payload)): PointReply {
  return async (payload, call) => {
    await until;
    return reply(payload, call);
  };
}
