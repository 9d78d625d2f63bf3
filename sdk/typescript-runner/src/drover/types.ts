/** Plugins of drover. Whatever they return may be an Effect, a promise or a value. */
import type { TextResult } from "../tool-result.js";

/** The run that a call belongs to. */
export interface RunContext {
  readonly runId: string;
  readonly parentRunId?: string;
  readonly depth: number;
  readonly signal: AbortSignal;
  readonly meta: object;
}

export interface ToolContext {
  readonly runId: string;
  readonly toolUseId: string;
  readonly signal: AbortSignal;
  readonly run: RunContext;
}

/** A tool of the agent or of a plugin. */
export interface ToolDef {
  readonly id: string;
  readonly description?: string;
  readonly inputSchema?: unknown;
  readonly destructive?: boolean;
  execute(input: unknown, ctx: ToolContext): unknown;
}

export interface HarnessPlugin {
  readonly id: string;
  readonly tools?: readonly ToolDef[];
  wrapTool?(tool: ToolDef): ToolDef;
  beforeToolCall?(toolName: string, input: unknown, ctx: RunContext, meta: object): unknown;
  afterToolCall?(toolName: string, input: unknown, result: TextResult, ctx: RunContext): unknown;
  beforeCompaction?(history: readonly unknown[], ctx: RunContext): unknown;
  onEvent?(event: object, ctx: RunContext): unknown;
  onRunStart?(ctx: RunContext): unknown;
  onRunEnd?(result: object, ctx: RunContext): unknown;
}

/** The methods that the runner calls. */
export const METHODS = [
  "wrapTool",
  "beforeToolCall",
  "afterToolCall",
  "beforeCompaction",
  "onEvent",
  "onRunStart",
  "onRunEnd",
] as const satisfies readonly (keyof HarnessPlugin)[];

export type Method = (typeof METHODS)[number];
