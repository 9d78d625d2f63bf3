/** A drover plugin that asks the plugins of a Hookgate gateway around each tool, and tells them of the run. */
import { Blocked, type CallContext, type GatewayClient, type HookAnswer, type JsonValue, fromJson, toJson } from "@hookgate/sdk/agent";
import { Cause, Effect, Exit } from "effect";

const UNDECIDED = "The tool wasn't run, because Hookgate gave no decision about it.";
const WITHHELD = "This result is withheld, because Hookgate gave no decision about it.";
/** drover waits for the hooks of a run, which decide nothing. */
const HOOK_MS = 5_000;
/** Events that are on their way to the gateway. Further ones are left out. */
const MAX_EVENTS = 64;
/** Members of drover's free `meta` that the gateway has a place for. */
const META_IDS = ["sessionId", "userId", "agentId", "projectId"] as const;
/** The gateway's limit for a text of the context. */
const MAX_CONTEXT_BYTES = 256;

export interface Options {
  /** What the gateway learns of a run's calls, beside what drover says. `tenant` chooses the token. */
  context?: (run: Run) => CallContext;
  /** Offers the tools of the gateway's plugins to the model. They are those of this context's tenant. */
  tools?: CallContext;
  /** Kinds of drover's events that go to the hook `event`, such as `tool_call_end`. */
  events?: readonly string[];
}

/** drover's RunContext. */
interface Run {
  readonly runId: string;
  readonly parentRunId?: string;
  readonly depth: number;
  readonly cwd: string;
  readonly signal: AbortSignal;
  readonly meta?: Readonly<Record<string, unknown>>;
}

interface ToolContext {
  readonly toolUseId: string;
  readonly signal: AbortSignal;
  readonly run: Run;
}

interface ToolResult {
  content: string;
  isError?: boolean;
  data?: unknown;
}

interface Tool {
  id: string;
  description: string;
  // drover's type is that of TypeBox, whose schemas are JSON Schemas.
  inputSchema: any;
  execute(input: any, ctx: any): Effect.Effect<ToolResult, any, never>;
}

interface Message {
  role: "user" | "assistant" | "tool";
  content: string;
}

/** The plugin for `spec.plugins`. It rejects if the gateway doesn't say which tools there are. */
export default async function hookgate(gateway: GatewayClient, options: Options = {}) {
  const { events = [] } = options;
  const asked = { gateway, context: options.context ?? (() => ({})) };
  const tools = options.tools === undefined ? [] : await gatewayTools(gateway, options.tools);
  return {
    id: "hookgate",
    tools,
    wrapTool: <T extends Tool>(tool: T): T => ({
      ...tool,
      execute: (input: unknown, ctx: ToolContext) => runGuarded(asked, tool, input, ctx),
    }),
    onRunStart: (run: Run) => Effect.asVoid(tell(asked, "run_start", {}, run)),
    onRunEnd: ({ status }: { status: string }, run: Run) => Effect.asVoid(tell(asked, "run_end", { outcome: status }, run)),
    beforeCompaction: (history: readonly Message[], run: Run) =>
      Effect.map(tell(asked, "before_compact", { messages: history }, run), (answer) => compacted(answer) ?? history),
    ...(events.length > 0 && { onEvent: observer(asked, new Set(events)) }),
  };
}

/** Whom to ask, and with which context. */
interface Asked {
  readonly gateway: GatewayClient;
  readonly context: (run: Run) => CallContext;
}

/** Runs a tool between the gateway's two tool points. */
function runGuarded(asked: Asked, tool: Tool, input: unknown, ctx: ToolContext): Effect.Effect<ToolResult, any, never> {
  return Effect.gen(function* () {
    const before = yield* Effect.promise(() => beforeTool(asked, tool, input, ctx));
    if ("blocked" in before) return before.blocked;
    const { call } = before;
    const start = performance.now();
    // A tool may also throw before it gives its effect.
    const run = Effect.suspend(() => tool.execute(call.args, ctx));
    const ran = "answer" in before ? Exit.succeed(before.answer) : yield* Effect.exit(run);
    // A run that is cancelled has no result.
    if (Exit.isFailure(ran) && Cause.isInterrupted(ran.cause)) return yield* Effect.failCause(ran.cause);
    const result = Exit.isSuccess(ran) ? ran.value : { content: messageOf(Cause.squash(ran.cause)), isError: true };
    const durationMs = "answer" in before ? undefined : performance.now() - start;
    const after = yield* Effect.promise(() => afterTool(asked, { ...call, durationMs }, result, ctx));
    // Nobody changed the tool's own error, so drover gets it.
    return after === result && Exit.isFailure(ran) ? yield* Effect.failCause(ran.cause) : after;
  });
}

/** The call to make, perhaps with the result that a plugin gives instead; or what the model sees of a call that isn't made. */
type Before = { call: { toolName: string; args: unknown }; answer?: ToolResult } | { blocked: ToolResult };

