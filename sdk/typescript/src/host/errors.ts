/** Why a call to the gateway's services failed. */
import { type ServiceError, status } from "@grpc/grpc-js";
import { statusDetails } from "../status.js";

/**
 * Why a call to the gateway's services failed:
 *
 * - `not_offered`: the gateway offers this plugin no services.
 * - `unavailable`: the gateway or its database doesn't answer, or the time of the call is over. A write may or may not have happened.
 * - `denied`: the plugin lacks the capability for the method, or its token has expired. Nothing happened.
 * - `invalid`: a field is outside its range. Nothing happened.
 * - `quota_exceeded`: the plugin's data for the tenant would exceed its quota. Nothing was written.
 * - `rate_limited`: the plugin emits more events than the gateway takes. This one was dropped.
 * - `not_a_counter`: the key of an addition holds a value. Nothing was written.
 * - `failed`: the gateway answered something that the contract doesn't allow.
 */
export type HostErrorKind =
  | "not_offered"
  | "unavailable"
  | "denied"
  | "invalid"
  | "quota_exceeded"
  | "rate_limited"
  | "not_a_counter"
  | "failed";

const PREFIXES: Record<HostErrorKind, string> = {
  not_offered: "",
  unavailable: "the gateway's host services are unavailable: ",
  denied: "the gateway refused the call: ",
  invalid: "invalid call to the gateway: ",
  quota_exceeded: "the gateway's storage is full: ",
  rate_limited: "the gateway dropped the event: ",
  not_a_counter: "not a counter: ",
  failed: "the gateway's host services failed: ",
};

const NOT_OFFERED =
  "the gateway offers no host services to this plugin: set `server.host_addr` or `server.host_socket` in the gateway's configuration, " +
  "and list the capability in the plugin's `capabilities`";

/** Why a call to the gateway's services failed: to its storage, or to emit an event. */
export class HostError extends Error {
  /** The name of the class. */
  override name = "HostError";

  /** Milliseconds after which the gateway takes events again; `undefined` unless the kind is `rate_limited`. */
  readonly retryAfterMs: number | undefined;

  constructor(
    /** Why, for programs. */
    readonly kind: HostErrorKind,
    reason: string,
    { retryAfterMs, ...options }: ErrorOptions & { retryAfterMs?: number | undefined } = {},
  ) {
    super(PREFIXES[kind] + reason, options);
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether the call may succeed later without a change of the plugin. */
  get isUnavailable(): boolean {
    return this.kind === "not_offered" || this.kind === "unavailable";
  }

  /** @internal */
  static notOffered(): HostError {
    return new HostError("not_offered", NOT_OFFERED);
  }

  /** A field outside its range, as the gateway would report it. @internal */
  static invalid(field: string, range: string): HostError {
    return new HostError("invalid", `\`${field}\`: ${range}`);
  }

  /** An answer without its result. @internal */
  static noResult(): HostError {
    return new HostError("failed", "an answer without its result");
  }

  /** What an error of grpc-js means. @internal */
  static fromStatus(error: ServiceError): HostError {
    const { code, details: message } = error;
    const options = { cause: error };
    switch (code) {
      case status.UNAVAILABLE:
      case status.DEADLINE_EXCEEDED:
      case status.CANCELLED:
        return new HostError("unavailable", message, options);
      case status.PERMISSION_DENIED:
      case status.UNAUTHENTICATED:
        return new HostError("denied", message, options);
      case status.INVALID_ARGUMENT:
        return new HostError("invalid", wrongField(error) ?? message, options);
      case status.RESOURCE_EXHAUSTED: {
        const retryAfterMs = statusDetails(error).retryInfo?.retryDelayMs;
        if (retryAfterMs === undefined) return new HostError("quota_exceeded", message, options);
        return new HostError("rate_limited", message, { ...options, retryAfterMs });
      }
      case status.FAILED_PRECONDITION:
        return new HostError("not_a_counter", message, options);
      default:
        return new HostError("failed", `${status[code]}: ${message}`, options);
    }
  }
}

/** The field that the details of a status name, and what is wrong with it. */
function wrongField(error: ServiceError): string | undefined {
  const [violation] = statusDetails(error).badRequest ?? [];
  return violation && `\`${violation.field}\`: ${violation.description}`;
}
