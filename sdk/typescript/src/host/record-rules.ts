/** The ranges of log lines and events (`host.proto`), and the forms of their attributes. */
import { Severity } from "../gen/hookgate/host/v1/host_pb.js";
import { checkObject } from "./argument.js";

const MAX_EVENT_NAME_BYTES = 128;
const MAX_EVENT_MESSAGE_BYTES = 1 << 10;
const MAX_ATTRIBUTES = 32;
const ATTRIBUTE_NAME = /^[A-Za-z0-9_.-]{1,64}$/;
const EVENT_NAME = /^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*$/;

/**
 * What a line or an event says besides its message, at most 32 attributes. A name has 1 to 64 letters, digits, `_`, `-` or `.`, and is not
 * `left_out`. A value is cut at 1 KiB; an attribute without a value is left out. Never put secrets or payloads into them.
 */
export interface Attributes {
  readonly [name: string]: string | number | bigint | boolean | null | Error | undefined;
}

/** A field that is outside its range. */
export interface WrongField {
  readonly field: string;
  readonly range: string;
}

interface RecordFields {
  readonly severity: Severity;
  readonly message: string;
  readonly attributes: { readonly [name: string]: string };
}

/**
 * The attributes as they are sent.
 *
 * @throws {TypeError} If they are no object.
 */
export function attributesToWire(attributes: Attributes = {}): { [name: string]: string } {
  checkObject("attributes", attributes);
  const values = Object.entries(attributes).filter(([, value]) => value !== undefined);
  return Object.fromEntries(values.map(([name, value]) => [name, String(value).toWellFormed()]));
}

/** What is wrong with a log line; `undefined` if nothing is. */
export function checkRecord({ severity, message, attributes }: RecordFields): WrongField | undefined {
  if (Severity[severity] === undefined) return { field: "severity", range: "DEBUG, INFO, WARN or ERROR" };
  if (message === "") return { field: "message", range: "not empty" };
  return checkAttributes(attributes);
}

/** What is wrong with an event; `undefined` if nothing is. */
export function checkEvent({ name, severity, message, attributes }: RecordFields & { readonly name: string }): WrongField | undefined {
  if (name.length > MAX_EVENT_NAME_BYTES || !EVENT_NAME.test(name)) {
    return { field: "name", range: "1 to 128 lower-case letters, digits, `_` and `-`, in parts joined by dots" };
  }
  if (severity === Severity.DEBUG || Severity[severity] === undefined) return { field: "severity", range: "INFO, WARN or ERROR" };
  if (Buffer.byteLength(message) > MAX_EVENT_MESSAGE_BYTES) return { field: "message", range: "at most 1 KiB" };
  return checkAttributes(attributes);
}

function checkAttributes(attributes: RecordFields["attributes"]): WrongField | undefined {
  const names = Object.keys(attributes);
  const isRight = names.length <= MAX_ATTRIBUTES && names.every((name) => ATTRIBUTE_NAME.test(name) && name !== "left_out");
  if (isRight) return undefined;
  return { field: "attributes", range: "at most 32, whose names have 1 to 64 letters, digits, `_`, `-` or `.`" };
}

/** Cuts a text at a number of bytes of UTF-8, between characters and without a mark, as the gateway cuts it. */
export function truncate(text: string, maxBytes: number): string {
  // A UTF-16 unit has at most 3 bytes.
  if (text.length * 3 <= maxBytes) return text;
  const { read } = new TextEncoder().encodeInto(text, new Uint8Array(maxBytes));
  return text.slice(0, read);
}