async function beforeTool(asked: Asked, { id }: Tool, input: unknown, ctx: ToolContext): Promise<Before> {
  return orBlocked(UNDECIDED, async () => {
    const asking = { ...options(asked, ctx.run, ctx.signal), takesResults: true };
    const decided = await asked.gateway.beforeToolCall({ toolName: id, args: toJson(input), callId: ctx.toolUseId }, asking);
    const { toolName, args } = decided.payload;
    const call = { toolName, args: decided.modified ? fromJson(args) : input };
    if (decided.decision === "answer") return { call, answer: resultOf(decided.result) };
    // Only this tool is at hand.
    if (toolName !== id) throw new Error(`a plugin of the gateway renamed the tool ${id}, and drover can't apply that`);
    return { call };
  });
}

/** What the model sees of a tool's result: the same object if nobody changed it. */
async function afterTool(
  asked: Asked,
  call: { toolName: string; args: unknown; durationMs: number | undefined },
  result: ToolResult,
  ctx: ToolContext,
): Promise<ToolResult> {
  const judged = await orBlocked(WITHHELD, async () => {
    const { content, isError, data } = result;
    const sent = { ...call, args: toJson(call.args), result: toJson({ content, isError, data }), success: !isError };
    const decided = await asked.gateway.afterToolResult({ ...sent, callId: ctx.toolUseId }, options(asked, ctx.run, ctx.signal));
    return { left: decided.modified ? resultOf(decided.payload.result, isError) : result };
  });
  if ("blocked" in judged) return judged.blocked;
  return JSON.stringify(judged.left) === JSON.stringify(result) ? result : judged.left;
}

/** What the gateway lets pass, or the error that the model sees instead. Never rejects: drover would see that as the tool's own error. */
async function orBlocked<T>(otherwise: string, ask: () => Promise<T>): Promise<T | { blocked: ToolResult }> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof Blocked) return { blocked: { content: error.message, isError: true } };
    log(error);
    return { blocked: { content: otherwise, isError: true } };
  }
}

/** The tools of the gateway's plugins. They are wrapped as all tools are, and the gateway answers before they run. */
async function gatewayTools(gateway: GatewayClient, context: CallContext): Promise<Tool[]> {
  const { tools } = await gateway.listTools({ context });
  return tools.map(({ name, description, inputSchema }) => ({
    id: name,
    description,
    inputSchema,
    execute: () => Effect.succeed({ content: `The gateway has no tool ${name} any more.`, isError: true }),
  }));
}

/** Tells the gateway's plugins of the run. They decide nothing, so an error is only logged. */
function tell({ gateway, context }: Asked, hook: string, body: object, run: Run): Effect.Effect<HookAnswer | undefined> {
  return Effect.promise(async () => {
    try {
      return await gateway.runHook(hook, toJson(body) as object, { ...options({ gateway, context }, run), timeoutMs: HOOK_MS });
    } catch (error) {
      log(error);
      return undefined;
    }
  });
}

/** The first messages that a plugin contributed, if they are drover's. */
function compacted(answer: HookAnswer | undefined): Message[] | undefined {
  const messages = fromJson(answer?.contributions.find(({ kind }) => kind === "messages")?.value ?? null) as Message[] | null;
  const isMessage = ({ role, content }: Message) => ["user", "assistant", "tool"].includes(role) && typeof content === "string";
  return messages?.every(isMessage) ? messages : undefined;
}

/** drover waits for no observer, and runs only what is synchronous. */
function observer(asked: Asked, kinds: ReadonlySet<string>) {
  let sending = 0;
  return ({ kind, ...data }: { kind: string }, run: Run): Effect.Effect<void> =>
    Effect.sync(() => {
      if (!kinds.has(kind) || sending >= MAX_EVENTS) return;
      sending += 1;
      void Effect.runPromise(tell(asked, "event", { kind, data }, run)).finally(() => (sending -= 1));
    });
}

function options({ context }: Asked, run: Run, signal?: AbortSignal): { context: CallContext; signal: AbortSignal | undefined } {
  const { runId, parentRunId, depth, cwd, meta = {} } = run;
  const ids = META_IDS.flatMap((name) => (typeof meta[name] === "string" ? [[name, meta[name]]] : []));
  const own = context(run);
  // Plugins of drover behind the gateway find the folder in this label.
  const folder = Buffer.byteLength(cwd) <= MAX_CONTEXT_BYTES ? { cwd } : {};
  return { context: { runId, parentRunId, depth, ...Object.fromEntries(ids), ...own, labels: { ...folder, ...own.labels } }, signal };
}

/** A result in drover's form. It stays that of a tool that `failed`, unless it says itself whether it is an error. */
function resultOf(value: JsonValue, failed = false): ToolResult {
  const plain = fromJson(value) as Partial<ToolResult> | string | null;
  const isResult = typeof plain === "object" && typeof plain?.content === "string";
  const left = isResult ? (plain as ToolResult) : { content: typeof plain === "string" ? plain : JSON.stringify(plain) };
  return failed ? { ...left, isError: left.isError ?? true } : left;
}

function log(error: unknown): void {
  console.error(`hookgate: ${messageOf(error)}`);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String((error as { message?: unknown } | null)?.message ?? error);
}
