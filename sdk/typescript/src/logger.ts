/** The process's own log: one JSON object per line on stderr. stdout stays the program's. */

/** Where the SDK says what happens in the process. */
export interface Logger {
  /** Something normal. */
  info(message: string, attributes?: LogAttributes): void;
  /** Something that somebody should look at. */
  warn(message: string, attributes?: LogAttributes): void;
  /** Something that failed. */
  error(message: string, attributes?: LogAttributes): void;
}

/** What a line says besides its message. */
export interface LogAttributes {
  readonly [name: string]: unknown;
}

/** Writes each line as a JSON object to stderr. */
export const stderrLogger: Logger = {
  info: (message, attributes) => writeLine("info", message, attributes),
  warn: (message, attributes) => writeLine("warn", message, attributes),
  error: (message, attributes) => writeLine("error", message, attributes),
};

function writeLine(level: string, message: string, attributes: LogAttributes = {}): void {
  const line = { timestamp: new Date().toISOString(), level, message };
  process.stderr.write(`${textOf({ ...line, ...plain(attributes) }) ?? textOf(line)}\n`);
}

/** Errors as their stack: their `toJSON` may show more than a log should have. */
function plain(attributes: LogAttributes): LogAttributes {
  const text = (value: unknown) => (value instanceof Error ? (value.stack ?? value.message) : value);
  return Object.fromEntries(Object.entries(attributes).map(([name, value]) => [name, text(value)]));
}

/** `undefined` if the line has no JSON form: a log must not fail what it reports. */
function textOf(line: object): string | undefined {
  try {
    return JSON.stringify(line, (_, value) => (typeof value === "bigint" ? String(value) : value));
  } catch {
    return undefined;
  }
}
