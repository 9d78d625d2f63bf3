/** Answers of LangChain's models: what plugins see of them, and how their changes get back. */
import { AIMessage } from "@langchain/core/messages";
import { type AnswerWalk, patchParts } from "./answer-parts.js";
import type { ModelResponsePatch } from "./guard.js";
import { type AnswerBlock, editBlocks } from "./langchain-blocks.js";
import { type Block, remainder, replaceText } from "./langchain-messages.js";
import { editReasoning } from "./reasoning.js";
import { isRecord } from "../values.js";

/** What of an answer has texts and thoughts. */
type AnswerContent = Pick<AIMessage, "content" | "additional_kwargs">;

/** Where providers put reasoning beside the content. Some repeat it in several. */
const REASONING_FIELDS = ["reasoning_content", "reasoning", "reasoning_details"];

/**
 * The content of an answer with its texts and thoughts changed, and the refusal, the audio and the reasoning beside it. A changed text
 * loses what the provider said about the old one, such as citations.
 */
export function editAnswer({ content, additional_kwargs: fields }: AIMessage, walk: AnswerWalk): AnswerContent {
  const edited = typeof content === "string" ? walk.texts.next(content) : editBlocks(content, walk);
  const { refusal, audio } = fields;
  const changedRefusal = typeof refusal === "string" ? walk.texts.next(refusal) : "";
  const transcript = transcriptIn(audio);
  const changedTranscript = walk.texts.next(transcript);
  const isSame = changedTranscript === transcript;
  const reasoning = REASONING_FIELDS.map((name) => {
    walk.thoughts.beginMember();
    return [name, editReasoning(fields[name], walk.thoughts)] as const;
  });
  const beside = Object.fromEntries(reasoning.filter(([, value]) => value !== undefined && value !== null));
  if (changedRefusal !== "") beside["refusal"] = changedRefusal;
  if (transcript !== "" && isSame) beside["audio"] = audio;
  // The sound can't change with its transcript, so it becomes text.
  const said = isSame ? edited : appendText(edited, changedTranscript);
  // Providers take no message without any content.
  const isEmpty = content.length > 0 && said.length === 0 && typeof said !== "string";
  return { content: (isEmpty ? [{ type: "text", text: "" }] : said) as AIMessage["content"], additional_kwargs: beside };
}

/** The answer as plugins left it, with the same id. Only what can't hold a copy of a text remains of what the provider said about it. */
export function patchAnswer(answer: AIMessage, patch: ModelResponsePatch): AIMessage {
  const { id, name, usage_metadata } = answer;
  const common = {
    ...(id === undefined ? {} : { id }),
    ...(name === undefined ? {} : { name }),
    ...(usage_metadata === undefined ? {} : { usage_metadata }),
  };
  const rest = remainder(answer);
  if (patch.blocked !== undefined)
    return new AIMessage({ ...common, content: patch.blocked.message, response_metadata: rest.response_metadata });
  const { answer: edited, addedText, addedThought } = patchParts(patch, (walk) => editAnswer(answer, walk));
  const { content, additional_kwargs } = edited;
  const hasPlace = addedThought !== undefined && additional_kwargs["reasoning_content"] === "";
  return new AIMessage({
    ...common,
    content: addedText === undefined ? content : typeof content === "string" ? addedText : replaceText(content as Block[], addedText),
    tool_calls: answer.tool_calls ?? [],
    invalid_tool_calls: answer.invalid_tool_calls ?? [],
    response_metadata: rest.response_metadata,
    additional_kwargs: { ...rest.additional_kwargs, ...additional_kwargs, ...(hasPlace ? { reasoning_content: addedThought } : {}) },
  } as ConstructorParameters<typeof AIMessage>[0] & object);
}

function transcriptIn(audio: unknown): string {
  const transcript = isRecord(audio) ? audio["transcript"] : undefined;
  return typeof transcript === "string" ? transcript : "";
}

function appendText(content: string | readonly AnswerBlock[], text: string): string | readonly AnswerBlock[] {
  if (typeof content !== "string") return text === "" ? content : [...content, { type: "text", text }];
  return [content, text].filter((line) => line !== "").join("\n");
}
