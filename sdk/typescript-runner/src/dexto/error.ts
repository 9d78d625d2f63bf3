/** Dexto's own codes for what is wrong with a plugin. */
import { EntryError } from "../entry.js";

export type DextoCode =
  | "PLUGIN_LOAD_FAILED"
  | "PLUGIN_INVALID_SHAPE"
  | "PLUGIN_INSTANTIATION_FAILED"
  | "PLUGIN_INITIALIZATION_FAILED"
  | "PLUGIN_CONFIGURATION_INVALID";

/** Why Dexto wouldn't start with the plugin. */
export class DextoError extends EntryError {
  override name = "DextoError";

  constructor(
    readonly code: DextoCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(`${code}: ${message}`, options);
  }
}
