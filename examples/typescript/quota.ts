/**
 * Limits the tool calls of each tenant per UTC day. The count is in the gateway's storage, so all replicas share it and it survives
 * restarts. While the storage can't be reached the step fails, and its binding decides.
 */
import { cancel, definePlugin, proceed } from "@hookgate/sdk";
import { z } from "zod";

export default definePlugin({
  name: "quota",
  version: "1.0.0",
  capabilities: ["storage:write"],
  tenantConfig: z.strictObject({ calls_per_day: z.int().min(0).default(1000) }),
  points: { beforeToolCall: { access: "read", sideEffects: "some" } },

  async beforeToolCall(_, ctx) {
    const limit = ctx.tenantConfig.calls_per_day;
    const calls = await ctx.storage.add("tool-calls", 1, { limit, window: "day" });
    if (calls.added) return proceed();
    const options = calls.resetsInMs === undefined ? {} : { retryAfterMs: calls.resetsInMs };
    return cancel("QUOTA_EXCEEDED", `Your ${limit} tool calls of today are used.`, options);
  },
});
