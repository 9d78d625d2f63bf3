/** A scripted chat model of LangChain, which streams texts in pieces of two characters, and blocks in one. */
import type { CallbackManagerForLLMRun } from "@langchain/core/callbacks/manager";
import { BaseChatModel, type BindToolsInput } from "@langchain/core/language_models/chat_models";
import { type AIMessage, AIMessageChunk, type BaseMessage } from "@langchain/core/messages";
import { ChatGenerationChunk, type ChatResult } from "@langchain/core/outputs";

/** What the models bound from one another share. */
interface Script {
  readonly answers: AIMessage[];
  readonly requests: BaseMessage[][];
  readonly tools: BindToolsInput[][];
}

/** A model that gives these answers one after another. */
export class ScriptedChatModel extends BaseChatModel {
  constructor(readonly script: Script) {
    super({});
  }

  static answering(...answers: AIMessage[]): ScriptedChatModel {
    return new ScriptedChatModel({ answers: [...answers], requests: [], tools: [] });
  }

  _llmType(): string {
    return "scripted";
  }

  override getLsParams() {
    return { ls_provider: "fake", ls_model_name: "fake-1", ls_model_type: "chat" as const };
  }

  /** Drops the settings, as some models do. */
  override bindTools(tools: BindToolsInput[]) {
    this.script.tools.push(tools);
    return this.withConfig({});
  }

  async _generate(messages: BaseMessage[]): Promise<ChatResult> {
    const message = this.#next(messages);
    return { generations: [{ text: message.text, message }] };
  }

  override async *_streamResponseChunks(messages: BaseMessage[], _options: this["ParsedCallOptions"], manager?: CallbackManagerForLLMRun) {
    const { tool_calls = [], content, id, ...rest } = this.#next(messages);
    const chunks = tool_calls.map(({ name, args, id }, index) => ({
      name,
      args: JSON.stringify(args),
      ...(id === undefined ? {} : { id }),
      index,
      type: "tool_call_chunk" as const,
    }));
    const common = { ...(id === undefined ? {} : { id }), response_metadata: rest.response_metadata };
    yield chunk(new AIMessageChunk({ ...common, content: "", tool_call_chunks: chunks }));
    for (const piece of typeof content === "string" ? (content.match(/..?/gs) ?? []) : [content]) {
      const next = chunk(new AIMessageChunk({ ...(id === undefined ? {} : { id }), content: piece }));
      yield next;
      await manager?.handleLLMNewToken(next.text, undefined, undefined, undefined, undefined, { chunk: next });
    }
  }

  #next(messages: BaseMessage[]): AIMessage {
    this.script.requests.push(messages);
    const answer = this.script.answers.shift();
    if (answer === undefined) throw new Error("the model was asked too often");
    return answer;
  }
}

function chunk(message: AIMessageChunk): ChatGenerationChunk {
  return new ChatGenerationChunk({ message, text: message.text });
}
