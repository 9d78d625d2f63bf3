/** What a call says besides its payload, and its time. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Metadata } from "@grpc/grpc-js";
import { listenForAbort } from "../abort-listeners.js";
import type { Caller, ChainResult } from "../context.js";
import type { CallSchema, ChainResultSchema } from "../gen/hookgate/plugin/v1/plugin_pb.js";
import { Decision } from "../gen/hookgate/types/v1/types_pb.js";
import type { CallInfo } from "../server/call-info.js";

/** How calls are made. */
export interface CallSettings {
  readonly configDigest: string;
  readonly tenantConfig: Uint8Array<ArrayBuffer>;
  readonly tenantConfigDigest: string;
  readonly context: Partial<Caller> & { readonly tenant: string; readonly operator: string; readonly requestId?: string };
  readonly metadata: { readonly [key: string]: string };
  readonly chainResult: Partial<ChainResult> | undefined;
  /** `undefined` without a limit. */
  readonly timeLeftMs: number | undefined;
  readonly signal: AbortSignal | undefined;
}

const DEFAULTS: Omit<CallSettings, "configDigest"> = {
  tenantConfig: new Uint8Array(),
  tenantConfigDigest: "",
  context: { tenant: "test-tenant", operator: "test-operator", requestId: "01930000-0000-7000-8000-000000000000" },
  metadata: { "hookgate-depth": "1" },
  chainResult: undefined,
  timeLeftMs: undefined,
  signal: undefined,
};

const DECISIONS = { continue: Decision.CONTINUE, block: Decision.BLOCK, answer: Decision.ANSWER };

/** How calls are made. */
export class TestCall {
  readonly settings: CallSettings;

  constructor(settings: Partial<CallSettings> & { readonly configDigest: string }) {
    this.settings = { ...DEFAULTS, ...settings };
  }

  toWire(parts: { hostToken: string; runTool: boolean }): MessageInitShape<typeof CallSchema> {
    const { context, configDigest, tenantConfig, tenantConfigDigest, chainResult } = this.settings;
    return {
      ...parts,
      context,
      configDigest,
      tenantConfig,
      tenantConfigDigest,
      ...(chainResult === undefined ? {} : { chainResult: chainResultToWire(chainResult) }),
    };
  }

  /** Makes one call, whose time starts now. */
  async within<R>(call: (info: CallInfo) => Promise<R>): Promise<R> {
    const { timeLeftMs, signal, metadata: headers } = this.settings;
    const abandon = new AbortController();
    const abort = () => abandon.abort(new Error("the gateway gave up the call"));
    const timer = timeLeftMs === undefined ? undefined : setTimeout(abort, timeLeftMs);
    if (signal?.aborted) abort();
    const stopListening = signal && listenForAbort(signal, abort);
    const metadata = new Metadata();
    for (const [key, value] of Object.entries(headers)) metadata.set(key, value);
    const deadline = timeLeftMs === undefined ? undefined : Date.now() + timeLeftMs;
    try {
      return await call({ metadata, deadline, signal: abandon.signal });
    } finally {
      clearTimeout(timer);
      stopListening?.();
    }
  }
}

function chainResultToWire({ decision, plugin, code }: Partial<ChainResult>): MessageInitShape<typeof ChainResultSchema> {
  return { ...(decision === undefined ? {} : { decision: DECISIONS[decision] }), plugin, code };
}
