/** Waits within the time that the gateway leaves. */
import type { Context } from "@hookgate/sdk";

/** Left for the reply to travel. */
const MARGIN_MS = 250;

/** The work's result, or `late` shortly before the gateway would give up the call. */
export async function beforeDeadline<T, L>(ctx: Context, work: Promise<T>, late: () => L): Promise<T | L> {
  const left = ctx.timeLeftMs;
  if (left === undefined) return work;
  let timer: NodeJS.Timeout | undefined;
  const isLate = new Promise<L>((resolve, reject) => {
    timer = setTimeout(
      () => {
        try {
          resolve(late());
        } catch (error) {
          reject(error);
        }
      },
      Math.max(left - MARGIN_MS, left / 2),
    );
  });
  return Promise.race([work, isLate]).finally(() => clearTimeout(timer));
}
