/** Tools of Master Mind's plugins, in both forms, and the registry that `onInit` gets. */
import { type JsonValue, type Schema, type Tool, ToolError } from "@hookgate/sdk";
import { EntryError, messageOf } from "../entry.js";
import { cut } from "../notices.js";
import { plainNumbers } from "../numbers.js";
import { type TextResult, checkTextResult, ownToolResult } from "../tool-result.js";
import { checkToolName, toolDescription, toolInput } from "../tools.js";
import type { MasterMindPlugin, MastraTool, OwnTool } from "./types.js";

/** The tools of a plugin by name. Tools of the newer form are turned into the older one. */
export function toolsOf({ name: plugin, tools = [] }: MasterMindPlugin): Map<string, OwnTool> {
  const list = Array.isArray(tools) ? (tools as OwnTool[]) : Object.entries(tools as { [name: string]: MastraTool }).map(fromMastra);
  return new Map(list.map((tool) => [checkTool(plugin, tool).name, tool]));
}

function fromMastra([name, tool]: [string, MastraTool]): OwnTool {
  const { description = "", inputSchema = { type: "object" } } = tool;
  return { name, description, inputSchema, execute: async (input) => (await tool.execute?.(input, {})) as TextResult };
}

function checkTool(plugin: string, tool: OwnTool): OwnTool {
  checkToolName(plugin, tool?.name);
  if (typeof tool.execute !== "function") throw new EntryError(`plugin '${plugin}': the tool ${tool.name} has no function \`execute\``);
  return tool;
}

/** A tool as the SDK serves it. What the tool throws is its error for the model, as in Master Mind. */
export function servedTool(plugin: MasterMindPlugin, tool: OwnTool): Tool {
  const { name, description, inputSchema } = tool;
  const isMastra = !Array.isArray(plugin.tools);
  const run = async (input: { [name: string]: unknown }): Promise<unknown> => {
    let returned: unknown;
    try {
      returned = await tool.execute(input);
    } catch (error) {
      throw new ToolError(cut(`Tool execution error: ${messageOf(error)}`));
    }
    // A tool of Mastra returns any value.
    return isMastra ? returned : ownToolResult(checkTextResult(returned, `the tool ${name}`));
  };
  return { name, description: toolDescription(name, description), input: withPlainNumbers(toolInput(plugin.name, name, inputSchema)), run };
}

/** The schema for arguments without BigInts, which neither the schemas of plugins nor their tools know. */
function withPlainNumbers(schema: Schema<any, any>): Schema<any, any> {
  const { version, vendor, jsonSchema } = schema["~standard"];
  const validate = (value: unknown) => schema["~standard"].validate(plainNumbers(value as JsonValue));
  return { "~standard": { version, vendor, jsonSchema, validate } };
}

/** The tools of all plugins of the process, for `onInit`. The agent's own are unknown here. */
export class ToolRegistry {
  readonly #tools = new Map<string, { readonly tool: OwnTool; readonly owner: string }>();

  /** Adds a plugin's tools. @throws {EntryError} If another plugin has one of the names. */
  add(owner: string, tools: Iterable<OwnTool>, replace: boolean): void {
    for (const tool of tools) {
      const other = this.#tools.get(tool.name);
      if (other !== undefined && other.owner !== owner && !replace) {
        throw new EntryError(
          `plugin '${owner}' has the tool ${tool.name}, and so has '${other.owner}': set \`replace: true\` to take it over`,
        );
      }
      this.#tools.set(tool.name, { tool, owner });
    }
  }

  /** Whether the plugin's tool of this name was taken over. */
  isReplaced(owner: string, name: string): boolean {
    const registered = this.#tools.get(name);
    return registered !== undefined && registered.owner !== owner;
  }

  /** What a plugin's `onInit` gets. @param register Called with a tool that it adds. */
  view(register: (tool: OwnTool) => void): object {
    return {
      register,
      has: (name: string) => this.#tools.has(name),
      list: () => [...this.#tools.keys()],
      getLLMTools: () =>
        [...this.#tools.values()].map(({ tool }) => ({ name: tool.name, description: tool.description, input_schema: tool.inputSchema })),
      execute: (name: string, input: { [name: string]: unknown }) => this.#execute(name, input),
    };
  }

  async #execute(name: string, input: { [name: string]: unknown }): Promise<TextResult> {
    const registered = this.#tools.get(name);
    if (registered === undefined) return { content: `Unknown tool: ${name}`, isError: true };
    try {
      return await registered.tool.execute(input);
    } catch (error) {
      return { content: `Tool execution error: ${messageOf(error)}`, isError: true };
    }
  }
}
