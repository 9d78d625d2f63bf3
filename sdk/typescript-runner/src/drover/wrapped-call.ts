/**
 * A tool call that passes through `wrapTool`. The tool runs at the agent, so the wrapper is held where it calls the tool, until the agent
 * sends the result.
 */
import type { TextResult } from "../tool-result.js";

/** What the wrapper did before the tool ran. */
export type WrapperStep =
  | { readonly kind: "forward"; readonly input: unknown }
  | { readonly kind: "answer"; readonly result: unknown }
  | { readonly kind: "failure"; readonly error: unknown };

const NO_SECOND_RUN = "the tool can't run a second time for one call: it runs at the agent, behind the gateway";

export class WrappedCall {
  readonly #result: PromiseWithResolvers<TextResult> = withResolvers();
  readonly #forwarded: PromiseWithResolvers<unknown> = withResolvers();
  #outcome: Promise<unknown> | undefined;
  #isForwarded = false;

  /** @param result The tool's result, if the tool has run. */
  constructor(result?: TextResult) {
    // A wrapper may fail without looking at the result.
    this.#result.promise.catch(() => {});
    if (result !== undefined) this.#result.resolve(result);
  }

  /** Runs the wrapper until it calls the tool, or ends without that. */
  begin(wrapper: () => Promise<unknown>): Promise<WrapperStep> {
    const outcome = wrapper();
    this.#outcome = outcome;
    return Promise.race<WrapperStep>([
      this.#forwarded.promise.then((input) => ({ kind: "forward", input })),
      outcome.then(
        (result) => ({ kind: "answer", result }),
        (error: unknown) => ({ kind: "failure", error }),
      ),
    ]);
  }

  /** What the wrapper calls as the tool. */
  async runTool(input: unknown): Promise<TextResult> {
    if (this.#isForwarded) throw new Error(NO_SECOND_RUN);
    this.#isForwarded = true;
    this.#forwarded.resolve(input);
    return this.#result.promise;
  }

  /** Gives the wrapper the tool's result. Returns what it makes of it. */
  resume(result: TextResult): Promise<unknown> {
    this.#result.resolve(result);
    return this.#outcome ?? Promise.resolve(result);
  }

  /** Ends the wrapper's wait for a result that won't come. */
  abandon(reason: string): void {
    this.#result.reject(new Error(reason));
  }
}

// Node 20 has no Promise.withResolvers.
interface PromiseWithResolvers<T> {
  readonly promise: Promise<T>;
  resolve(value: T): void;
  reject(error: unknown): void;
}

function withResolvers<T>(): PromiseWithResolvers<T> {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((...functions) => ([resolve, reject] = functions));
  return { promise, resolve, reject };
}
