/** Schemas for the SDK: any object, and JSON Schemas as plugins of other systems have them. */
import { type JsonObject, type Schema, writeJson } from "@hookgate/sdk";

type Issues = readonly string[];

/** Configuration of any form. Only the plugin knows what it may be. */
export const anyObject: Schema<JsonObject> = schemaOf({ type: "object" }, () => []) as Schema<JsonObject>;

/**
 * A schema that the gateway gets as this JSON Schema.
 *
 * @param check Says what is wrong with a value. An array or a value of another type never comes to it.
 */
export function schemaOf(jsonSchema: object, check: (value: object) => Issues): Schema<unknown> {
  // TypeBox keeps symbols and functions in its schemas: what is sent is plain JSON.
  const described = JSON.parse(writeJson(jsonSchema)) as Record<string, unknown>;
  return {
    "~standard": {
      version: 1,
      vendor: "hookgate-runner",
      validate(value: unknown) {
        const isObject = value !== null && typeof value === "object" && !Array.isArray(value);
        const issues = isObject ? check(value) : ["must be an object"];
        return issues.length === 0 ? { value } : { issues: issues.map((message) => ({ message })) };
      },
      jsonSchema: { input: () => described, output: () => described },
    },
  };
}
