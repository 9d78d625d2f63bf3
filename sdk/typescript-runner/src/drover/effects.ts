/** Runs what a plugin returns: an Effect with the package `effect` of the plugin's own project, a promise, or a value. */
import { dirname } from "node:path";
import { loadPackage } from "../module.js";

interface EffectModule {
  runPromise(effect: unknown, options?: { signal?: AbortSignal | undefined }): Promise<unknown>;
  tryPromise(options: { try: () => Promise<unknown>; catch: (error: unknown) => unknown }): object;
}

/** Marks of Effect 2 and 3, and of Effect 4. */
const EFFECT_MARKS = [Symbol.for("effect/Effect"), "~effect/Effect"] as const;

/** Runs Effects with one copy of the package. */
export class Effects {
  private constructor(
    readonly module: EffectModule | undefined,
    readonly folder: string,
  ) {}

  /** Finds the package for the plugin of a module. */
  static async forPlugin(modulePath: string): Promise<Effects> {
    const loaded = await loadPackage("effect", modulePath);
    return new Effects(loaded?.Effect as EffectModule | undefined, dirname(modulePath));
  }

  /** What the plugin's value comes to. @throws What the plugin fails with. */
  async run(value: unknown, signal?: AbortSignal): Promise<unknown> {
    if (!isEffect(value)) return value;
    if (this.module === undefined) {
      throw new Error(
        `the plugin returned an Effect, and its project has no package \`effect\`: run \`npm install effect\` in ${this.folder}`,
      );
    }
    return this.module.runPromise(value, { signal });
  }

  /** Work of the runner that a plugin may use as an Effect or as a promise. */
  lazy(work: () => Promise<unknown>): unknown {
    if (this.module === undefined) return work();
    const effect = this.module.tryPromise({ try: work, catch: (error) => error });
    const then: Promise<unknown>["then"] = (...handlers) => work().then(...handlers);
    // biome-ignore lint/suspicious/noThenProperty: a plugin that awaits the tool would get an Effect that nobody runs
    return Object.defineProperty(effect, "then", { value: then, enumerable: false });
  }
}

function isEffect(value: unknown): boolean {
  const isContainer = value !== null && (typeof value === "object" || typeof value === "function");
  return isContainer && EFFECT_MARKS.some((mark) => mark in (value as object));
}
