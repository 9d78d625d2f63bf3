/**
 * Puts models and tools of the OpenAI Agents SDK (package `@openai/agents`) behind the gateway. Guardrails of that SDK can
 * only stop a run, so this wraps the models and the tools, where plugins can also change things.
 *
 * ```ts
 * import { Agent, OpenAIProvider, Runner } from "@openai/agents";
 * import { guardModelProvider, guardTools } from "@hookgate/sdk/openai-agents";
 *
 * const agent = new Agent({ name: "assistant", tools: guardTools(gateway, tools) });
 * const runner = new Runner({ modelProvider: guardModelProvider(gateway, new OpenAIProvider()) });
 * const { finalOutput } = await runner.run(agent, "hi");
 * ```
 *
 * Where it doesn't reach: tools of `mcpServers` (pass `await getAllMcpTools(...)` to {@link guardTools} instead), tools that
 * the provider runs, handoffs, realtime agents, and audio in answers. With a `toolUseBehavior` that ends the run, the result of a tool
 * is the answer without `before_response`. `needsApproval` and guardrails of tools get the arguments before the gateway is
 * asked.
 *
 * @module @hookgate/sdk/openai-agents
 */
import type {
  AgentOutputItem,
  FunctionTool,
  Model,
  ModelProvider,
  ModelRequest,
  ModelResponse,
  SerializedHandoff,
  SerializedTool,
  StreamEvent,
  StreamEventResponseCompleted,
  Tool,
} from "@openai/agents";
import type { GatewayClient } from "../agent/client.js";
import { type JsonObject, type JsonValue, writeJson } from "../json.js";
import { findParts } from "./answer-parts.js";
import {
  type ModelCall,
  type ModelResponsePatch,
  PatchError,
  type ToolOutput,
  findGatewayError,
  guardModelRequest,
  guardModelResponse,
  guardToolRun,
  patchMessages,
} from "./guard.js";
import {
  decodeItem,
  editOutput,
  inputItems,
  isToolCall,
  mediaOf,
  patchOutput,
  questionIn,
  textOf,
  withText,
  withoutMedia,
} from "./openai-items.js";
import { fromJson, isRecord, mergeList, toText } from "../values.js";

export { PatchError, findGatewayError } from "./guard.js";

/**
 * A model behind the gateway: `before_llm_request` before it is asked, `before_response` before its answer goes on.
 *
 * - Plugins see the last user message as `text`, with its images and files, the instructions as `systemPrompt`, all items as
 *   `messages`, tools and handoffs as `tools`, and a prompt template as `extra.prompt`. They may change all of them, but no
 *   image and no file: those can only go.
 * - Plugins are asked about each text of an answer in a call of its own, with the thought of the same number. A change goes back to its
 *   own place. Only the first call has the token usage. A block of any text or thought is one of the whole answer.
 * - An answer without text and reasoning that calls tools isn't judged here: its tools are, with {@link guardTools}.
 * - A stream is held until it is judged. So nothing is shown before the model has finished.
 * - A block before the model is asked rejects the run with the `Blocked`. A block before the response puts its message in
 *   place of the whole answer, or rejects the run, if the agent has an `outputType` or the scope is `run`.
 * - A missing decision rejects the run with the `NoDecision`.
 * - Of a conversation that the provider keeps, plugins see only the new items.
 *
 * @param name The model's name, for plugins. The default is the model's own `model` or `name`.
 */
