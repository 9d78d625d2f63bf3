/** A gateway's host services: those of the SDK's own tests. */
import type { TestContext } from "node:test";
import { tsImport } from "tsx/esm/api";

/** What the tests use of the SDK's fake host. */
export interface FakeHost {
  readonly endpoint: string;
  readonly logLines: readonly {
    plugin: string;
    tenant?: string;
    severity: string;
    message: string;
    attributes: { [name: string]: string };
  }[];
  issueToken(token: { plugin: string; tenant?: string; capabilities: readonly string[] }): string;
  stop(): Promise<void>;
}

export const CAPABILITIES = ["storage:read", "storage:write", "log"];

export async function startHost(t: TestContext): Promise<FakeHost> {
  const { FakeHost: Host } = (await tsImport("../../../typescript/test/support/fake-host.ts", import.meta.url)) as {
    FakeHost: { start(): Promise<FakeHost> };
  };
  const host = await Host.start();
  t.after(() => host.stop());
  return host;
}

/** What Initialize says of the host. */
export function hostOffer(host: FakeHost, plugin: string): { hostEndpoint: string; hostToken: string; capabilities: string[] } {
  return { hostEndpoint: host.endpoint, hostToken: host.issueToken({ plugin, capabilities: CAPABILITIES }), capabilities: CAPABILITIES };
}

/** A token of one call. */
export function callToken(host: FakeHost, plugin: string, tenant: string): string {
  return host.issueToken({ plugin, tenant, capabilities: CAPABILITIES });
}
