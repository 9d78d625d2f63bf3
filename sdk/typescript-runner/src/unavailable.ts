/** Members of a host that a plugin reaches for and that can't be served: the agent is in another process. */

/** Properties that runtimes and loggers read of every object. */
const PROBED = new Set<string | symbol>(["then", "toJSON", "constructor", "nodeType", "$$typeof"]);

/** A plugin used a part of its host that isn't served here. */
export class UnavailableError extends Error {
  override name = "UnavailableError";
}

/** An object whose every member throws an error that says so. */
export function unavailable(member: string, remedy = "the agent runs in another process"): object {
  const refuse = (property: string | symbol): never => {
    throw new UnavailableError(`\`${member}.${String(property)}\` isn't available to a plugin behind a gateway: ${remedy}`);
  };
  return new Proxy(Object.create(null) as object, {
    get: (_, property) => (typeof property === "symbol" || PROBED.has(property) ? undefined : refuse(property)),
    set: (_, property) => refuse(property),
    has: (_, property) => (typeof property === "symbol" ? false : refuse(property)),
  });
}
