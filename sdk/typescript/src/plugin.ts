/** What a plugin author writes: `definePlugin`. */
import type { Context, Host } from "./context.js";
import { checkHandlers, checkIdentity, checkNames, checkValues, membersOf } from "./definition-check.js";
import type { HookOffer, HookPayloadOf } from "./hook.js";
import type { AfterToolResultPayload, BeforeLlmRequestPayload, BeforeResponsePayload, BeforeToolCallPayload } from "./payload.js";
import { type Capability, POINTS, type PointName, type PointOffer } from "./point.js";
import type { AfterToolResultPatch, BeforeLlmRequestPatch, BeforeResponsePatch, BeforeToolCallPatch, HookReply, Reply } from "./reply.js";
import { type OutputOf, type Schema, jsonSchemaOf } from "./schema.js";
import type { Tool } from "./tool.js";

/** A value, or a promise of it. */
export type Awaitable<T> = T | Promise<T>;

/** What a plugin says of itself. */
export interface Manifest<C extends Schema | undefined, T extends Schema | undefined, Hook extends string> {
  /** The name under which it is registered at the gateway. */
  name: string;
  /** Its semantic version. */
  version: string;
  /** The capabilities that it asks for; the gateway rejects the plugin if they are not granted. */
  capabilities?: readonly Capability[];
  /** Plugin-level configuration. The gateway's operator sets it, and it may hold secrets. Without a schema there is none. */
  config?: C;
  /** Tenant-level configuration. It comes with each call, holds no secrets, and has no member with the same name as one of `config`. */
  tenantConfig?: T;
  /** What it offers at each point for which it has a handler. By default it asks for the most: `modify`, with side effects, and all of the payload. */
  points?: { readonly [Name in PointName]?: PointOffer<Name> };
  /** The lifecycle hooks that it answers at. */
  hooks?: { readonly [Name in Hook]: HookOffer };
  /**
   * The names that its tools may have, as globs with `*`, `?` and `[..]`, such as `memory.*`. Operators approve them. By default the
   * names of `tools`, where that is a list.
   */
  toolNames?: readonly string[];
}

/**
 * How a plugin answers. Only the points for which there is a handler are called. A handler returns what `proceed`, `cancel` or `answer`
 * makes: anything else fails the call. Calls run at the same time.
 */
export interface Handlers<Config, TenantConfig, State, Hook extends string> {
  /** The agent is about to send user input to a model. */
  beforeLlmRequest?(call: BeforeLlmRequestPayload, ctx: Context<Config, TenantConfig, State>): Awaitable<Reply<BeforeLlmRequestPatch>>;
  /** The agent is about to run a tool. */
  beforeToolCall?(call: BeforeToolCallPayload, ctx: Context<Config, TenantConfig, State>): Awaitable<Reply<BeforeToolCallPatch>>;
  /** The agent is about to hand a tool's result, or its failure, back to the model. */
  afterToolResult?(call: AfterToolResultPayload, ctx: Context<Config, TenantConfig, State>): Awaitable<Reply<AfterToolResultPatch>>;
  /** The agent is about to show the answer to the user. */
  beforeResponse?(call: BeforeResponsePayload, ctx: Context<Config, TenantConfig, State>): Awaitable<Reply<BeforeResponsePatch>>;
  /** Something happened in the agent's life: `call.hook` says what. Nothing is decided. Returns what `contribute` makes. */
  onHook?(call: HookPayloadOf<Hook>, ctx: Context<Config, TenantConfig, State>): Awaitable<HookReply>;
  /** The tools that it provides with its configuration, at most 64. A function needs `toolNames`. It is called after `initialize`. */
  tools?: readonly Tool<Config, TenantConfig, State>[] | ((config: Config, state: State) => readonly Tool<Config, TenantConfig, State>[]);
  /**
   * Called when no gateway uses the configuration any more, or when the process stops. Flush here within 5 s, and don't exit: calls
   * that began earlier may still be running.
   */
  shutdown?(state: State): Awaitable<void>;
}

/** A plugin as one object. */
export interface Definition<C extends Schema | undefined, T extends Schema | undefined, Hook extends string, State>
  extends Manifest<C, T, Hook> {
  /**
   * Starts it with a configuration; what it returns is `ctx.state`. Write it before the handlers, which take its type. Called once per configuration; several may exist side by side.
   * Answer within 10 s. Throw `PluginError.config` if the configuration is wrong.
   */
  initialize?(config: OutputOf<C>, host: Host): Awaitable<State>;
}

/** A class of plugins: one object per configuration. */
export type PluginClass<Config, TenantConfig, Hook extends string> = {
  new (
    config: Config,
    host: Host,
  ): Handlers<Config, TenantConfig, undefined, Hook> & {
    /** Called after the constructor, for work that has to be waited for. */
    initialize?(): Awaitable<void>;
  };
};

/** A plugin with one configuration. */
export interface Instance {
  readonly handlers: Handlers<any, any, any, any>;
  readonly config: unknown;
  readonly state: unknown;
  readonly tools: readonly Tool[];
}

