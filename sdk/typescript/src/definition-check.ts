/** Finds mistakes in a plugin's definition. What is overlooked here would never be called, and what it should stop would pass. */
import { POINTS, type PointName, fieldsOf } from "./point.js";

const POINT_NAMES: readonly string[] = POINTS.map((point) => point.name);
const FUNCTIONS: readonly string[] = [...POINT_NAMES, "onHook", "initialize", "shutdown"];
const MEMBERS: readonly string[] = [
  ...["name", "version", "capabilities", "config", "tenantConfig", "points", "hooks", "toolNames", "tools"],
  ...FUNCTIONS,
];

const NAME = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;
/** A semantic version (semver.org). */
const VERSION =
  /^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-(0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][\dA-Za-z-]*))*)?(\+[\dA-Za-z-]+(\.[\dA-Za-z-]+)*)?$/;
const MAX_VERSION_BYTES = 256;
const CAPABILITIES: readonly unknown[] = ["storage:read", "storage:write", "log", "emit"];
const ACCESS: readonly unknown[] = [undefined, "read", "modify"];
const SIDE_EFFECTS: readonly unknown[] = [undefined, "none", "some"];

/** The members of an object and of its prototypes. Getters are not called. */
export function membersOf(object: object): Map<string, unknown> {
  const members = new Map<string, unknown>();
  for (let at: object | null = object; at !== null && at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(at))) {
      if (!members.has(name)) members.set(name, value);
    }
  }
  return members;
}

/**
 * Checks the names of a definition's members, and that handlers are functions.
 *
 * @throws {TypeError} If one would never be called. The message names it.
 */
export function checkNames(definition: object, pluginClass: { prototype: object } | undefined): void {
  const unknown = Object.keys(definition).find((name) => !MEMBERS.includes(name));
  if (unknown !== undefined) throw new TypeError(`a plugin has no member \`${unknown}\`: it has ${MEMBERS.join(", ")}`);
  const beside = pluginClass && [...FUNCTIONS, "tools"].find((name) => name in definition);
  if (beside !== undefined) throw new TypeError(`\`${beside}\` stands beside a class: write it as a method of the class`);
  checkHandlers(membersOf(pluginClass ? pluginClass.prototype : definition));
}

/** Checks an object's handlers. */
export function checkHandlers(members: ReadonlyMap<string, unknown>): void {
  for (const [name, value] of members) {
    if (FUNCTIONS.includes(name)) {
      if (typeof value !== "function") throw new TypeError(`\`${name}\` is ${typeof value}, not a function: write it, or leave it out`);
      continue;
    }
    const meant = typeof value === "function" ? FUNCTIONS.find((known) => isLike(name, known)) : undefined;
    if (meant !== undefined) throw new TypeError(`\`${name}\` is never called: write \`${meant}\`, or give it another name`);
    if (typeof value === "function" && /^(before|after)[A-Z_]/.test(name)) {
      throw new TypeError(`\`${name}\` is never called: the points are ${POINT_NAMES.join(", ")}. Give it another name`);
    }
  }
}

interface OfferToCheck {
  readonly access?: unknown;
  readonly sideEffects?: unknown;
  readonly reads?: unknown;
  readonly windows?: unknown;
}

/**
 * Checks that a plugin has a name and a version of the form that the protocol asks for (docs/protocol.md, section 2).
 *
 * @throws {TypeError} The message names the member.
 */
export function checkIdentity({ name, version }: { readonly name?: unknown; readonly version?: unknown }): void {
  if (typeof name !== "string" || name === "") throw new TypeError("`name` is missing: the name under which the gateway knows the plugin");
  if (!NAME.test(name)) throw new TypeError(`\`name\` is \`${name}\`: it must be a letter, then up to 63 letters, digits, \`_\` and \`-\``);
  if (typeof version !== "string" || version === "") throw new TypeError("`version` is missing: a semantic version");
  if (version.length > MAX_VERSION_BYTES || !VERSION.test(version)) {
    throw new TypeError(`\`version\` is \`${version}\`, which isn't a semantic version such as 1.0.0`);
  }
}

/** Checks what TypeScript would have checked. */
export function checkValues(definition: {
  readonly capabilities?: readonly unknown[];
  readonly points?: { readonly [name: string]: OfferToCheck | undefined };
  readonly hooks?: { readonly [name: string]: { readonly sideEffects?: unknown; readonly windows?: unknown } };
}): void {
  const { capabilities = [], points = {}, hooks = {} } = definition;
  const wrong = capabilities.find((capability) => !CAPABILITIES.includes(capability));
  if (wrong !== undefined) throw new TypeError(`there is no capability ${JSON.stringify(wrong)}: they are ${CAPABILITIES.join(", ")}`);
  for (const [name, offer = {}] of Object.entries(points)) {
    if (!POINT_NAMES.includes(name)) throw new TypeError(`\`points.${name}\` is no point: they are ${POINT_NAMES.join(", ")}`);
    if (!ACCESS.includes(offer.access)) throw new TypeError(`\`points.${name}.access\` must be "read" or "modify"`);
    if (!SIDE_EFFECTS.includes(offer.sideEffects)) throw new TypeError(`\`points.${name}.sideEffects\` must be "none" or "some"`);
    checkReads(name as PointName, offer.reads);
    checkWindows(`points.${name}`, offer);
  }
  for (const [name, { sideEffects, windows }] of Object.entries(hooks)) {
    checkWindows(`hooks.${name}`, { windows });
    if (!SIDE_EFFECTS.includes(sideEffects)) throw new TypeError(`\`hooks.${name}.sideEffects\` must be "none" or "some"`);
  }
}

function checkReads(point: PointName, reads: unknown = []): void {
  const fields: readonly unknown[] = fieldsOf(point);
  if (!Array.isArray(reads)) throw new TypeError(`\`points.${point}.reads\` must be a list of ${fields.join(", ")}`);
  const unknown = reads.find((field) => !fields.includes(field));
  if (unknown !== undefined) {
    throw new TypeError(`\`points.${point}.reads\` has ${JSON.stringify(unknown)}: choose from ${fields.join(", ")}`);
  }
  const twice = reads.find((field, index) => reads.indexOf(field) !== index);
  if (twice !== undefined) throw new TypeError(`\`points.${point}.reads\` has ${JSON.stringify(twice)} twice`);
}

function checkWindows(path: string, { windows = false, reads = ["content"] }: OfferToCheck): void {
  if (typeof windows !== "boolean") throw new TypeError(`\`${path}.windows\` must be true or false`);
  if (!windows) return;
  if (path !== "points.beforeResponse") throw new TypeError(`\`${path}.windows\`: only beforeResponse has windows`);
  if (!(reads as unknown[]).includes("content")) throw new TypeError(`\`${path}.windows\` needs \`content\`: add it to \`reads\``);
}

/** Whether a name is another one with at most two mistakes, where case and `_` don't count. */
function isLike(name: string, known: string): boolean {
  const [a, b] = [name, known].map((text) => text.replaceAll("_", "").toLowerCase()) as [string, string];
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[b.length]! <= 2;
}
