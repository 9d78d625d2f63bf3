/**
 * Write Hookgate plugins in TypeScript.
 *
 * A plugin is what {@link definePlugin} makes: it names what it offers, takes a checked configuration, and answers calls with
 * {@link proceed}, {@link cancel}, {@link answer} or {@link contribute}. `npx hookgate run` and {@link serve} run it as a process.
 *
 * @module @hookgate/sdk
 */
export { type Caller, type ChainResult, Context, Host } from "./context.js";
export { PluginError } from "./errors.js";
export type {
  AgentBody,
  CompactionBody,
  HookOffer,
  HookPayloadOf,
  KnownHooks,
  OutcomeBody,
  SessionBody,
  SubagentBody,
} from "./hook.js";
export {
  type AbortOptions,
  type AddOperation,
  type AddOptions,
  type AddResult,
  type AddSuccess,
  type Attributes,
  CounterEntry,
  type CounterState,
  type DeleteOperation,
  type DeleteOptions,
  type DeleteResult,
  type DeleteSuccess,
  type Entry,
  type Event,
  HostError,
  type HostErrorKind,
  type ListOptions,
  Log,
  type Operation,
  type OperationResult,
  type Page,
  type Period,
  type PutOperation,
  type PutOptions,
  type PutResult,
  type PutSuccess,
  Storage,
  type TransactRejection,
  type TransactResult,
  ValueEntry,
  keyPart,
  periodMs,
} from "./host/index.js";
export { JsonError, type JsonObject, type JsonValue, parseJson, writeJson } from "./json.js";
export type { Media, MediaData, MediaUrl } from "./media.js";
export { type LogAttributes, type Logger, stderrLogger } from "./logger.js";
export {
  AfterToolResultPayload,
  BeforeLlmRequestPayload,
  BeforeResponsePayload,
  BeforeToolCallPayload,
  HookPayload,
  type ResponseWindow,
} from "./payload.js";
export { type Awaitable, type Definition, type Handlers, type Manifest, Plugin, type PluginClass, definePlugin } from "./plugin.js";
export type { Capability, PayloadField, PointName, PointOffer } from "./point.js";
export {
  type AfterToolResultPatch,
  type BeforeLlmRequestPatch,
  type BeforeResponsePatch,
  type BeforeToolCallPatch,
  type Cancel,
  type CancelOptions,
  type HookContribution,
  HookReply,
  type Notice,
  type PatchMembers,
  type ProceedOptions,
  Reply,
  answer,
  cancel,
  contribute,
  proceed,
} from "./reply.js";
export type { OutputOf, Schema } from "./schema.js";
export type { TlsOptions } from "./server/listen.js";
export type { RegistrationOptions, RegistrationToken } from "./server/registration.js";
export { type Server, type ServeOptions, serve } from "./server/server.js";
export type { TokenUsage } from "./token-usage.js";
export { type Tool, ToolError, tool } from "./tool.js";
export type { ToolAnnotations } from "./tool-annotations.js";
