/**
 * Puts models and tools of the AI SDK (package `ai`) behind the gateway.
 *
 * ```ts
 * import { generateText, stepCountIs, wrapLanguageModel } from "ai";
 * import { guard, guardTools } from "@hookgate/sdk/ai";
 *
 * const model = wrapLanguageModel({ model: openai("gpt-5"), middleware: guard(gateway) });
 * const { text } = await generateText({ model, tools: guardTools(gateway, tools), stopWhen: stepCountIs(9), prompt });
 * ```
 *
 * Where it doesn't reach: tools that a provider runs itself, files that a model makes, and embeddings. `needsApproval` and
 * the callbacks of a tool's input get the arguments before the gateway is asked.
 *
 * @module @hookgate/sdk/ai
 */
import type { LanguageModelMiddleware } from "ai";
import type { GatewayClient } from "../agent/client.js";
import { type GenerateResult, type StreamResult, guardGenerated, guardStreamed } from "./ai-answer.js";
import { type CallParameters, guardPrompt } from "./ai-prompt.js";
import { throwIfEnded } from "./ai-tools.js";
import type { ModelCall } from "./guard.js";

export { guardTools } from "./ai-tools.js";
export { PatchError, findGatewayError } from "./guard.js";

interface Model {
  readonly provider: string;
  readonly modelId: string;
}

/** The members of the middleware, for whichever specification the installed SDK has. */
interface Middleware {
  readonly specificationVersion: "v3";
  transformParams(options: { params: CallParameters; model: Model }): Promise<CallParameters>;
  wrapGenerate(options: { doGenerate: () => PromiseLike<GenerateResult>; params: CallParameters; model: Model }): Promise<GenerateResult>;
  wrapStream(options: { doStream: () => PromiseLike<StreamResult>; params: CallParameters; model: Model }): Promise<StreamResult>;
}

/**
 * Middleware for `wrapLanguageModel`: `before_llm_request` before each call of the model, `before_response` before its
 * answer goes on.
 *
 * - Plugins see the last user message as `text`, with its images and files, leading system messages as `systemPrompt`, the
 *   other messages as `messages`, and `tools`. They may change all of them, but no image and no file: those can only go.
 * - Plugins are asked about each text of an answer in a call of its own, with the thought of the same number. A change goes back to its
 *   own place. Only the first call has the token usage. A block of any text or thought is one of the whole answer.
 * - An answer without text and reasoning that calls tools isn't judged here: its tools are, with {@link guardTools}.
 * - A stream is held until it is judged. So nothing is shown before the model has finished.
 * - A block before the model is asked throws `Blocked`. A block before the response puts its message in place of the whole
 *   answer, or throws, if the answer must be JSON (`Output.object`, `generateObject`) or the scope is `run`.
 * - A missing decision throws `NoDecision`. Like all errors of a model, `streamText` puts these into the stream and passes
 *   them to `onError`.
 *
 * Put it last in a list of middleware, so that it judges what the others made of the request.
 */
export function guard(gateway: GatewayClient): LanguageModelMiddleware {
  const middleware: Middleware = {
    specificationVersion: "v3",
    async transformParams({ params, model }) {
      throwIfEnded(gateway, params.prompt);
      return guardPrompt(gateway, params, modelCall(model, params));
    },
    async wrapGenerate({ doGenerate, params, model }) {
      return guardGenerated(gateway, await doGenerate(), params, modelCall(model, params));
    },
    async wrapStream({ doStream, params, model }) {
      return guardStreamed(gateway, await doStream(), params, modelCall(model, params));
    },
  };
  // The types of the specifications differ only in what is passed on here.
  return middleware as unknown as LanguageModelMiddleware;
}

function modelCall({ provider, modelId }: Model, { abortSignal }: CallParameters): ModelCall {
  return { provider, model: modelId, signal: abortSignal };
}
