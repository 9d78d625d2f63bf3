/** Texts of values that a plugin made, which may refuse to become one. */

/** Any value as a text. Never throws: what reports a failure must not fail itself. */
export function anyText(value: unknown): string {
  try {
    return String(value);
  } catch {
    return "[a value without a text]";
  }
}

/** The stack of an error, or what is thrown in its place, as a text. */
export function stackText(thrown: unknown): string {
  const stack = attempt<unknown>(
    () => (thrown instanceof Error ? (thrown.stack ?? thrown.message) : thrown),
    () => "[an error without a text]",
  );
  return anyText(stack);
}

/** The result of `read`, or `otherwise` where the plugin's values make it throw. */
export function attempt<T>(read: () => T, otherwise: (error: unknown) => T): T {
  try {
    return read();
  } catch (error) {
    return otherwise(error);
  }
}
