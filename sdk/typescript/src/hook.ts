/** The lifecycle hooks that the gateway knows, and what a plugin offers at a hook. */
import type { JsonObject, JsonValue } from "./json.js";
import type { HookPayload } from "./payload.js";

/** What a plugin offers at a hook. */
export interface HookOffer {
  /** Whether a call counts, stores or sends something. The default is `some`. */
  readonly sideEffects?: "none" | "some";
}

/** What the hooks around a context that becomes shorter say. */
export interface CompactionBody {
  /** The messages, in the agent's own format. */
  readonly messages: JsonObject[];
  /** How the context becomes shorter, in the agent's own words. */
  readonly strategy?: string;
  /** Why it becomes shorter, in the agent's own words. */
  readonly trigger?: string;
}

/** What the hooks of a conversation say. */
export interface SessionBody {
  /** The messages, in the agent's own format. */
  readonly messages?: JsonObject[];
}

/** What the hooks of a run say. */
export interface OutcomeBody {
  /** How it ended, in the agent's own words. */
  readonly outcome?: string;
}

/** What the hooks of a run within a run say. */
export interface SubagentBody extends OutcomeBody {
  /** The inner run or its agent, in the agent's own words. */
  readonly child: string;
}

/** What the hooks of the agent's process say. */
export interface AgentBody {
  /** The agent's tools, in its own format. */
  readonly tools?: JsonObject[];
  /** Why the process began or ends, in the agent's own words. */
  readonly reason?: string;
}

/** The bodies of the known hooks (docs/protocol.md, section 9). The gateway has checked them. */
export interface KnownHooks {
  /** A message came, and memories are wanted. */
  recall: {
    /** The message, such as the user's question. */
    readonly message: string;
  };
  /** The agent finished its answer. */
  turn_end: OutcomeBody & {
    /** The messages of the turn, in the agent's own format. */
    readonly messages: JsonObject[];
  };
  /** A conversation began. */
  session_start: SessionBody;
  /** A conversation rests. */
  session_idle: SessionBody;
  /** A conversation ended. */
  session_end: SessionBody;
  /** A run began. */
  run_start: OutcomeBody;
  /** A run ended. */
  run_end: OutcomeBody;
  /** A run within a run began. */
  subagent_start: SubagentBody;
  /** A run within a run ended. */
  subagent_end: SubagentBody;
  /** The context is about to be shortened. */
  before_compact: CompactionBody;
  /** The context was shortened. */
  after_compact: CompactionBody;
  /** The context for a model request is put together. */
  assemble: CompactionBody;
  /** The agent's process began. */
  agent_start: AgentBody;
  /** The agent's process ends. */
  agent_end: AgentBody;
  /** Anything else. */
  event: {
    /** What happened. */
    readonly kind: string;
    /** Facts about it. */
    readonly data?: JsonValue;
  };
}

/** The payload of one of these hooks: `hook` tells which, and so what `body` is. */
export type HookPayloadOf<Name extends string> = {
  [N in Name]: HookPayload & {
    /** Name of the hook. */
    readonly hook: N;
    /** What happened. */
    readonly body: N extends keyof KnownHooks ? KnownHooks[N] : JsonObject;
  };
}[Name];
