/** The log and the events of a test host. */
import { Severity } from "../gen/hookgate/host/v1/host_pb.js";

/** A line that a plugin wrote to the gateway's log. */
export interface TestLogLine {
  /** The plugin's name. */
  readonly plugin: string;
  /** The call's tenant; `undefined` outside of calls. */
  readonly tenant: string | undefined;
  /** How bad it is. */
  readonly severity: "debug" | "info" | "warn" | "error";
  /** What the plugin said. */
  readonly message: string;
  /** What it said besides, as texts. */
  readonly attributes: { readonly [name: string]: string };
}

/** An event that a plugin emitted. */
export interface TestEvent extends TestLogLine {
  /** What happened, such as `catalog.updated`. */
  readonly name: string;
}

const SEVERITIES = {
  [Severity.UNSPECIFIED]: "info",
  [Severity.DEBUG]: "debug",
  [Severity.INFO]: "info",
  [Severity.WARN]: "warn",
  [Severity.ERROR]: "error",
} as const;

interface WireRecord {
  readonly severity: Severity;
  readonly message: string;
  readonly attributes: { readonly [name: string]: string };
}

/** The line as a test reads it. */
export function recordFromWire(plugin: string, tenant: string | undefined, { severity, message, attributes }: WireRecord): TestLogLine {
  return { plugin, tenant, severity: SEVERITIES[severity], message, attributes };
}
