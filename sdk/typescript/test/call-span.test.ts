import assert from "node:assert/strict";
import { test } from "node:test";
import { Metadata } from "@grpc/grpc-js";
import { SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import { PluginService } from "../src/gen/hookgate/plugin/v1/plugin_pb.js";
import { callUnary } from "../src/grpc.js";
import { PluginError, definePlugin, proceed } from "../src/index.js";
import { bytes, served } from "./support/gateway-client.js";

test("a call has a span in the caller's trace, and the handler runs within it", async (t) => {
  const exporter = new InMemorySpanExporter();
  const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  provider.register();
  t.after(() => provider.shutdown());
  const plugin = definePlugin({
    name: "traced",
    version: "1.0.0",
    async beforeToolCall({ toolName }) {
      await Promise.resolve();
      trace.getTracer("plugin").startSpan("inner").end();
      if (toolName === "broken") throw PluginError.unavailable("no database");
      return proceed();
    },
  });
  const { client } = await served(t, plugin);
  await client.initialize("d");
  exporter.reset();
  const metadata = new Metadata();
  metadata.set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  for (const toolName of ["fine", "broken"]) {
    const request = { call: { context: { tenant: "acme" }, configDigest: "d" }, payload: { toolName, args: bytes({}) } };
    await callUnary(client.client, PluginService.method.beforeToolCall, request, { metadata }).catch(() => {});
  }
  const [inner, call, , failed] = exporter.getFinishedSpans();
  assert.deepEqual(
    [call!.name, call!.kind, call!.spanContext().traceId, call!.parentSpanContext!.spanId],
    ["hookgate.plugin.v1.PluginService/BeforeToolCall", SpanKind.SERVER, "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"],
  );
  assert.equal(inner!.parentSpanContext!.spanId, call!.spanContext().spanId);
  assert.deepEqual(call!.attributes, {
    "rpc.system.name": "grpc",
    "rpc.method": "hookgate.plugin.v1.PluginService/BeforeToolCall",
    "rpc.response.status_code": "OK",
    "hookgate.plugin.name": "traced",
    "hookgate.point": "before_tool_call",
  });
  assert.deepEqual([failed!.status.code, failed!.attributes["error.type"]], [SpanStatusCode.ERROR, "UNAVAILABLE"]);
});
