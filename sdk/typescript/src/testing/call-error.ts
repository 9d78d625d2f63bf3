/** Errors of calls and starts, as a gateway sees them. */
import { status } from "@grpc/grpc-js";
import { StatusError } from "../server/plugin-host.js";

/** The name of a status of gRPC, such as `UNAVAILABLE`. */
export type StatusName = Exclude<keyof typeof status, "OK">;

/**
 * Why a call or a start failed, as a gateway sees it:
 *
 * - `ABORTED`: the plugin threw an error. It is the `cause`.
 * - `UNAVAILABLE`, `INVALID_ARGUMENT`, `INTERNAL`: the plugin threw the `PluginError` of this kind, or a gateway would reject its reply
 *   (`INTERNAL`) or its configuration (`INVALID_ARGUMENT`).
 * - `UNIMPLEMENTED`, `NOT_FOUND`: the plugin doesn't answer there, or has no such tool.
 * - `FAILED_PRECONDITION`: a gateway would reject the plugin's manifest or tools, or the plugin was shut down.
 */
export class CallError extends Error {
  /** The name of the class. */
  override name = "CallError";

  constructor(
    /** The status that a gateway sees. */
    readonly code: StatusName,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Runs a call of the plugin. Turns the SDK's errors into {@link CallError}s. */
export async function asGateway<T>(call: () => T | Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (!(error instanceof StatusError)) throw error;
    const { code, details, cause } = error;
    throw new CallError(status[code] as StatusName, details, cause === undefined ? {} : { cause });
  }
}