/** A plugin that can be served and tested. Made by {@link definePlugin}. */
export class Plugin<C extends Schema | undefined = Schema | undefined, T extends Schema | undefined = Schema | undefined> {
  readonly #start: (config: OutputOf<C>, host: Host) => Promise<Instance>;

  /** @internal */
  constructor(
    /** @internal */
    readonly manifest: Manifest<C, T, string>,
    /** @internal The points for which it has handlers. */
    readonly points: readonly PointName[],
    start: (config: OutputOf<C>, host: Host) => Promise<Instance>,
  ) {
    this.#start = start;
  }

  /** The name under which it is registered at the gateway. */
  get name(): string {
    return this.manifest.name;
  }

  /** Its semantic version. */
  get version(): string {
    return this.manifest.version;
  }

  /** @internal Starts an instance with a configuration that has been checked. */
  start(config: OutputOf<C>, host: Host): Promise<Instance> {
    return this.#start(config, host);
  }
}

/**
 * Defines a plugin, as one object or as a manifest and a class.
 *
 * @throws {TypeError} If it can't work: the message names the member.
 */
export function definePlugin<
  C extends Schema | undefined = undefined,
  T extends Schema | undefined = undefined,
  const Hook extends string = never,
  State = undefined,
>(definition: Definition<C, T, Hook, State> & Handlers<OutputOf<C>, OutputOf<T>, NoInfer<State>, Hook>): Plugin<C, T>;
export function definePlugin<
  C extends Schema | undefined = undefined,
  T extends Schema | undefined = undefined,
  const Hook extends string = never,
>(manifest: Manifest<C, T, Hook>, pluginClass: PluginClass<OutputOf<C>, OutputOf<T>, Hook>): Plugin<C, T>;
export function definePlugin(
  definition: Definition<any, any, string, unknown> & Handlers<any, any, any, string>,
  pluginClass?: PluginClass<any, any, string>,
): Plugin<any, any> {
  checkNames(definition, pluginClass);
  checkIdentity(definition);
  checkValues(definition);
  // Without calling getters of the class, which need an object.
  const handlers = Object.fromEntries(membersOf(pluginClass ? pluginClass.prototype : definition)) as Handlers<any, any, any, string>;
  const points = POINTS.map((point) => point.name).filter((name) => typeof handlers[name] === "function");
  const listed = Array.isArray(handlers.tools) ? (handlers.tools as readonly Tool[]).map(({ name }) => name) : undefined;
  const toolNames = definition.toolNames ?? listed ?? [];
  checkManifest(definition, handlers, points, toolNames);
  const manifest = { ...definition, toolNames };
  const start = pluginClass ? startObject(pluginClass, points) : startDefinition(definition);
  return new Plugin(manifest, points, start);
}

function checkManifest(
  definition: Manifest<any, any, string>,
  handlers: Handlers<any, any, any, string>,
  points: readonly PointName[],
  toolNames: readonly string[],
): void {
  const { hooks = {}, points: offers = {} } = definition;
  for (const offered of Object.keys(offers)) {
    if (!points.includes(offered as PointName))
      throw new TypeError(`\`points.${offered}\` has no handler: write \`${offered}(call, ctx)\``);
  }
  const hookNames = Object.keys(hooks);
  if (hookNames.length > 0 !== (typeof handlers.onHook === "function")) {
    throw new TypeError("`hooks` and `onHook` need each other: the first names the hooks, the second answers at them");
  }
  if (typeof handlers.tools === "function" && toolNames.length === 0) {
    throw new TypeError("`toolNames` is missing: the names that the tools may have, as globs");
  }
  if (points.length === 0 && hookNames.length === 0 && toolNames.length === 0) {
    throw new TypeError("the plugin does nothing: it needs a handler of a point, a hook, or a tool");
  }
  jsonSchemaOf(definition.config, "`config`");
  jsonSchemaOf(definition.tenantConfig, "`tenantConfig`");
}

function startDefinition(definition: Definition<any, any, string, unknown> & Handlers<any, any, any, string>) {
  return async (config: unknown, host: Host): Promise<Instance> => {
    const state = await definition.initialize?.(config as never, host);
    return { handlers: definition, config, state, tools: toolsOf(definition, config, state) };
  };
}

function startObject(PluginObject: PluginClass<any, any, string>, points: readonly PointName[]) {
  return async (config: unknown, host: Host): Promise<Instance> => {
    const handlers = new PluginObject(config, host);
    checkHandlers(membersOf(handlers));
    // The manifest lists the methods of the class. A handler that only the object has would never be called.
    const hidden = POINTS.find(({ name }) => typeof handlers[name] === "function" && !points.includes(name));
    if (hidden) throw new TypeError(`\`${hidden.name}\` of ${PluginObject.name} is a property: write it as a method`);
    await handlers.initialize?.();
    return { handlers, config, state: undefined, tools: toolsOf(handlers, config, undefined) };
  };
}

function toolsOf(handlers: Handlers<any, any, any, string>, config: unknown, state: unknown): readonly Tool[] {
  return typeof handlers.tools === "function" ? handlers.tools(config, state) : (handlers.tools ?? []);
}
