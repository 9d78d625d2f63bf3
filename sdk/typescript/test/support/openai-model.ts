/** A scripted model of the OpenAI Agents SDK, which answers the same whole and streamed. */
import { type AgentOutputItem, type Model, type ModelRequest, type StreamEvent, Usage } from "@openai/agents";

/** One answer of the model. */
export interface ModelAnswer {
  readonly reasoning?: string;
  readonly text?: string;
  readonly toolCalls?: readonly { readonly id: string; readonly name: string; readonly input: unknown }[];
}

/** A model that gives these answers one after another. */
export class ScriptedModel implements Model {
  readonly model = "fake-1";
  readonly requests: ModelRequest[] = [];
  readonly #answers: ModelAnswer[];

  constructor(...answers: ModelAnswer[]) {
    this.#answers = answers;
  }

  async getResponse(request: ModelRequest) {
    const output = outputOf(this.#next(request));
    return { output, usage: usage(), responseId: "response-1", providerData: { raw: JSON.stringify(output) } };
  }

  async *getStreamedResponse(request: ModelRequest): AsyncIterable<StreamEvent> {
    const answer = this.#next(request);
    yield { type: "response_started" };
    for (const delta of answer.text?.match(/..?/gs) ?? []) {
      yield { type: "output_text_delta", delta };
      yield { type: "model", event: { delta } };
    }
    const { inputTokens, outputTokens, totalTokens } = usage();
    const response = {
      id: "response-1",
      usage: { inputTokens, outputTokens, totalTokens },
      output: outputOf(answer) as never,
      providerData: { raw: JSON.stringify(answer) },
    };
    yield { type: "response_done", response };
  }

  #next(request: ModelRequest): ModelAnswer {
    this.requests.push(request);
    const answer = this.#answers.shift();
    if (answer === undefined) throw new Error("the model was asked too often");
    return answer;
  }
}

function usage(): Usage {
  return new Usage({ inputTokens: 3, outputTokens: 5, totalTokens: 8 });
}

function outputOf({ reasoning, text, toolCalls = [] }: ModelAnswer): AgentOutputItem[] {
  const output: AgentOutputItem[] = [];
  if (reasoning !== undefined)
    output.push({
      type: "reasoning",
      id: "r-1",
      content: [{ type: "input_text", text: reasoning }],
      providerData: { encrypted_content: reasoning },
    });
  if (text !== undefined) {
    const content = [{ type: "output_text" as const, text, providerData: { logprobs: [text] } }];
    output.push({ type: "message", id: "m-1", role: "assistant", status: "completed", content });
  }
  for (const { id, name, input } of toolCalls) {
    output.push({ type: "function_call", callId: id, name, arguments: JSON.stringify(input), status: "completed" });
  }
  return output;
}
