/** The gateway's services as a plugin uses them: storage, log and events. */
export { type AbortOptions, type CallAccess, type ForwardedMetadata, HostClient } from "./client.js";
export { CounterEntry, type Entry, type Page, ValueEntry } from "./entry.js";
export { HostError, type HostErrorKind } from "./errors.js";
export { type Event, emit } from "./event.js";
export { keyPart } from "./key.js";
export { HostLink, HostLinks, type HostOffer } from "./links.js";
export { Log } from "./log.js";
export type {
  AddOperation,
  AddOptions,
  AddResult,
  AddSuccess,
  CounterState,
  DeleteOperation,
  DeleteOptions,
  DeleteResult,
  DeleteSuccess,
  Operation,
  OperationResult,
  PutOperation,
  PutOptions,
  PutResult,
  PutSuccess,
  TransactRejection,
  TransactResult,
} from "./operation.js";
export { type Period, periodMs } from "./period.js";
export type { Attributes } from "./record-rules.js";
export { type ListOptions, Storage } from "./storage.js";
