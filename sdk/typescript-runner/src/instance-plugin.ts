/** A plugin of the SDK that is made of functions over an instance, of which each configuration has one. */
import {
  type Capability,
  type Context,
  type HookOffer,
  type HookPayload,
  type HookReply,
  type Host,
  type JsonObject,
  type Plugin,
  type PointName,
  type PointOffer,
  type Reply,
  type Tool,
  definePlugin,
} from "@hookgate/sdk";
import { asError } from "./entry.js";
import { anyObject } from "./schemas.js";
import { inScope } from "./scope.js";

/** Answers at a point. */
export type PointHandler<I> = (instance: I, call: any, ctx: Context) => Promise<Reply<any>>;

/** What a dialect makes of a plugin. */
export interface InstanceParts<I> {
  readonly name: string;
  readonly version: string;
  readonly capabilities: readonly Capability[];
  readonly points: { readonly [Name in PointName]?: PointHandler<I> };
  readonly offers?: { readonly [Name in PointName]?: PointOffer };
  readonly hooks: { readonly [hook: string]: HookOffer };
  readonly toolNames: readonly string[];
  start(config: JsonObject, host: Host): Promise<I>;
  tools(instance: I): readonly Tool[];
  onHook(instance: I, call: HookPayload, ctx: Context): Promise<HookReply>;
  shutdown(instance: I): Promise<void>;
}

/** Defines the plugin. All its code runs in its scope. */
export function instancePlugin<I>(parts: InstanceParts<I>): Plugin<any, any> {
  const { name, version, capabilities, points, offers = {}, hooks, toolNames } = parts;

  class ServedPlugin {
    #instance!: I;

    constructor(
      readonly config: JsonObject,
      readonly host: Host,
    ) {}

    async initialize(): Promise<void> {
      this.#instance = await inScope({ plugin: name, host: this.host }, () => parts.start(this.config, this.host));
    }

    call<T>(ctx: Context, answer: (instance: I) => Promise<T>): Promise<T> {
      return inScope({ plugin: name, ctx, host: this.host }, () =>
        answer(this.#instance).catch((error: unknown) => Promise.reject(asError(error))),
      );
    }

    ownTools(): readonly Tool[] {
      const run = (tool: Tool) => (args: unknown, ctx: Context) => this.call(ctx, async () => tool.run(args, ctx));
      return parts.tools(this.#instance).map((tool) => ({ ...tool, run: run(tool) }));
    }

    shutdown(): Promise<void> {
      return inScope({ plugin: name, host: this.host }, () => parts.shutdown(this.#instance));
    }
  }

  // The SDK offers what is on the prototype, so a plugin without a handler must not have one there.
  const optional: { [method: string]: unknown } = {};
  for (const [point, answer] of Object.entries(points)) {
    optional[point] = function (this: ServedPlugin, call: unknown, ctx: Context) {
      return this.call(ctx, (instance) => answer(instance, call, ctx));
    };
  }
  if (Object.keys(hooks).length > 0) {
    optional.onHook = function (this: ServedPlugin, call: HookPayload, ctx: Context) {
      return this.call(ctx, (instance) => parts.onHook(instance, call, ctx));
    };
  }
  if (toolNames.length > 0)
    optional.tools = function (this: ServedPlugin) {
      return this.ownTools();
    };
  Object.assign(ServedPlugin.prototype, optional);
  const manifest = { name, version, config: anyObject, capabilities, points: offers, hooks, toolNames };
  return definePlugin(manifest as never, ServedPlugin as never);
}
