/** The contract's gRPC service over one or several plugins. Each call names its plugin in the metadata `hookgate-plugin`. */
import type { DescMessage, DescMethod, MessageShape } from "@bufbuild/protobuf";
import {
  type Metadata,
  type ServerUnaryCall,
  type ServiceError,
  type UntypedServiceImplementation,
  type sendUnaryData,
  status,
} from "@grpc/grpc-js";
import { create } from "@bufbuild/protobuf";
import { shorten } from "../errors.js";
import * as wire from "../gen/hookgate/plugin/v1/plugin_pb.js";
import { type PointName, wireNameOf } from "../point.js";
import { inCallSpan } from "./call-span.js";
import { type CallInfo, ServerCallInfo } from "./call-info.js";
import { type PluginHost, StatusError } from "./plugin-host.js";

/** The metadata that names the plugin. */
const PLUGIN = "hookgate-plugin";

type Answer = (host: PluginHost, request: any, info: CallInfo) => MessageShape<DescMessage> | Promise<MessageShape<DescMessage>>;

/** How each method is answered. */
const ANSWERS: { readonly [method: string]: Answer } = {
  describe: (host) => host.describe(),
  initialize: (host, request: wire.InitializeRequest) => host.initialize(request),
  onHook: (host, request: wire.OnHookRequest, info) => host.onHook(request, info),
  release: async (host, { gatewayInstanceId, configDigest }: wire.ReleaseRequest) => {
    await host.release(gatewayInstanceId, configDigest);
    return create(wire.ReleaseResponseSchema);
  },
  shutdown: async (host, { gatewayInstanceId }: wire.ShutdownRequest) => {
    await host.release(gatewayInstanceId);
    return create(wire.ShutdownResponseSchema);
  },
  beforeLlmRequest: (host, request, info) => host.callPoint("beforeLlmRequest", request, info),
  beforeToolCall: (host, request, info) => host.callPoint("beforeToolCall", request, info),
  afterToolResult: (host, request, info) => host.callPoint("afterToolResult", request, info),
  beforeResponse: (host, request, info) => host.callPoint("beforeResponse", request, info),
};

/** Answers the calls for these plugins. */
export function pluginService(hosts: readonly PluginHost[]): UntypedServiceImplementation {
  const methods = wire.PluginService.methods.map((method) => {
    const answer = ANSWERS[method.localName];
    if (answer === undefined) throw new Error(`no answer to ${method.name}`);
    const handle = (call: ServerUnaryCall<any, any>, respond: sendUnaryData<any>) => {
      serveCall(hosts, method, answer, call).then(
        (response) => respond(null, response),
        (error: unknown) => respond(asServiceError(error)),
      );
    };
    return [method.localName, handle] as const;
  });
  return Object.fromEntries(methods);
}

async function serveCall(
  hosts: readonly PluginHost[],
  method: DescMethod,
  answer: Answer,
  call: ServerUnaryCall<any, any>,
): Promise<unknown> {
  const host = route(hosts, call.metadata);
  const info = new ServerCallInfo(call);
  const name = `${method.parent.typeName}/${method.name}`;
  return inCallSpan(name, call.metadata, spanAttributes(host, method, call.request), async () => answer(host, call.request, info));
}

function route(hosts: readonly PluginHost[], metadata: Metadata): PluginHost {
  const asked = metadata.get(PLUGIN)[0]?.toString();
  const [only] = hosts;
  if (hosts.length === 1 && asked === undefined && only !== undefined) return only;
  const found = hosts.find(({ plugin }) => plugin.name === asked);
  if (found !== undefined) return found;
  const served = hosts.map(({ plugin }) => `\`${plugin.name}\``).join(", ");
  throw new StatusError(
    status.NOT_FOUND,
    shorten(
      asked === undefined
        ? `the metadata \`${PLUGIN}\` must name one of the plugins that are served here: ${served}`
        : `no plugin \`${asked}\` is served here, only ${served}`,
    ),
  );
}

function spanAttributes(host: PluginHost, method: DescMethod, request: { payload?: { hook?: string } }) {
  const attributes: Record<string, string> = { "hookgate.plugin.name": host.plugin.name };
  if (method.localName === "onHook") attributes["hookgate.hook"] = request.payload?.hook ?? "";
  const point = wireNameOf(method.localName as PointName);
  if (point !== method.localName) attributes["hookgate.point"] = point;
  return attributes;
}

function asServiceError(error: unknown): Partial<ServiceError> {
  if (error instanceof StatusError) return { code: error.code, details: error.details, metadata: error.metadata };
  // Only a mistake of the SDK itself comes here: the host turns what a plugin throws into a status.
  return { code: status.INTERNAL, details: shorten(String(error)) };
}