export function guardModel(gateway: GatewayClient, model: Model, name?: string): Model {
  const { model: ownModel, name: ownName } = model as { readonly model?: unknown; readonly name?: unknown };
  const modelName = [name, ownModel, ownName].find((candidate) => typeof candidate === "string") as string | undefined;
  const callOf = ({ signal }: ModelRequest): ModelCall => ({ model: modelName, signal });
  const guarded: Model & { readonly model?: string } = {
    // The SDK looks for it to choose settings.
    ...(modelName === undefined ? {} : { model: modelName }),
    async getResponse(request) {
      const response = await model.getResponse(await guardRequest(gateway, request, callOf(request)));
      const patch = await guardOutput(gateway, response, request, callOf(request));
      return patch === undefined ? response : patchResponse(response, patch);
    },
    async *getStreamedResponse(request) {
      const events: StreamEvent[] = [];
      for await (const event of model.getStreamedResponse(await guardRequest(gateway, request, callOf(request)))) events.push(event);
      const done = events.find((event): event is StreamEventResponseCompleted => event.type === "response_done");
      // Without it the SDK ends the run, and nothing may be shown.
      if (done === undefined) return;
      const patch = await guardOutput(gateway, done.response, request, callOf(request));
      yield* patch === undefined ? events : patchEvents(done, patch);
    },
    async getRetryAdvice(args) {
      const isDecided = findGatewayError(args.error) !== undefined || args.error instanceof PatchError;
      return isDecided ? { suggested: false, replaySafety: "unsafe", reason: "the gateway decided" } : model.getRetryAdvice?.(args);
    },
  };
  return guarded;
}

/** A provider whose models are guarded by {@link guardModel}. */
export function guardModelProvider(gateway: GatewayClient, provider: ModelProvider): ModelProvider {
  return { getModel: async (name) => guardModel(gateway, await provider.getModel(name), name) };
}

/**
 * The tools behind the gateway: `before_tool_call` before each runs, `after_tool_result` on success and on failure. The
 * tools themselves stay as they are.
 *
 * - A plugin may change the arguments, which then have to fit the tool's schema, and the tool's name, to another of `tools`.
 * - A plugin may give the result instead of the tool, or change it.
 * - After a block the model gets its message as the tool's result.
 * - A block with the scope `run`, and a missing decision, reject the run with a `ToolCallError`, whose `error` is the
 *   `Blocked` or `NoDecision`; {@link findGatewayError} finds it.
 * - If one of these, or a `PatchError`, ends a run within a tool, such as that of an agent's `asTool`, it also ends this run,
 *   whatever the tool makes of it.
 * - `tool()` makes a text of any other error, unless its `errorFunction` is `null`. The gateway then sees a success with this
 *   text.
 * - If a tool has a `timeoutMs`, the gateway's time counts.
 *
 * @throws {TypeError} If a tool isn't a function tool. The gateway can't be asked before it runs.
 */
export function guardTools<Context, T extends Tool<Context>>(gateway: GatewayClient, tools: readonly T[]): T[] {
  return tools.map((tool) => {
    if (isFunctionTool(tool)) return guardTool(gateway, tool, (tools as readonly Tool<any>[]).filter(isFunctionTool)) as T;
    throw new TypeError(`the tool ${tool.name} is of the type ${tool.type}, which the gateway can't guard: leave it out of guardTools`);
  });
}

type AnyFunctionTool = FunctionTool<any, any, any>;

function isFunctionTool(tool: Tool<any>): tool is AnyFunctionTool {
  return tool.type === "function";
}

function guardTool(gateway: GatewayClient, tool: AnyFunctionTool, tools: readonly AnyFunctionTool[]): AnyFunctionTool {
  const invoke: AnyFunctionTool["invoke"] = async (context, input, details) => {
    const args = parseArguments(input);
    const run = async (toolName: string, changed: unknown): Promise<ToolOutput<unknown>> => {
      const target = toolName === tool.name ? tool : tools.find(({ name }) => name === toolName);
      if (target === undefined) throw new PatchError(`a plugin changed the call to one of ${toolName}, which is none of the tools`);
      const value: unknown = await target.invoke(context, changed === args ? input : writeJson(changed), details);
      return { value, result: value, success: true };
    };
    const call = { toolName: tool.name, args, callId: details?.toolCall?.callId, signal: details?.signal };
    const outcome = await guardToolRun(gateway, call, run);
    if (outcome.kind === "own") return outcome.value;
    if (outcome.kind === "failed") throw outcome.error;
    if (outcome.kind === "blocked") return outcome.blocked.message;
    return typeof outcome.result === "object" ? fromJson(outcome.result) : toText(outcome.result);
  };
  return { ...tool, invoke };
}

