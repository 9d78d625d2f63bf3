/**
 * Test plugins without a gateway and without a socket, with any test runner.
 *
 * {@link TestPlugin} calls a plugin as a gateway does. {@link TestHost} is the gateway's storage, log and events, in memory.
 *
 * @module @hookgate/sdk/testing
 */
export { CallError, type StatusName } from "./call-error.js";
export type { TestLlmRequest, TestResponse, TestToolCall, TestToolResult } from "./payloads.js";
export type { TestEvent, TestLogLine } from "./records.js";
export type { TestTool } from "./replies.js";
export { TestHost, type TestHostOptions } from "./test-host.js";
export { type InputOf, type TestCallContext, TestPlugin, type TestPluginOptions } from "./test-plugin.js";
export type { WindowedResponse } from "./windows.js";
