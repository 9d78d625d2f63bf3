import type { LogAttributes, Logger } from "../../src/logger.js";

/** A line of the process's own log. */
export interface RecordedLine {
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  readonly attributes: LogAttributes;
}

/** Keeps what is logged. */
export class RecordingLogger implements Logger {
  readonly lines: RecordedLine[] = [];

  info(message: string, attributes: LogAttributes = {}): void {
    this.lines.push({ level: "info", message, attributes });
  }

  warn(message: string, attributes: LogAttributes = {}): void {
    this.lines.push({ level: "warn", message, attributes });
  }

  error(message: string, attributes: LogAttributes = {}): void {
    this.lines.push({ level: "error", message, attributes });
  }
}

/** Waits until a condition holds. The time limit of the test runner limits the wait. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}
