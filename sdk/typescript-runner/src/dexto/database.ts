/** `agent.storage.database` of Dexto, kept by the gateway. */
import { type Capability, type JsonValue, PluginError, type Storage } from "@hookgate/sdk";
import { plainNumbers } from "../numbers.js";
import { currentScope } from "../scope.js";

/**
 * A database whose data is that of the call whose code runs: of its tenant, and of this plugin. Outside of calls it is the plugin's own. So
 * a plugin that keeps the object of one call still can't read another tenant's data with it.
 */
export function database(capabilities: readonly Capability[]): object {
  const get = async (key: string): Promise<unknown> => {
    const value = await storageFor("storage:read", capabilities).getJson(key);
    return value === undefined ? undefined : plainNumbers(value as JsonValue);
  };
  return {
    get,
    async set(key: string, value: unknown): Promise<void> {
      await storageFor("storage:write", capabilities).putJson(key, value);
    },
    async setIfAbsent(key: string, value: unknown): Promise<{ value: unknown; inserted: boolean }> {
      const { written } = await storageFor("storage:write", capabilities).putJson(key, value, { expectedVersion: 0n });
      return written ? { value, inserted: true } : { value: await get(key), inserted: false };
    },
    async delete(key: string): Promise<void> {
      await storageFor("storage:write", capabilities).delete(key);
    },
    async list(prefix: string): Promise<string[]> {
      const keys: string[] = [];
      for await (const { key } of storageFor("storage:read", capabilities).list({ prefix })) keys.push(key);
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

function storageFor(capability: Capability, capabilities: readonly Capability[]): Storage {
  const { ctx, host } = currentScope() ?? {};
  if (!capabilities.includes(capability)) {
    throw PluginError.internal(
      `the plugin uses \`storage.database\` without the capability ${capability}: list it in the runner's \`capabilities\`` +
        ", and grant it in the gateway's configuration",
    );
  }
  const storage = ctx?.storage ?? host?.storage;
  if (storage === undefined)
    throw PluginError.internal("`storage.database` isn't available while the module is loaded: use it in a method");
  return storage;
}
