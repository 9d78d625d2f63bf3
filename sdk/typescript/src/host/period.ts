/** Lengths of time, as a plugin's configuration may write them. */
import { wrongType } from "./argument.js";
import { HostError } from "./errors.js";

/** A length of time: `minute`, `hour`, `day`, or a whole number and a unit, such as `500ms`, `30s`, `10m` or `24h`. */
export type Period = "minute" | "hour" | "day" | `${number}${"ms" | "s" | "m" | "h"}`;

/** The longest period: 366 days, in milliseconds. */
const MAX_PERIOD_MS = 366 * 24 * 60 * 60 * 1000;

const UNITS_MS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };
const NAMES_MS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 };

/**
 * A period in milliseconds.
 *
 * @throws {TypeError} If the text is no period. The message says what is expected.
 */
export function periodMs(period: Period): number {
  if (Object.hasOwn(NAMES_MS, period)) return NAMES_MS[period as keyof typeof NAMES_MS];
  const [, count, unit] = /^(\d+)(ms|s|m|h)$/.exec(period) ?? [];
  const ms = Number(count) * UNITS_MS[unit as keyof typeof UNITS_MS];
  if (Number.isSafeInteger(ms)) return ms;
  throw new TypeError(`${JSON.stringify(period)} is no period: write a whole number and \`ms\`, \`s\`, \`m\` or \`h\`, such as \`500ms\``);
}

/** The time until an entry expires, as it is sent. */
export function wireTtl(ms: number): bigint {
  if (typeof ms !== "number") throw wrongType("ttlMs", "a number of milliseconds", ms);
  return wirePeriod("ttl_ms", ms);
}

/** The window of a counter, as it is sent. */
export function wireWindow(window: number | Period): bigint {
  if (typeof window === "string") return wirePeriod("window_ms", periodMs(window));
  if (typeof window === "number") return wirePeriod("window_ms", window);
  throw wrongType("window", "a number of milliseconds, or a string such as `day` or `30s`", window);
}

/** Milliseconds of a field as they are sent. Rounded up, so that no positive time becomes 0. */
function wirePeriod(field: string, ms: number): bigint {
  const whole = Math.ceil(ms);
  if (whole >= 1 && whole <= MAX_PERIOD_MS) return BigInt(whole);
  throw HostError.invalid(field, `1 to ${MAX_PERIOD_MS} milliseconds`);
}
