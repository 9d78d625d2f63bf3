/** A call as gRPC sees it. */
import type { Metadata, ServerUnaryCall } from "@grpc/grpc-js";

/** A call as gRPC sees it. */
export interface CallInfo {
  readonly metadata: Metadata;
  /** Milliseconds since 1970. */
  readonly deadline: number | undefined;
  /** Aborted when the gateway gives up the call. */
  readonly signal: AbortSignal;
}

/** The info of a call of grpc-js. Most plugins need no signal, so it is made when it is first read. */
export class ServerCallInfo implements CallInfo {
  readonly #call: ServerUnaryCall<unknown, unknown>;
  #abandon: AbortController | undefined;

  constructor(call: ServerUnaryCall<unknown, unknown>) {
    this.#call = call;
  }

  get metadata(): Metadata {
    return this.#call.metadata;
  }

  get deadline(): number | undefined {
    const deadline = Number(this.#call.getDeadline());
    return Number.isFinite(deadline) ? deadline : undefined;
  }

  get signal(): AbortSignal {
    if (this.#abandon === undefined) {
      const abandon = new AbortController();
      const abort = () => abandon.abort(new Error("the gateway gave up the call"));
      if (this.#call.cancelled) abort();
      else this.#call.on("cancelled", abort);
      this.#abandon = abandon;
    }
    return this.#abandon.signal;
  }
}
