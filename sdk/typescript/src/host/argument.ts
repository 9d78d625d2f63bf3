/** Arguments of a wrong type, which TypeScript would have found. */

/**
 * Checks that an argument is a string.
 *
 * @throws {TypeError} The message names the argument.
 */
export function checkString(name: string, value: unknown): void {
  if (typeof value !== "string") throw wrongType(name, "a string", value);
}

/**
 * Checks that an argument is an object with members, as options are. Another value would count as one without members.
 *
 * @throws {TypeError} The message names the argument.
 */
export function checkObject(name: string, value: unknown): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw wrongType(name, "an object", value);
}

/** The error for an argument of a wrong type. It tells the type only, because the value may be secret. */
export function wrongType(name: string, right: string, value: unknown): TypeError {
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  return new TypeError(`\`${name}\` must be ${right}, not ${type}`);
}
