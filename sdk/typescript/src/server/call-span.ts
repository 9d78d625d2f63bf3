/** The OpenTelemetry span around each call of the plugin service, within the caller's trace. */
import { type Attributes, ROOT_CONTEXT, SpanKind, SpanStatusCode, context, propagation, trace } from "@opentelemetry/api";
import { type Metadata, status } from "@grpc/grpc-js";

const tracer = trace.getTracer("@hookgate/sdk");

/** The statuses that OpenTelemetry's conventions count as an error of the server. The caller causes the others. */
const SERVER_FAULTS = new Set([
  status.UNKNOWN,
  status.DEADLINE_EXCEEDED,
  status.UNIMPLEMENTED,
  status.INTERNAL,
  status.UNAVAILABLE,
  status.DATA_LOSS,
]);

const metadataGetter = {
  keys: (metadata: Metadata) => Object.keys(metadata.getMap()),
  get: (metadata: Metadata, key: string) => metadata.get(key).map(String),
};

/**
 * Runs a call inside its span. Without an OpenTelemetry SDK in the process this does nothing else.
 *
 * @param method Full name of the method, such as `hookgate.plugin.v1.PluginService/Describe`.
 */
export async function inCallSpan<T>(method: string, metadata: Metadata, attributes: Attributes, call: () => Promise<T>): Promise<T> {
  const parent = propagation.extract(ROOT_CONTEXT, metadata, metadataGetter);
  const all = { "rpc.system.name": "grpc", "rpc.method": method, ...attributes };
  const span = tracer.startSpan(method, { kind: SpanKind.SERVER, attributes: all }, parent);
  try {
    const result = await context.with(trace.setSpan(parent, span), call);
    span.setAttribute("rpc.response.status_code", "OK");
    return result;
  } catch (error) {
    const code = (error as { code?: status }).code ?? status.UNKNOWN;
    span.setAttribute("rpc.response.status_code", status[code]);
    if (SERVER_FAULTS.has(code)) {
      span.setAttribute("error.type", status[code]);
      span.setStatus({ code: SpanStatusCode.ERROR });
    }
    throw error;
  } finally {
    span.end();
  }
}
