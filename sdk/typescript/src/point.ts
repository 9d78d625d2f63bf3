/** The extension points, and what a plugin offers at them. */
import { ExtensionPoint } from "./gen/hookgate/types/v1/types_pb.js";

/** The four places of an agent's loop at which plugins run, by the name of a plugin's method. */
export type PointName = "beforeLlmRequest" | "beforeToolCall" | "afterToolResult" | "beforeResponse";

/** The members of each point's payload that can be large. */
const FIELDS = {
  beforeLlmRequest: ["text", "images", "files", "systemPrompt", "messages", "tools", "extra"],
  beforeToolCall: ["args", "extra"],
  afterToolResult: ["result", "args", "extra"],
  beforeResponse: ["content", "reasoning", "extra"],
} as const satisfies { readonly [Name in PointName]: readonly string[] };

/** A member of a point's payload that can be large. */
export type PayloadField<Name extends PointName = PointName> = (typeof FIELDS)[Name][number];

/** What a plugin offers at a point. Say less than the default where you can: operators consent to it. */
export interface PointOffer<Name extends PointName = PointName> {
  /** `read`: the plugin may look and cancel. `modify`, the default: it may also patch the payload. */
  readonly access?: "read" | "modify";
  /**
   * Whether a call counts, stores or sends something. With `read` and `none` the gateway calls the plugin at the same time as
   * its neighbours. The default is `some`.
   */
  readonly sideEffects?: "none" | "some";
  /**
   * The large members of the payload that the handler reads. The gateway sends no others: they are as if absent. With `[]` it sends none
   * of them, and by default all. Small members, such as `toolName`, are always sent. A patch may replace a member that isn't read.
   */
  readonly reads?: readonly PayloadField<Name>[];
  /**
   * Only at `beforeResponse`: whether the handler also judges an answer in parts, while the model still writes it. A call about a part has
   * `call.window`, and the handler answers with `proceed(patch, { consumed })`. What it has let pass goes to the user at once. It needs
   * the member `content`. Whole answers come too, as without windows. The default is `false`.
   */
  readonly windows?: Name extends "beforeResponse" ? boolean : never;
}

/** What a plugin may ask of a gateway. The gateway's operator grants it. */
export type Capability = "storage:read" | "storage:write" | "log" | "emit";

interface Point {
  readonly name: PointName;
  /** As in configuration and on the wire. */
  readonly wireName: string;
  readonly wire: ExtensionPoint;
}

/** All of them, in the order of an agent's loop. */
export const POINTS: readonly Point[] = [
  { name: "beforeLlmRequest", wireName: "before_llm_request", wire: ExtensionPoint.BEFORE_LLM_REQUEST },
  { name: "beforeToolCall", wireName: "before_tool_call", wire: ExtensionPoint.BEFORE_TOOL_CALL },
  { name: "afterToolResult", wireName: "after_tool_result", wire: ExtensionPoint.AFTER_TOOL_RESULT },
  { name: "beforeResponse", wireName: "before_response", wire: ExtensionPoint.BEFORE_RESPONSE },
];

/** The members of the point's payload that can be large. */
export function fieldsOf(point: PointName): readonly PayloadField[] {
  return FIELDS[point];
}

/** The name of a payload's member as on the wire. */
export function wireNameOfField(field: PayloadField): string {
  return field === "systemPrompt" ? "system_prompt" : field;
}

/** The name of a point as in configuration and on the wire. */
export function wireNameOf(name: PointName): string {
  return POINTS.find((point) => point.name === name)?.wireName ?? name;
}