/** The model's arguments as the tool will read them. A text that isn't JSON stays one: the tool itself refuses it. */
function parseArguments(input: string): unknown {
  try {
    return JSON.parse(input === "" ? "{}" : input);
  } catch {
    return input;
  }
}

/** Asks the gateway before a model is asked. */
async function guardRequest(gateway: GatewayClient, request: ModelRequest, call: ModelCall): Promise<ModelRequest> {
  const { input, systemInstructions, prompt } = request;
  const items = inputItems(input);
  const offers: readonly (SerializedTool | SerializedHandoff)[] = [...request.tools, ...request.handoffs];
  const question = questionIn(items);
  const media = mediaOf(question);
  const view = {
    text: textOf(question),
    systemPrompt: systemInstructions,
    messages: items,
    tools: offers,
    media,
    extra: prompt && { prompt },
  };
  const patch = await guardModelRequest(gateway, view, call);
  const patched = patchMessages(items, patch, { decode: decodeItem, withText, withoutMedia });
  return {
    ...request,
    input: patched === items ? input : [...patched],
    ...(patch.systemPrompt === undefined ? {} : { systemInstructions: patch.systemPrompt }),
    ...(patch.tools === undefined ? {} : splitOffers(mergeList(offers, patch.tools.sent, patch.tools.returned, decodeOffer))),
    ...(patch.extra === undefined ? {} : patchPrompt(patch.extra)),
  };
}

/** Handoffs are offered to the model like tools, and have no type. */
function splitOffers(offers: readonly (SerializedTool | SerializedHandoff)[]): Pick<ModelRequest, "tools" | "handoffs"> {
  return {
    tools: offers.filter((offer): offer is SerializedTool => "type" in offer),
    handoffs: offers.filter((offer): offer is SerializedHandoff => !("type" in offer)),
  };
}

function decodeOffer(json: JsonValue): SerializedTool | SerializedHandoff {
  const offer = fromJson(json);
  if (!isRecord(offer)) throw new PatchError("a plugin left a tool that is no object");
  return offer as unknown as SerializedTool | SerializedHandoff;
}

function patchPrompt({ prompt }: JsonObject): Pick<ModelRequest, "prompt"> {
  const changed = prompt === undefined ? undefined : fromJson(prompt);
  if (!isRecord(changed)) throw new PatchError("a plugin took the prompt template away");
  return { prompt: changed as unknown as NonNullable<ModelRequest["prompt"]> };
}

/** Asks the gateway before an answer is shown. */
async function guardOutput(
  gateway: GatewayClient,
  {
    output,
    usage,
  }: { readonly output: readonly AgentOutputItem[]; readonly usage: { readonly inputTokens: number; readonly outputTokens: number } },
  { outputType }: ModelRequest,
  call: ModelCall,
): Promise<ModelResponsePatch | undefined> {
  const response = {
    ...findParts((walk) => editOutput(output, walk)),
    tokenUsage: { input: usage.inputTokens, output: usage.outputTokens },
    hasToolCalls: output.some(isToolCall),
    isStructured: outputType !== "text",
  };
  return guardModelResponse(gateway, response, call);
}

function patchResponse({ providerData: _, ...response }: ModelResponse, patch: ModelResponsePatch): ModelResponse {
  return { ...response, output: patchOutput(response.output, patch) };
}

/** A stream of the answer as plugins left it. The provider's own events have the text as it was. */
function* patchEvents({ response }: StreamEventResponseCompleted, patch: ModelResponsePatch): Iterable<StreamEvent> {
  const { providerData: _, ...others } = response;
  const output = patchOutput(response.output, patch);
  yield { type: "response_started" };
  for (const delta of findParts((walk) => editOutput(output, walk)).texts) yield { type: "output_text_delta", delta };
  yield { type: "response_done", response: { ...others, output: output as typeof response.output } };
}
