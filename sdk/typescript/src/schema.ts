/** Configuration and arguments of tools: checked and typed by a schema library that implements Standard Schema. */
import type { StandardJSONSchemaV1, StandardSchemaV1 } from "@standard-schema/spec";

/**
 * A schema of zod 4.2 or newer, or of another library that implements Standard Schema with Standard JSON Schema. It checks values,
 * gives them a type, and tells the gateway its JSON Schema.
 */
export interface Schema<Input = unknown, Output = Input> {
  /** What both standards define. */
  readonly "~standard": StandardSchemaV1.Props<Input, Output> & StandardJSONSchemaV1.Props<Input, Output>;
}

/** The type of checked values. */
export type OutputOf<S extends Schema | undefined> = S extends Schema ? StandardSchemaV1.InferOutput<S> : Record<string, never>;

/** Largest JSON Schema of a manifest, in bytes (docs/protocol.md, section 2). */
export const MAX_SCHEMA_BYTES = 64 * 1024;

/** The JSON Schema of an object without members. */
const NO_MEMBERS = { type: "object", additionalProperties: false };

/** A value doesn't fit its schema. */
export class SchemaError extends Error {
  override name = "SchemaError";
}

/**
 * The JSON Schema of what a value must be before it is checked; without a schema, an object without members.
 *
 * @param role What the schema is called in the message of an error.
 * @throws {TypeError} If the library can't tell its JSON Schema, or it is too large.
 */
export function jsonSchemaOf(schema: Schema | undefined, role: string): Record<string, unknown> {
  if (schema === undefined) return NO_MEMBERS;
  const { jsonSchema, vendor } = schema["~standard"] ?? {};
  if (jsonSchema === undefined) {
    const known = vendor === undefined ? "isn't a Standard Schema" : `is of ${vendor}, and has no Standard JSON Schema`;
    throw new TypeError(`${role} ${known}: use zod 4.2 or newer, or another library that implements both`);
  }
  const described = describe(() => jsonSchema.input({ target: "draft-2020-12" }), role);
  const size = Buffer.byteLength(JSON.stringify(described));
  if (size > MAX_SCHEMA_BYTES) throw new TypeError(`${role} has ${size} bytes as a JSON Schema, more than ${MAX_SCHEMA_BYTES}`);
  return described;
}

function describe(write: () => Record<string, unknown>, role: string): Record<string, unknown> {
  try {
    return write();
  } catch (error) {
    throw new TypeError(`${role} has no JSON Schema: ${(error as Error).message}`, { cause: error });
  }
}

/**
 * Checks a value.
 *
 * @param options.secret The value may hold secrets. Then the message has only texts of libraries that are known to quote no values.
 * @throws {SchemaError} If it doesn't fit. The message names the members.
 */
export async function check<S extends Schema | undefined>(
  schema: S,
  value: unknown,
  options: { secret?: boolean } = {},
): Promise<OutputOf<S>> {
  if (schema === undefined) return {} as OutputOf<S>;
  const { validate, vendor } = schema["~standard"];
  const result = await validate(value);
  if (result.issues === undefined) return result.value as OutputOf<S>;
  const quotesValues = options.secret === true && vendor !== "zod";
  throw new SchemaError(result.issues.map((issue) => describeIssue(issue, quotesValues)).join("; "));
}

function describeIssue({ path = [], message }: StandardSchemaV1.Issue, quotesValues: boolean): string {
  const field = path.map((segment) => String(typeof segment === "object" ? segment.key : segment)).join(".");
  const text = quotesValues ? "doesn't fit the schema" : message;
  return field === "" ? text : `field \`${field}\`: ${text}`;
}
