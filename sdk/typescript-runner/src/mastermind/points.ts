/** What Master Mind's hooks mean at the gateway's points. */
import { isDeepStrictEqual } from "node:util";
import {
  type AfterToolResultPayload,
  type BeforeLlmRequestPayload,
  type BeforeResponsePayload,
  type BeforeToolCallPayload,
  type Context,
  type HookPayload,
  PluginError,
  type PointName,
  type Reply,
  cancel,
  proceed,
} from "@hookgate/sdk";
import { messageOf } from "../entry.js";
import { cut } from "../notices.js";
import { exactIntegers, plainNumbers } from "../numbers.js";
import { MASTER_MIND_FORM, type TextResult, checkTextResult, hasContent, replyWithResult, textResultOf } from "../tool-result.js";
import type { MasterMindHooks, ToolCallEvent, ToolResultEvent } from "./types.js";

type HookHandler = (hooks: MasterMindHooks, call: any, ctx: Context) => Promise<Reply<any>>;

/** How a plugin with these hooks answers at each point. */
export function pointHandlers(hooks: MasterMindHooks): { [Name in PointName]?: HookHandler } {
  return {
    ...(hooks.beforeMessage && { beforeLlmRequest }),
    ...((hooks.beforeToolExecute ?? hooks.beforeToolCall) && { beforeToolCall }),
    ...((hooks.afterToolExecute ?? hooks.afterToolResult) && { afterToolResult }),
    ...(hooks.afterResponse && { beforeResponse }),
  };
}

async function beforeLlmRequest(hooks: MasterMindHooks, { text }: BeforeLlmRequestPayload): Promise<Reply<any>> {
  if (hooks.beforeMessage === undefined) return proceed();
  const message = await hooks.beforeMessage(text);
  if (typeof message !== "string")
    throw new TypeError(`beforeMessage returned ${message === null ? "null" : typeof message}: it must return the message`);
  return message === text ? proceed() : proceed({ text: message });
}

async function beforeToolCall(hooks: MasterMindHooks, call: BeforeToolCallPayload, ctx: Context): Promise<Reply<any>> {
  // Arguments are always objects in Master Mind, and its plugins copy their members.
  if (call.args === null || typeof call.args !== "object" || Array.isArray(call.args)) {
    throw PluginError.invalid("`args` must be an object: plugins of Master Mind take no others");
  }
  let rewritten: { name: unknown; args: unknown } | null;
  try {
    rewritten = await rewriteToolCall(hooks, call, ctx);
  } catch (error) {
    // In Master Mind the model sees it as the tool's error, and the tool doesn't run.
    return cancel("TOOL_FAILED", cut(`Tool execution error: ${messageOf(error)}`));
  }
  if (rewritten === null) return cancel("TOOL_NOT_ALLOWED", cut(`Tool execution blocked by plugin for tool: ${call.toolName}`));
  const { name, args } = rewritten;
  return proceed({
    ...(name === call.toolName ? {} : { toolName: name as string }),
    ...(isDeepStrictEqual(args, plainNumbers(call.args)) ? {} : { args: exactIntegers(args, call.args) }),
  });
}

async function rewriteToolCall(
  hooks: MasterMindHooks,
  call: BeforeToolCallPayload,
  ctx: Context,
): Promise<{ name: unknown; args: unknown } | null> {
  const { toolName, callId } = call;
  const args = plainNumbers(call.args);
  if (hooks.beforeToolExecute !== undefined) {
    const returned = (await hooks.beforeToolExecute(toolName, args)) as { name?: unknown; input?: unknown } | null;
    return returned === null ? null : checkRewrite("beforeToolExecute", returned?.name, returned?.input);
  }
  if (hooks.beforeToolCall === undefined) return { name: toolName, args };
  const event: ToolCallEvent = { toolName, toolCallId: callId ?? ctx.requestId, args };
  const returned = (await hooks.beforeToolCall(event)) as Partial<ToolCallEvent> | null;
  return returned === null ? null : checkRewrite("beforeToolCall", returned?.toolName, returned?.args);
}

function checkRewrite(hook: string, name: unknown, args: unknown): { name: unknown; args: unknown } {
  if (typeof name === "string" && args !== undefined) return { name, args };
  const right = hook === "beforeToolCall" ? "`toolName` and `args`" : "`name` and `input`";
  throw new TypeError(`${hook} returned no tool call: return null to block it, or an object with ${right}`);
}

async function afterToolResult(hooks: MasterMindHooks, call: AfterToolResultPayload, ctx: Context): Promise<Reply<any>> {
  // Master Mind doesn't ask plugins about a tool that threw. One that returned an error sent it in its own form.
  if (!call.success && !hasContent(call.result)) return proceed();
  const before = textResultOf(call, MASTER_MIND_FORM);
  let after: TextResult;
  try {
    after = await rewriteResult(hooks, call, before, ctx);
  } catch (error) {
    return cancel("TOOL_FAILED", cut(`Tool execution error: ${messageOf(error)}`));
  }
  // A result without `isError` is none, as in Master Mind: it replaces the whole result.
  const { content, isError = false } = after;
  return replyWithResult(call, before, { content, isError }, [], MASTER_MIND_FORM);
}

async function rewriteResult(hooks: MasterMindHooks, call: AfterToolResultPayload, before: TextResult, ctx: Context): Promise<TextResult> {
  const { toolName, callId, durationMs = 0 } = call;
  const result = { content: before.content, isError: before.isError ?? false };
  if (hooks.afterToolExecute !== undefined) {
    return checkTextResult(await hooks.afterToolExecute(toolName, plainNumbers(call.args ?? {}), result), "afterToolExecute");
  }
  if (hooks.afterToolResult === undefined) return before;
  const event: ToolResultEvent = { toolName, toolCallId: callId ?? ctx.requestId, result, durationMs };
  const returned = (await hooks.afterToolResult(event)) as Partial<ToolResultEvent> | undefined;
  return checkTextResult(returned?.result, "afterToolResult");
}

async function beforeResponse(hooks: MasterMindHooks, { content, stopReason }: BeforeResponsePayload): Promise<Reply<any>> {
  await hooks.afterResponse?.({ content, stopReason: stopReason ?? "end_turn" });
  return proceed();
}

/** The hook `turn_end`, for agents that don't ask before a response: the last answer among the messages. */
export async function turnEnd(hooks: MasterMindHooks, { body }: HookPayload): Promise<void> {
  const messages = (body.messages ?? []) as { role?: unknown; content?: unknown }[];
  const content = textOf(messages.findLast(({ role }) => role === "assistant")?.content);
  await hooks.afterResponse?.({ content, stopReason: typeof body.outcome === "string" ? body.outcome : "end_turn" });
}

/** The text of a message, which is a text or a list of parts. */
function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part: { text?: unknown }) => (typeof part?.text === "string" ? part.text : "")).join("");
}
