/** The lifecycle hooks that the gateway knows, and what a plugin offers at a hook. */
import type { JsonObject, JsonValue } from "./json.js";
import type { HookPayload } from "./payload.js";

/** What a plugin offers at a hook. */
export interface HookOffer {
  /** Whether a call counts, stores or sends something. The default is `some`. */
  readonly sideEffects?: "none" | "some";
}

interface Compaction {
  readonly messages: JsonObject[];
  readonly strategy?: string;
  readonly trigger?: string;
}

interface Session {
  readonly messages?: JsonObject[];
}

interface Outcome {
  readonly outcome?: string;
}

interface Child extends Outcome {
  readonly child: string;
}

interface Lifetime {
  readonly tools?: JsonObject[];
  readonly reason?: string;
}

/** The bodies of the known hooks (docs/protocol.md, section 9). The gateway has checked them. */
export interface KnownHooks {
  /** A message came, and memories are wanted. */
  recall: { readonly message: string };
  /** The agent finished its answer. */
  turn_end: Outcome & { readonly messages: JsonObject[] };
  /** A conversation began. */
  session_start: Session;
  /** A conversation rests. */
  session_idle: Session;
  /** A conversation ended. */
  session_end: Session;
  /** A run began. */
  run_start: Outcome;
  /** A run ended. */
  run_end: Outcome;
  /** A run within a run began. */
  subagent_start: Child;
  /** A run within a run ended. */
  subagent_end: Child;
  /** The context is about to be shortened. */
  before_compact: Compaction;
  /** The context was shortened. */
  after_compact: Compaction;
  /** The context for a model request is put together. */
  assemble: Compaction;
  /** The agent's process began. */
  agent_start: Lifetime;
  /** The agent's process ends. */
  agent_end: Lifetime;
  /** Anything else. */
  event: { readonly kind: string; readonly data?: JsonValue };
}

/** The payload of one of these hooks: `hook` tells which, and so what `body` is. */
export type HookPayloadOf<Name extends string> = {
  [N in Name]: HookPayload & { readonly hook: N; readonly body: N extends keyof KnownHooks ? KnownHooks[N] : JsonObject };
}[Name];
