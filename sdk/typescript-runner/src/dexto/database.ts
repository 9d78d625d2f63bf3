/** `agent.storage.database` of Dexto, kept by the gateway. */
import { type Capability, type JsonValue, PluginError, type Storage } from "@hookgate/sdk";
import { plainNumbers } from "../numbers.js";
import { type Scope, currentScope } from "../scope.js";

/**
 * The database of a call's context: the data of its tenant, and of this plugin. It refuses to work in a call of another tenant, and outside
 * of calls: a plugin that keeps it, or runs one tenant's job in another one's call, can't reach the wrong data.
 */
export function database(call: Scope, capabilities: readonly Capability[]): object {
  const storageFor = (capability: Capability) => storageOf(call, capability, capabilities);
  const get = async (key: string): Promise<unknown> => {
    const value = await storageFor("storage:read").getJson(key);
    return value === undefined ? undefined : plainNumbers(value as JsonValue);
  };
  return {
    get,
    async set(key: string, value: unknown): Promise<void> {
      await storageFor("storage:write").putJson(key, value);
    },
    async setIfAbsent(key: string, value: unknown): Promise<{ value: unknown; inserted: boolean }> {
      const { written } = await storageFor("storage:write").putJson(key, value, { expectedVersion: 0n });
      return written ? { value, inserted: true } : { value: await get(key), inserted: false };
    },
    async delete(key: string): Promise<void> {
      await storageFor("storage:write").delete(key);
    },
    async list(prefix: string): Promise<string[]> {
      const keys: string[] = [];
      for await (const { key } of storageFor("storage:read").list({ prefix })) keys.push(key);
      return keys;
    },
    append: () => noLists("append"),
    getRange: () => noLists("getRange"),
    connect: async () => {},
    disconnect: async () => {},
    isConnected: () => true,
    getStoreType: () => "hookgate",
  };
}

async function noLists(method: string): Promise<never> {
  throw PluginError.internal(
    `\`storage.database.${method}\` isn't available: keep a list as one value of at most 64 KiB, with \`get\` and \`set\``,
  );
}

function storageOf({ plugin, ctx: own }: Scope, capability: Capability, capabilities: readonly Capability[]): Storage {
  const { plugin: running, ctx } = currentScope() ?? {};
  if (!capabilities.includes(capability)) {
    throw PluginError.internal(
      `the plugin uses \`storage.database\` without the capability ${capability}: list it in the runner's \`capabilities\`` +
        ", and grant it in the gateway's configuration",
    );
  }
  if (own === undefined || ctx === undefined || ctx.tenant !== own.tenant || running !== plugin) {
    throw PluginError.internal(
      "`storage.database` of one call's context is used by code of another tenant, or outside of calls: use the context of the current call",
    );
  }
  return ctx.storage;
}
