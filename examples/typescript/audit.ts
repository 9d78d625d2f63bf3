/**
 * Writes a line to the gateway's log for each decision, and emits an event for each that didn't let the agent go on. Bind it with
 * `mode: observe`: it is called after the answer, so it costs the agent no time. It never writes payloads.
 */
import { type Context, definePlugin, proceed } from "@hookgate/sdk";

async function record(point: string, ctx: Context) {
  const { decision = "none", plugin, code } = ctx.chainResult ?? {};
  // The gateway adds the tenant and the request id.
  const attributes = { point, decision, plugin, code, operator: ctx.operator, session: ctx.caller.sessionId };
  ctx.log.info("an agent's call was decided", attributes);
  // `none`: no decision could be made.
  if (decision === "block") await ctx.emit({ name: "decision.blocked", severity: "warn", attributes });
  if (decision === "none") await ctx.emit({ name: "decision.failed", severity: "error", attributes });
  return proceed();
}

const offer = { access: "read", sideEffects: "some" } as const;

export default definePlugin({
  name: "audit",
  version: "1.0.0",
  capabilities: ["log", "emit"],
  points: { beforeLlmRequest: offer, beforeToolCall: offer, afterToolResult: offer, beforeResponse: offer },

  beforeLlmRequest: (_, ctx) => record("before_llm_request", ctx),
  beforeToolCall: (_, ctx) => record("before_tool_call", ctx),
  afterToolResult: (_, ctx) => record("after_tool_result", ctx),
  beforeResponse: (_, ctx) => record("before_response", ctx),
});
