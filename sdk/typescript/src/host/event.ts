/** Events for the gateway's operators. */
import { EventService, Severity } from "../gen/hookgate/host/v1/host_pb.js";
import { checkObject, checkString } from "./argument.js";
import type { AbortOptions, HostClient } from "./client.js";
import { HostError } from "./errors.js";
import { type Attributes, attributesToWire } from "./record-rules.js";

const SEVERITIES = { info: Severity.INFO, warn: Severity.WARN, error: Severity.ERROR };

/** An event for the gateway's operators: a log line, which `hookgate events` shows too. */
export interface Event {
  /** What happened, such as `catalog.updated`: 1 to 128 lower-case letters, digits, `_` and `-`, in parts joined by dots. */
  readonly name: string;
  /**
   * `info`: something normal. `warn`: somebody should look at it. `error`: the plugin failed to do something. The default is `info`.
   */
  readonly severity?: "info" | "warn" | "error" | undefined;
  /** A sentence for people, at most 1 KiB. No secrets, no payloads. */
  readonly message?: string | undefined;
  /** Facts about it, at most 32. */
  readonly attributes?: Attributes | undefined;
}

/**
 * Emits an event. The plugin needs the capability `emit`.
 *
 * @throws {HostError} `rate_limited` beyond 100 events per second of a plugin at one gateway, and then the event is dropped; `invalid` if
 * a field is outside its range.
 * @throws {TypeError} If a field has a wrong type.
 */
export async function emit(client: HostClient, event: Event, options?: AbortOptions): Promise<void> {
  checkObject("event", event);
  const { name, severity = "info", message = "", attributes } = event;
  for (const [field, value] of Object.entries({ name, severity, message })) checkString(field, value);
  // The gateway would take another severity for `info`.
  if (!Object.hasOwn(SEVERITIES, severity)) throw HostError.invalid("severity", "`info`, `warn` or `error`");
  const request = { name, severity: SEVERITIES[severity], message, attributes: attributesToWire(attributes) };
  await client.call(EventService.method.emitEvent, request, options);
}
