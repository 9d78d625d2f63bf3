/** The connection to services in the same process. Messages are encoded and decoded as on a socket. */
import { type DescMessage, type MessageInitShape, type MessageShape, create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { listenForAbort } from "../abort-listeners.js";
import type { HostConnection, RequestParts, UnaryMethod } from "../host/connection.js";
import type { HostServices } from "./host-services.js";
import { HostStatus } from "./host-status.js";

/** The connection to services in the same process. */
export class InProcessConnection implements HostConnection {
  readonly #services: HostServices;

  constructor(services: HostServices) {
    this.#services = services;
  }

  async call<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageInitShape<I>,
    { metadata, deadline, signal }: RequestParts,
  ): Promise<MessageShape<O>> {
    const message = recode(method.input, create(method.input, request));
    const answer = this.#services.answer(method, message, { metadata: metadata.clone(), deadline });
    return recode(method.output, (await within(answer, deadline, signal)) as MessageShape<O>);
  }

  release(): void {}
}

/** The message after its way over a socket. */
export function recode<D extends DescMessage>(schema: D, message: MessageShape<D>): MessageShape<D> {
  return fromBinary(schema, toBinary(schema, message));
}

async function within<T>(answer: Promise<T>, deadline: number, signal: AbortSignal | undefined): Promise<T> {
  let giveUp = () => {};
  const given = new Promise<never>((_, reject) => {
    const timer = setTimeout(() => reject(new HostStatus(status.DEADLINE_EXCEEDED, "Deadline exceeded")), deadline - Date.now());
    const abort = () => reject(new HostStatus(status.CANCELLED, "the call was cancelled"));
    const stopListening = signal && listenForAbort(signal, abort);
    giveUp = () => {
      clearTimeout(timer);
      stopListening?.();
    };
  });
  try {
    return await Promise.race([answer, given]);
  } finally {
    giveUp();
  }
}
