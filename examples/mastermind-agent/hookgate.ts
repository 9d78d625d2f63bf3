/** A Master Mind plugin that asks the plugins of a Hookgate gateway at Master Mind's hooks. */
import { randomUUID } from "node:crypto";
import { Agent, Blocked, type CallContext, type JsonValue, type ListedTool, type TokenSource, fromJson, toJson } from "@hookgate/sdk/agent";

const WITHHELD = "This result is withheld, because Hookgate gave no decision about it.";

/** `options` of the plugin in master-mind.plugins.ts. */
export interface Options {
  /** Where the gateway listens. The default is HOOKGATE_URL of the environment. */
  url?: string;
  /** A token, or a function that is asked for each call. The default is HOOKGATE_TOKEN of the environment. */
  token?: TokenSource;
  /** Added to what the gateway's plugins learn of each call, such as `userId`. */
  context?: CallContext;
  /** How long a call may take, in milliseconds. The default is 15,000. */
  timeoutMs?: number;
  /** Offers the tools of the gateway's plugins to the model. */
  tools?: boolean;
  /** Starts with a version of Master Mind where no plugin can stop a tool. */
  acceptUnguardedTools?: boolean;
}

type Input = Record<string, unknown>;

/** What a tool gives in Master Mind. */
interface Result {
  content: string;
  isError?: boolean;
}

interface ToolRegistry {
  has(name: string): boolean;
  getLLMTools?(): { name: string; input_schema: unknown }[];
  register(tool: { name: string; description: string; inputSchema: object; execute(input: Input): Promise<Result> }): void;
}

/** The events of the newer form of the tool hooks. */
interface ToolCallEvent {
  toolName: string;
  toolCallId: string;
  args: Input;
}

interface ToolResultEvent {
  toolName: string;
  toolCallId: string;
  result: { content: string; isError: boolean };
  durationMs: number;
}

/** Why an action stops. The message is for the model or the user. */
class Stop extends Error {}

export default function hookgate(options: Options = {}) {
  // Master Mind has no id of a conversation. A process has one.
  const context = { sessionId: randomUUID(), ...options.context };
  const asked = { gateway: connect(options), options: { context }, tools: new Map<string, () => boolean>() };
  return {
    name: "hookgate",
    version: "0.1.0",
    hooks: { ...processHooks(asked, options), ...messageHooks(asked), ...toolHooks(asked), ...newerToolHooks(asked) },
  };
}

/** Whom to ask, and with which context. */
interface Asked {
  readonly gateway: Agent;
  readonly options: { readonly context: CallContext };
  /** The tools of the gateway's plugins that the model has, and whether the registry still runs them under that name. */
  readonly tools: Map<string, () => boolean>;
}

function processHooks(asked: Asked, { tools = false, acceptUnguardedTools = false }: Options) {
  const { gateway, options } = asked;
  return {
    async onInit({ toolRegistry }: { toolRegistry?: ToolRegistry }): Promise<void> {
      if (toolRegistry === undefined && !acceptUnguardedTools) throw new Error(UNGUARDED);
      if (toolRegistry === undefined || !tools) return;
      for (const tool of (await gateway.listTools(options)).tools) {
        if (toolRegistry.has(tool.name)) throw new Error(`the gateway's tool ${tool.name} has the name of another tool`);
        toolRegistry.register(registered(asked, tool));
        asked.tools.set(tool.name, () => isRegistered(toolRegistry, tool));
      }
    },
    async onShutdown(): Promise<void> {
      gateway.close();
    },
  };
}

function messageHooks({ gateway, options }: Asked) {
  return {
    async beforeMessage(text: string): Promise<string> {
      const { payload } = await decided(gateway.beforeLlmRequest({ text }, options));
      // Master Mind only replaces the text.
      const { systemPrompt, messages, tools, images = [], files = [] } = payload;
      if ([systemPrompt, messages, tools].some((added) => added !== undefined) || images.length + files.length > 0)
        throw new Stop("a plugin of the gateway added to the request, and Master Mind can't apply that");
      return payload.text;
    },
    /** The user has seen the answer already. What a block says is shown after it, and a change comes too late. */
    async afterResponse({ content = "", stopReason }: { content?: string; stopReason: string }): Promise<void> {
      const { payload } = await decided(gateway.beforeResponse({ content, stopReason }, options));
      if (payload.content !== content) console.error("hookgate: a plugin of the gateway changed an answer that was shown already");
    },
  };
}

/** The older form, where Master Mind's registry runs the tools. */
function toolHooks(asked: Asked) {
  return {
    async beforeToolExecute(name: string, input: Input): Promise<{ name: string; input: Input } | null> {
      // A tool of the gateway asks when it runs. Another that took its name doesn't.
      if (asked.tools.get(name)?.()) return { name, input };
      try {
        return await judgedCall(asked, name, input);
      } catch (error) {
        // Master Mind words the model's message itself. A hook that throws would end the turn, and leave the call without a result.
        console.error(`hookgate: the tool ${name} was blocked: ${(error as Error).message}`);
        return null;
      }
    },
    async afterToolExecute(toolName: string, input: Input, result: Result): Promise<Result> {
      try {
        return await judgedResult(asked, { toolName, args: toJson(input) }, result);
      } catch (error) {
        return { content: (error as Error).message, isError: true };
      }
    },
  };
}

