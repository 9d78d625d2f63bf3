/** Lets agents use only the tools that their tenant's configuration lists. A tenant without a list may use none. */
import { cancel, definePlugin, proceed } from "@hookgate/sdk";
import { z } from "zod";

export default definePlugin({
  name: "tool-allow-list",
  version: "1.0.0",
  tenantConfig: z.strictObject({
    allowed_tools: z.array(z.string().min(1)).default([]).describe("Names of tools; one that ends with `*` is the beginning of names."),
  }),
  // The gateway may ask it at the same time as its neighbours.
  points: { beforeToolCall: { access: "read", sideEffects: "none" } },

  beforeToolCall({ toolName }, ctx) {
    const isAllowed = ctx.tenantConfig.allowed_tools.some((allowed) =>
      allowed.endsWith("*") ? toolName.startsWith(allowed.slice(0, -1)) : toolName === allowed,
    );
    return isAllowed ? proceed() : cancel("TOOL_NOT_ALLOWED", `Agents may not use ${toolName}.`);
  },
});
