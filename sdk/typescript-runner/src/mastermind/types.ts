/** Plugins of Master Mind, in both of its forms. */
import type { TextResult } from "../tool-result.js";

type Input = { [name: string]: unknown };

/** A tool of the older form. */
export interface OwnTool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema: unknown;
  execute(input: Input): TextResult | Promise<TextResult>;
}

/** A tool of the newer form: one of Mastra. Its name is the key in the plugin's `tools`. */
export interface MastraTool {
  readonly description?: string;
  readonly inputSchema?: unknown;
  execute?(input: Input, context: object): unknown;
}

export interface ToolCallEvent {
  readonly toolName: string;
  readonly toolCallId: string;
  readonly args: unknown;
}

export interface ToolResultEvent {
  readonly toolName: string;
  readonly toolCallId: string;
  readonly result: { readonly content: string; readonly isError: boolean };
  readonly durationMs: number;
}

/** What a plugin does. A plugin of the newer form has `beforeToolCall` and `afterToolResult` in place of the last two. */
export interface MasterMindHooks {
  onInit?(context: object): unknown;
  onShutdown?(): unknown;
  beforeMessage?(message: string): unknown;
  afterResponse?(response: { content: string; stopReason: string }): unknown;
  beforeToolCall?(event: ToolCallEvent): unknown;
  afterToolResult?(event: ToolResultEvent): unknown;
  beforeToolExecute?(name: string, input: unknown): unknown;
  afterToolExecute?(name: string, input: unknown, result: TextResult): unknown;
}

export interface MasterMindPlugin {
  readonly name: string;
  readonly version?: unknown;
  readonly hooks?: MasterMindHooks;
  readonly tools?: readonly OwnTool[] | { readonly [name: string]: MastraTool };
}

export type MasterMindExport = MasterMindPlugin | ((options: object) => MasterMindPlugin | Promise<MasterMindPlugin>);

/** An entry of a list of plugins. */
export interface PluginSpec {
  readonly path: string;
  readonly options?: object;
  readonly enabled?: boolean;
  readonly replace?: boolean;
}

/** The hooks that the runner knows. */
export const HOOK_NAMES = [
  "onInit",
  "onShutdown",
  "beforeMessage",
  "afterResponse",
  "beforeToolCall",
  "afterToolResult",
  "beforeToolExecute",
  "afterToolExecute",
] as const satisfies readonly (keyof MasterMindHooks)[];
