/**
 * What programs that serve plugins, such as `hookgate run`, have in common: the options of the command line, and loading TypeScript.
 *
 * @module @hookgate/sdk/cli
 */
export { type TypeScriptOptions, enableTypeScript } from "./load.js";
export { type RunOptions, SERVE_USAGE, UsageError, parseRunOptions } from "./options.js";
