/**
 * Puts agents of LangChain (`createAgent` of the package `langchain`) behind the gateway.
 *
 * ```ts
 * import { createAgent } from "langchain";
 * import { guard } from "@hookgate/sdk/langchain";
 *
 * const agent = createAgent({ model: "openai:gpt-5", tools, middleware: [guard(gateway)] });
 * const { messages } = await agent.invoke({ messages: [{ role: "user", content: "hi" }] });
 * ```
 *
 * Where it doesn't reach: tools that a provider runs itself, updates of the state in a `Command` of a tool, and what other
 * middleware does without the agent's model. Callbacks, tracers, `streamEvents` and `streamMode: "tools"` get what the model and
 * the tools said before it is judged. The result of a tool with `returnDirect` is the answer without `before_response`. `humanInTheLoopMiddleware` shows
 * the arguments before the gateway is asked.
 *
 * @module @hookgate/sdk/langchain
 */
import type { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage, type BaseMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { convertToOpenAITool } from "@langchain/core/utils/function_calling";
import {
  MiddlewareError,
  type ModelRequest as LangChainRequest,
  type ToolCallRequest,
  ToolInvocationError,
  createMiddleware,
} from "langchain";
import type { GatewayClient } from "../agent/client.js";
import { type JsonValue, parseJson } from "../json.js";
import { findParts } from "./answer-parts.js";
import {
  type ModelCall,
  type ModelResponse,
  PatchError,
  type ToolOutcome,
  type ToolOutput,
  guardModelRequest,
  guardModelResponse,
  guardToolRun,
  patchMessages,
} from "./guard.js";
import { editAnswer, patchAnswer } from "./langchain-answer.js";
import { decodeMessage, encodeMessage, mediaOf, questionIn, textOf, withText, withoutMedia } from "./langchain-messages.js";
import { fromJson, isRecord, mergeList, messageOf, toJson, toText } from "../values.js";

export { PatchError, findGatewayError } from "./guard.js";

/**
 * Middleware for `createAgent`: `before_llm_request` and `before_response` around each call of the model,
 * `before_tool_call` and `after_tool_result` around each tool.
 *
 * - Plugins see the last user message as `text`, with its images and files, the system message as `systemPrompt`, the
 *   other messages as `messages`, and `tools` in OpenAI's form. They may change texts and messages, and leave tools, images
 *   and files out. Other changes of those three throw a {@link PatchError}.
 * - Plugins are asked about each text of an answer in a call of its own, with the thought of the same number. A change goes back to its
 *   own place. Only the first call has the token usage. A block of any text or thought is one of the whole answer.
 *   Neighbouring texts of which one has citations are one text: its provider has cut it. A changed thought that the provider signs or
 *   encrypts is left out.
 * - An answer without text and reasoning that calls tools isn't judged as one: its tools are.
 * - An answer with a `responseFormat` is judged as JSON, in a call of its own.
 * - `streamMode: "messages"` shows an answer when it is judged, in one piece. An answer with a `responseFormat` is shown before, if
 *   the model drops the settings of `bindTools`.
 * - A block before the model is asked, a block with the scope `run`, and a missing decision reject the run with a
 *   `MiddlewareError`, whose cause is the `Blocked` or `NoDecision`; {@link findGatewayError} finds it. So does a block of an
 *   answer that has a `responseFormat`. Otherwise the message of a block before the response is all that remains of it.
 * - A block of a tool is a `ToolMessage` with the status `error`. So is a tool that throws, as without middleware.
 * - If a {@link PatchError}, a missing decision or a block with the scope `run` ends a run within a tool, it also ends this run,
 *   whatever the tool or other middleware makes of it.
 * - A result that a plugin changed or blocked has no `artifact`, and updates no state.
 * - The gateway is asked again about a tool that interrupts the run, when the run is resumed.
 *
 * Put it after middleware that changes requests, so that it judges what they made of them, and before middleware that retries, falls
 * back to another model, or catches errors: they would ask again after a block, and make an answer of what ended the run.
 */
export function guard(gateway: GatewayClient) {
  return createMiddleware({
    name: "Hookgate",
    async wrapModelCall(request, handler) {
      const call = modelCall(request);
      const answer: unknown = await handler(quiet(await guardRequest(gateway, request, call)));
      return (await guardAnswer(gateway, answer, request, call)) as AIMessage;
    },
    async wrapToolCall(request, handler) {
      return guardTool(gateway, request, async (changed) => handler(changed as typeof request));
    },
  });
}

function modelCall({ model, runtime }: LangChainRequest): ModelCall {
  const { getLsParams } = model as { getLsParams?: (options: object) => { ls_provider?: string; ls_model_name?: string } };
  const { ls_provider: provider, ls_model_name: name } = typeof getLsParams === "function" ? getLsParams.call(model, {}) : {};
  return { provider, model: name, signal: runtime.signal };
}

/** Asks the gateway before a model is asked. */
async function guardRequest<Request extends LangChainRequest>(gateway: GatewayClient, request: Request, call: ModelCall): Promise<Request> {
  const { messages, tools, systemMessage } = request;
  const question = questionIn(messages);
  const media = mediaOf(question);
  const view = {
    text: textOf(question),
    systemPrompt: systemMessage.text === "" ? undefined : systemMessage.text,
    messages: messages.map(encodeMessage),
    tools: tools.map((tool) => convertToOpenAITool(tool as Parameters<typeof convertToOpenAITool>[0])),
    media,
  };
  const patch = await guardModelRequest(gateway, view, call);
  return {
    ...request,
    messages: patchMessages(messages, patch, { decode: decodeMessage, withText, withoutMedia }) as BaseMessage[],
    systemMessage: patch.systemPrompt === undefined ? systemMessage : new SystemMessage(patch.systemPrompt),
    tools: patch.tools === undefined ? tools : mergeList(tools, patch.tools.sent, patch.tools.returned, refuseTool),
  };
}

function refuseTool(): never {
  throw new PatchError("a plugin added or changed a tool, which LangChain can't do: it can only be left out");
}

/** LangGraph doesn't stream models with this tag, but the message that the middleware returns. */
const NO_STREAM = { tags: ["langsmith:nostream"] };

/** The same request, but LangGraph doesn't stream what the model says. */
function quiet<Request extends LangChainRequest>(request: Request): Request {
  const { model, modelSettings, responseFormat } = request;
  const silenced = { ...request, modelSettings: { ...modelSettings, tags: [...tagsOf(modelSettings), ...NO_STREAM.tags] } };
  // The settings are for `bindTools`, and some models drop them there. So the model has the tag too, but not if it is to answer
  // in a format: LangChain then has to see the model itself to choose the way.
  const isPlain = responseFormat === undefined && "_streamResponseChunks" in model;
  return isPlain ? { ...silenced, model: (model as BaseChatModel).withConfig(NO_STREAM) } : silenced;
}

function tagsOf(settings: Record<string, unknown> | undefined): unknown[] {
  const tags = settings?.["tags"];
  return Array.isArray(tags) ? tags : [];
}

/** An answer in a format. It comes from the handler, although its type doesn't say so. */
interface FormattedAnswer {
  readonly structuredResponse: unknown;
  readonly messages: BaseMessage[];
}

/** Asks the gateway before an answer is shown. */
async function guardAnswer(gateway: GatewayClient, answer: unknown, request: LangChainRequest, call: ModelCall): Promise<unknown> {
  if (isRecord(answer) && "structuredResponse" in answer && Array.isArray(answer["messages"])) {
    return guardFormatted(gateway, answer as unknown as FormattedAnswer, call);
  }
  // Other middleware may answer with a command, without asking the model.
  if (!AIMessage.isInstance(answer)) return answer;
  const isStructured = isFormatted(answer, request);
  const patch = await guardModelResponse(gateway, responseOf(answer, isStructured), call);
  if (patch === undefined) return answer;
  if (isStructured) throw new PatchError("a plugin changed an answer that LangChain has already taken apart");
  return patchAnswer(answer, patch);
}

/** Whether LangChain may have taken the answer apart: it calls a tool that stands for the format. */
function isFormatted(answer: AIMessage, { responseFormat, tools }: LangChainRequest): boolean {
  const names = new Set(tools.map((tool) => tool.name));
  return responseFormat !== undefined && (answer.tool_calls ?? []).some(({ name }) => !names.has(name));
}

async function guardFormatted(gateway: GatewayClient, answer: FormattedAnswer, call: ModelCall): Promise<FormattedAnswer> {
  const { structuredResponse, messages } = answer;
  const message = messages.find((candidate) => AIMessage.isInstance(candidate)) ?? new AIMessage("");
  const json = toText(toJson(structuredResponse));
  const response = responseOf(message, true);
  // With a tool for the format, the model may also have said something.
  const isText = response.texts.length === 0 || !response.hasToolCalls;
  const texts = isText ? [json] : [...response.texts, json];
  const patch = await guardModelResponse(gateway, { ...response, texts, hasToolCalls: false }, call);
  if (patch === undefined) return answer;
  const isBeside = !isText || patch.thoughts.some((thought) => thought !== undefined);
  if (isBeside) throw new PatchError("a plugin changed what a model said beside its answer in a format");
  const content = patch.texts[0] ?? json;
  const id = message.id === undefined ? {} : { id: message.id };
  return { structuredResponse: fromJson(parseJson(content)), messages: [new AIMessage({ ...id, content })] };
}

function responseOf(answer: AIMessage, isStructured: boolean): ModelResponse {
  const { input_tokens, output_tokens } = (answer.usage_metadata ?? {}) as { input_tokens?: number; output_tokens?: number };
  const { finish_reason, stop_reason } = answer.response_metadata as Record<string, unknown>;
  const stopReason = finish_reason ?? stop_reason;
  return {
    ...findParts((walk) => editAnswer(answer, walk)),
    tokenUsage: { input: input_tokens, output: output_tokens },
    stopReason: typeof stopReason === "string" ? stopReason : undefined,
    hasToolCalls: (answer.tool_calls ?? []).length > 0,
    isStructured,
  };
}

type ToolAnswer = Awaited<ReturnType<Parameters<NonNullable<ReturnType<typeof createMiddleware>["wrapToolCall"]>>[1]>>;

async function guardTool(
  gateway: GatewayClient,
  request: ToolCallRequest,
  handler: (request: ToolCallRequest) => Promise<ToolAnswer>,
): Promise<ToolAnswer> {
  const { toolCall, runtime } = request;
  const { id: callId } = toolCall;
  let hasBlocks = false;
  const run = async (name: string, args: unknown): Promise<ToolOutput<ToolAnswer>> => {
    const isRenamed = name !== toolCall.name;
    const isChanged = isRenamed || args !== toolCall.args;
    const changedCall = { ...toolCall, name, args: fromJson(args as JsonValue) as typeof toolCall.args };
    const value = await handler(isChanged ? { ...request, toolCall: changedCall, tool: isRenamed ? undefined : request.tool } : request);
    const message = ToolMessage.isInstance(value) ? value : messageIn(value, callId);
    hasBlocks = typeof message?.content === "object";
    return { value, result: message?.content, success: message?.status !== "error" };
  };
  const call = { toolName: toolCall.name, args: toolCall.args, callId, signal: runtime.signal };
  const outcome = await guardToolRun(gateway, call, run, isBubbleUp);
  return outcome.kind === "own" ? outcome.value : toolMessage(outcome, toolCall, hasBlocks);
}

/** The message for this call in the state that a tool's command updates. */
function messageIn(command: ToolAnswer, callId: string | undefined): ToolMessage | undefined {
  const update = "update" in command ? command.update : undefined;
  const messages = isRecord(update) && Array.isArray(update["messages"]) ? (update["messages"] as unknown[]) : [];
  return messages.find((message) => ToolMessage.isInstance(message) && message.tool_call_id === callId) as ToolMessage | undefined;
}

/** Interrupts and commands for another graph are thrown. */
function isBubbleUp(error: unknown): boolean {
  return isRecord(error) && error["is_bubble_up"] === true;
}

function toolMessage(
  outcome: Exclude<ToolOutcome<ToolAnswer>, { kind: "own" }>,
  { id, name }: { id?: string | undefined; name: string },
  hasBlocks: boolean,
): ToolMessage {
  const message = (content: ToolMessage["content"], status: "success" | "error") =>
    new ToolMessage({ content, status, name, tool_call_id: id ?? "" });
  if (outcome.kind === "failed") return message(failureOf(outcome.error), "error");
  if (outcome.kind === "blocked") return message(outcome.blocked.message, "error");
  const { result, success } = outcome;
  const content = hasBlocks && Array.isArray(result) ? (fromJson(result) as ToolMessage["content"]) : toText(result);
  return message(content, success ? "success" : "error");
}

/**
 * What an agent without middleware tells the model of a tool that threw.
 *
 * @throws What other middleware threw: LangChain ends the run for it.
 */
function failureOf(error: unknown): string {
  let root = error;
  while (MiddlewareError.isInstance(root)) root = root.cause;
  if (root instanceof ToolInvocationError) return messageOf(root);
  if (MiddlewareError.isInstance(error)) throw error;
  return `${String(error)}\n Please fix your mistakes.`;
}
