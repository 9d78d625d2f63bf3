/** The process's own log: one JSON object per line on stderr. stdout stays the program's. */

/** Where the SDK says what happens in the process. */
export interface Logger {
  info(message: string, attributes?: LogAttributes): void;
  warn(message: string, attributes?: LogAttributes): void;
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
  const line = { timestamp: new Date().toISOString(), level, message, ...attributes };
  process.stderr.write(`${JSON.stringify(line, (_, value) => (value instanceof Error ? (value.stack ?? value.message) : value))}\n`);
}
