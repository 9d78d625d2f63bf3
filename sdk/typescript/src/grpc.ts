/** Joins protobuf-es, which knows the messages, and grpc-js, which carries them. */
import {
  type DescMessage,
  type DescMethod,
  type DescService,
  type MessageInitShape,
  type MessageShape,
  create,
  fromBinary,
  toBinary,
} from "@bufbuild/protobuf";
import { type Client, type CallOptions, type MethodDefinition, Metadata, type ServiceDefinition } from "@grpc/grpc-js";

/** Full path of a method, as in HTTP/2. */
export function methodPath(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

/** What grpc-js needs to serve a service. */
export function serviceDefinition(service: DescService): ServiceDefinition {
  return Object.fromEntries(service.methods.map((method) => [method.localName, methodDefinition(method)]));
}

/** What grpc-js needs to serve or call a method. */
export function methodDefinition<I extends DescMessage, O extends DescMessage>(
  method: DescMethod & { input: I; output: O },
): MethodDefinition<MessageShape<I>, MessageShape<O>> {
  return {
    path: methodPath(method),
    requestStream: method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming",
    responseStream: method.methodKind === "server_streaming" || method.methodKind === "bidi_streaming",
    requestSerialize: (message) => asBuffer(toBinary(method.input, message)),
    requestDeserialize: (bytes) => fromBinary(method.input, bytes),
    responseSerialize: (message) => asBuffer(toBinary(method.output, message)),
    responseDeserialize: (bytes) => fromBinary(method.output, bytes),
  };
}

/** The same memory as a Buffer. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Makes one call. An aborted signal cancels it. */
export function callUnary<I extends DescMessage, O extends DescMessage>(
  client: Client,
  method: DescMethod & { methodKind: "unary"; input: I; output: O },
  request: MessageInitShape<I>,
  {
    metadata = new Metadata(),
    options = {},
    signal,
  }: { metadata?: Metadata; options?: CallOptions; signal?: AbortSignal | undefined } = {},
): Promise<MessageShape<O>> {
  const { path, requestSerialize, responseDeserialize } = methodDefinition(method);
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const message = create(method.input, request);
    const call = client.makeUnaryRequest(path, requestSerialize, responseDeserialize, message, metadata, options, (error, answer) => {
      signal?.removeEventListener("abort", abort);
      if (error) reject(error);
      else resolve(answer as MessageShape<O>);
    });
    const abort = () => call.cancel();
    signal?.addEventListener("abort", abort, { once: true });
  });
}