/** The newer form, where a library runs the tools. What the hooks return changes nothing for it, so they end the turn instead. */
function newerToolHooks(asked: Asked) {
  return {
    async beforeToolCall(event: ToolCallEvent): Promise<ToolCallEvent> {
      const { toolName, toolCallId, args } = event;
      const judged = await judgedCall(asked, toolName, args, toolCallId);
      if (judged.name !== toolName || judged.input !== args) throw new Stop("a plugin of the gateway changed the call of a tool");
      return event;
    },
    async afterToolResult(event: ToolResultEvent): Promise<ToolResultEvent> {
      const { toolName, toolCallId: callId, result, durationMs } = event;
      const judged = await judgedResult(asked, { toolName, callId, durationMs }, result);
      if (judged !== result) throw new Stop("a plugin of the gateway changed the result of a tool");
      return event;
    },
  };
}

/** The call as the gateway's plugins left it: the input is the same object if they left it alone. */
async function judgedCall(
  { gateway, options }: Asked,
  toolName: string,
  input: Input,
  callId?: string,
): Promise<{ name: string; input: Input }> {
  const { payload, modified } = await decided(gateway.beforeToolCall({ toolName, args: toJson(input), callId }, options));
  if (!modified) return { name: toolName, input };
  const left = fromJson(payload.args);
  if (left === null || typeof left !== "object" || Array.isArray(left))
    throw new Stop("a plugin of the gateway left no object as the input");
  return { name: payload.toolName, input: isSame(left, input) ? input : (left as Input) };
}

/** The result as the gateway's plugins left it: the same object if they left it alone. */
async function judgedResult(
  { gateway, options }: Asked,
  call: { toolName: string; args?: unknown; callId?: string; durationMs?: number },
  result: Result,
): Promise<Result> {
  const asked = gateway.afterToolResult({ ...call, result: toJson(result), success: result.isError !== true }, options);
  const { payload, modified } = await decided(asked, WITHHELD);
  const left = modified ? resultOf(payload.result, result.isError) : result;
  return isSame(left, result) ? result : left;
}

/** A tool of the gateway's plugins, for Master Mind's registry. The registry makes what it throws the tool's error. */
function registered({ gateway, options }: Asked, { name, description, inputSchema }: ListedTool) {
  const execute = async (input: Input): Promise<Result> => {
    const answer = await decided(gateway.beforeToolCall({ toolName: name, args: toJson(input) }, { ...options, takesResults: true }));
    if (answer.decision !== "answer") throw new Stop(`the gateway has no tool ${name} any more`);
    return resultOf(answer.result);
  };
  return { name, description, inputSchema, execute };
}

/** Master Mind's registry replaces a tool by a later one of the same name. It gives no tool, but its own schema object. */
function isRegistered(registry: ToolRegistry, { name, inputSchema }: ListedTool): boolean {
  return registry.getLLMTools?.().find((tool) => tool.name === name)?.input_schema === inputSchema;
}

const UNGUARDED =
  "this version of Master Mind runs tools whatever a plugin says, so the gateway can't stop them: set the option acceptUnguardedTools to start";

function connect({ url = process.env["HOOKGATE_URL"], token = process.env["HOOKGATE_TOKEN"], timeoutMs }: Options): Agent {
  if (!url || !token) throw new Error("the options url and token, or HOOKGATE_URL and HOOKGATE_TOKEN, must be set");
  return new Agent(url, { token, timeoutMs });
}

/**
 * The gateway's answer.
 *
 * @param otherwise What the model or the user is told without a decision.
 * @throws {Stop} A plugin stopped the action, or there is no decision.
 */
async function decided<Answer>(call: Promise<Answer>, otherwise = "Hookgate gave no decision."): Promise<Answer> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof Blocked) throw new Stop(error.message);
    // The reason is for the operator.
    console.error(`hookgate: ${(error as Error).message}`);
    throw new Stop(otherwise, { cause: error });
  }
}

/** Plugins may have changed something else, such as `extra`. */
function isSame(left: object, own: object): boolean {
  return JSON.stringify(left) === JSON.stringify(own);
}

/** A result in Master Mind's form. It stays that of a tool that `failed`, unless it says itself whether it is an error. */
function resultOf(value: JsonValue, failed = false): Result {
  const plain = fromJson(value) as Partial<Result> | string | null;
  const isResult = typeof plain === "object" && typeof plain?.content === "string";
  const left = isResult ? (plain as Result) : { content: typeof plain === "string" ? plain : JSON.stringify(plain) };
  return failed ? { ...left, isError: left.isError ?? true } : left;
}
