/** Refuses the tools that a tenant's configuration lists. */
import { cancel, definePlugin, proceed } from "@hookgate/sdk";
import { z } from "zod";

export default definePlugin({
  name: "@NAME@",
  version: "0.1.0",
  tenantConfig: z.strictObject({
    refused_tools: z.array(z.string()).default([]).describe("The tools that the tenant's agents may not use."),
  }),
  points: { beforeToolCall: { access: "read", sideEffects: "none" } },

  beforeToolCall({ toolName }, ctx) {
    if (!ctx.tenantConfig.refused_tools.includes(toolName)) return proceed();
    return cancel("TOOL_NOT_ALLOWED", `Agents may not use ${toolName}.`);
  },
});
