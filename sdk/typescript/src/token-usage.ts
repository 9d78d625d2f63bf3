/** Tokens in payloads. */

/** Tokens that a model call used. */
export interface TokenUsage {
  /** Tokens of the prompt. */
  readonly input: number;
  /** Tokens of the completion. */
  readonly output: number;
}
