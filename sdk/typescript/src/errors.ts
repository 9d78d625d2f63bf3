/** Errors of calls and of starts. An error is not a verdict: a plugin that wants to stop an action answers with `cancel`. */
import { HostError } from "./host/index.js";
import { status } from "@grpc/grpc-js";

/** Maximum length of a status's message, in bytes. Many clients accept only 8 KiB of trailers. */
const MAX_MESSAGE_BYTES = 1 << 10;

/**
 * Why a plugin could not answer. The step fails, and its binding decides whether the chain stops.
 *
 * An error of another class becomes the status ABORTED: the gateway answers PLUGIN_ERROR, and keeps calling the plugin.
 */
export class PluginError extends Error {
  /** The name of the class. */
  override name = "PluginError";

  /** @internal */
  constructor(
    /** @internal */
    readonly code: status,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }

  /** The plugin is broken; the gateway answers PLUGIN_ERROR. Several in a row keep calls away for a while. */
  static internal(message: string, options?: ErrorOptions): PluginError {
    return new PluginError(status.INTERNAL, message, options);
  }

  /** Something that the plugin needs can't be reached; the gateway answers PLUGIN_UNAVAILABLE, or starts the plugin later. */
  static unavailable(message: string, options?: ErrorOptions): PluginError {
    return new PluginError(status.UNAVAILABLE, message, options);
  }

  /** The call contains something that the plugin can't process. */
  static invalid(message: string, options?: ErrorOptions): PluginError {
    return new PluginError(status.INVALID_ARGUMENT, message, options);
  }

  /**
   * The configuration is wrong: names the `field`, a path such as `limits.tokens`, and what is expected. Leave the value out, which
   * may be secret. The gateway rejects the plugin as CONFIG_REFUSED and shows this text.
   */
  static config(field: string, expected: string): PluginError {
    return new PluginError(status.INVALID_ARGUMENT, `config field \`${field}\`: ${expected}`);
  }
}

/** A status of gRPC. */
export interface Status {
  readonly code: status;
  readonly details: string;
}

/** The status that tells the gateway what a plugin threw. */
export function statusOf(error: unknown): Status {
  const details = shorten(error instanceof Error ? error.message : String(error));
  if (error instanceof PluginError) return { code: error.code, details };
  if (isUnavailable(error)) return { code: status.UNAVAILABLE, details };
  return { code: status.ABORTED, details };
}

/** Whether the gateway's services, which the plugin called, are unavailable. */
function isUnavailable(error: unknown): boolean {
  for (let cause = error, depth = 0; cause instanceof Error && depth < 16; cause = cause.cause, depth += 1) {
    if (cause instanceof HostError) return cause.isUnavailable;
  }
  return false;
}

/** Truncates a message to 1 KiB. */
export function shorten(message: string): string {
  const bytes = Buffer.from(message.toWellFormed());
  if (bytes.length <= MAX_MESSAGE_BYTES) return bytes.toString();
  const end = MAX_MESSAGE_BYTES - Buffer.byteLength("…");
  // A character that the cut splits decodes to U+FFFD.
  return `${bytes
    .subarray(0, end)
    .toString()
    .replace(/\ufffd+$/, "")}…`;
}
