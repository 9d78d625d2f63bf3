/** Calls over gRPC. */
import { type DescMethodUnary, type MessageInitShape, fromBinary } from "@bufbuild/protobuf";
import { type Client, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { ChainReportSchema, ExtensionPointService, HookService, ToolService } from "../gen/hookgate/gateway/v1/gateway_pb.js";
import { callUnary } from "../grpc.js";
import { statusDetails } from "../status.js";
import type { CallErrorKind, CallFailure } from "./errors.js";
import { stepReason, steps as stepsReader } from "./messages.js";
import type { Method } from "./methods.js";
import { type CallHead, type Outcome, type Transport, malformed, readAnswer } from "./transport.js";

/** The domain of the gateway's error codes in `google.rpc.ErrorInfo`. */
const ERROR_DOMAIN = "hookgate";
/** The error detail that contains the chain's steps. */
const CHAIN_REPORT_TYPE = "type.googleapis.com/hookgate.gateway.v1.ChainReport";

const METHODS: Readonly<Record<string, DescMethodUnary>> = {
  ...ExtensionPointService.method,
  ...HookService.method,
  ...ToolService.method,
};

/** Calls a gateway over one channel, which connects with the first call, and again after a lost connection. */
export class GrpcTransport implements Transport {
  readonly #client: Client;

  constructor(client: Client) {
    this.#client = client;
  }

  prepare<Request, Answer>(method: Method<Request, Answer>, request: Request): (head: CallHead) => Promise<Outcome<Answer>> {
    const message = method.request.toProto(request, "") as MessageInitShape<DescMethodUnary["input"]>;
    return (head) => this.#send(method, message, head);
  }

  close(): void {
    this.#client.close();
  }

  async #send<Answer>(
    method: Method<never, Answer>,
    message: MessageInitShape<DescMethodUnary["input"]>,
    { headers, timeoutMs, signal }: CallHead,
  ): Promise<Outcome<Answer>> {
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(headers)) metadata.set(name, value);
    const options = { deadline: Date.now() + timeoutMs };
    try {
      const descriptor = METHODS[method.name] as DescMethodUnary;
      const answer = await callUnary(this.#client, descriptor, message, { metadata, options, signal });
      return readAnswer(() => method.answer.fromProto(answer, ""), undefined);
    } catch (error) {
      return { failure: failureOf(error as ServiceError) };
    }
  }
}

/** Statuses of the client's own, or of a proxy's, if no gateway has answered. Others can't come from a gateway. */
const KINDS_WITHOUT_ANSWER: Readonly<Partial<Record<status, CallErrorKind>>> = {
  [status.UNAVAILABLE]: "unreachable",
  [status.CANCELLED]: "unreachable",
  [status.DEADLINE_EXCEEDED]: "timeout",
};

function failureOf(error: ServiceError): CallFailure {
  const { errorInfo, retryInfo, badRequest, others } = statusDetails(error);
  const requestId = error.metadata?.get("x-request-id")[0]?.toString();
  if (errorInfo?.domain !== ERROR_DOMAIN) {
    const kind = KINDS_WITHOUT_ANSWER[error.code];
    if (kind === undefined) return malformed(error.message, requestId, error);
    return { kind, detail: error.details, requestId, cause: error };
  }
  const { plugin, binding, step_reason } = errorInfo.metadata;
  return {
    kind: "error",
    code: errorInfo.reason,
    detail: error.details,
    retryAfterMs: retryInfo?.retryDelayMs,
    violations: badRequest,
    plugin,
    binding,
    reason: stepReason.fromJson(step_reason, "step_reason"),
    ...chainReport(others.find(({ typeUrl }) => typeUrl === CHAIN_REPORT_TYPE)?.value),
    requestId,
    cause: error,
  };
}

/** The steps until the error. A report that can't be read is left out: the error is as good without it. */
function chainReport(bytes: Uint8Array | undefined): Pick<CallFailure, "steps" | "omittedSteps"> {
  if (bytes === undefined) return {};
  try {
    const { steps, omittedSteps } = fromBinary(ChainReportSchema, bytes);
    return { steps: stepsReader.fromProto(steps, "steps"), omittedSteps };
  } catch {
    return {};
  }
}
