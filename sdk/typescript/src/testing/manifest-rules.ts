/** The gateway's rules for manifests and tools (docs/protocol.md, sections 2 and 10). */
import { toBinary } from "@bufbuild/protobuf";
import type { DescribeResponse } from "../gen/hookgate/plugin/v1/plugin_pb.js";
import { type Tool, ToolSchema } from "../gen/hookgate/types/v1/types_pb.js";
import { type JsonObject, parseJson } from "../json.js";
import { POINTS } from "../point.js";
import { MAX_SCHEMA_BYTES } from "../schema.js";
import { CallError } from "./call-error.js";
import { globToRegExp } from "./glob.js";

const HOOK_NAME = /^[a-z][a-z0-9_]{0,63}$/;
const TOOL_NAME = /^[A-Za-z0-9_.-]{1,128}$/;
const CAPABILITIES: readonly string[] = ["storage:read", "storage:write", "log", "emit"];
/** How many hooks, globs of tools' names, or tools a plugin may have. */
const MAX_ENTRIES = 64;
const MAX_GLOB_BYTES = 128;
const MAX_DESCRIPTION_BYTES = 4 << 10;
const MAX_TITLE_BYTES = 256;
const MAX_TOOLS_BYTES = 256 << 10;

/**
 * Checks what a plugin says of itself. `definePlugin` has checked its name and version.
 *
 * @throws {CallError} If every gateway would reject it.
 */
export function checkManifest(manifest: DescribeResponse): void {
  for (const capability of manifest.capabilities) {
    ensure(CAPABILITIES.includes(capability), `\`capabilities\` has \`${capability}\`, which gateways don't have`);
  }
  checkOffers(manifest);
  checkSchemas(manifest);
}

function checkOffers({ points, hooks, tools }: DescribeResponse): void {
  ensure(points.length + hooks.length + tools.length > 0, "the plugin offers no point, no hook and no tool");
  ensure(hooks.length <= MAX_ENTRIES, `\`hooks\` has ${hooks.length} hooks: keep it within ${MAX_ENTRIES}`);
  for (const { hook } of hooks) {
    const form = "the name of a hook is a lower-case letter, then up to 63 lower-case letters, digits and `_`";
    ensure(HOOK_NAME.test(hook), `\`hooks\` has \`${hook}\`: ${form}`);
    const isPoint = POINTS.some(({ wireName }) => wireName === hook);
    ensure(!isPoint, `\`hooks\` has \`${hook}\`: this is the name of a point, which no hook may have`);
  }
  ensure(tools.length <= MAX_ENTRIES, `\`toolNames\` has ${tools.length} globs: keep it within ${MAX_ENTRIES}`);
  for (const glob of tools) {
    ensure(Buffer.byteLength(glob) <= MAX_GLOB_BYTES, `\`toolNames\` has a glob of more than ${MAX_GLOB_BYTES} bytes`);
    ensure(/[^*?]/.test(glob), `\`toolNames\` has \`${glob}\`, which has only wildcards: begin it with the plugin's name`);
    compile(glob);
  }
}

function checkSchemas({ configSchema, tenantConfigSchema }: DescribeResponse): void {
  for (const [name, schema] of [
    ["config", configSchema],
    ["tenantConfig", tenantConfigSchema],
  ] as const) {
    ensure(schema.length <= MAX_SCHEMA_BYTES, `the JSON Schema of \`${name}\` is over 64 KiB`);
  }
  const pluginLevel = propertiesOf(configSchema);
  const shared = propertiesOf(tenantConfigSchema).find((property) => pluginLevel.includes(property));
  ensure(shared === undefined, `\`config\` and \`tenantConfig\` both have \`${shared}\`: rename one`);
}

function propertiesOf(schema: Uint8Array): string[] {
  const { properties } = parseJson(schema) as JsonObject;
  return typeof properties === "object" && properties !== null ? Object.keys(properties) : [];
}

/**
 * Checks the tools of a plugin whose manifest has these globs.
 *
 * @throws {CallError} If every gateway would reject them.
 */
export function checkTools(globs: readonly string[], tools: readonly Tool[]): void {
  ensure(tools.length <= MAX_ENTRIES, `\`tools\` has ${tools.length} tools: keep it within ${MAX_ENTRIES}`);
  const bytes = tools.reduce((sum, tool) => sum + toBinary(ToolSchema, tool).length, 0);
  ensure(bytes <= MAX_TOOLS_BYTES, `\`tools\` has ${bytes} bytes: keep it within 256 KiB`);
  const names = tools.map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  ensure(twice === undefined, `\`tools\` names \`${twice}\` twice: name each tool once`);
  const patterns = globs.map(compile);
  for (const tool of tools) {
    checkTool(tool);
    ensure(
      patterns.some((pattern) => pattern.test(tool.name)),
      `no glob in \`toolNames\` covers the tool \`${tool.name}\``,
    );
  }
}

function checkTool({ name, description, inputSchema, annotations }: Tool): void {
  ensure(TOOL_NAME.test(name), `a tool is named \`${name}\`: a name must be 1 to 128 letters, digits, \`_\`, \`.\` and \`-\``);
  const isDescribed = description !== "" && Buffer.byteLength(description) <= MAX_DESCRIPTION_BYTES;
  ensure(isDescribed, `\`${name}\` needs a \`description\` of 1 byte to 4 KiB`);
  const titleBytes = Buffer.byteLength(annotations?.title ?? "");
  ensure(titleBytes <= MAX_TITLE_BYTES, `the \`title\` of \`${name}\` is longer than ${MAX_TITLE_BYTES} bytes`);
  ensure(inputSchema.length <= MAX_SCHEMA_BYTES, `the \`input\` of \`${name}\` is over 64 KiB as a JSON Schema`);
  const { type } = parseJson(inputSchema) as JsonObject;
  ensure(type === "object", `the \`input\` of \`${name}\` must be an object`);
}

function compile(glob: string): RegExp {
  try {
    return globToRegExp(glob);
  } catch (error) {
    throw new CallError("FAILED_PRECONDITION", `\`toolNames\` has \`${glob}\`: ${(error as Error).message}`);
  }
}

function ensure(isRight: boolean, fault: string): void {
  if (!isRight) throw new CallError("FAILED_PRECONDITION", fault);
}
