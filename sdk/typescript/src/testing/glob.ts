/** Globs of tools' names: `*`, `?`, `[..]`, and all else literal, over the whole name. */

/**
 * The expression that matches what the glob matches.
 *
 * @throws {TypeError} If it is empty or broken. The message says why.
 */
export function globToRegExp(glob: string): RegExp {
  if (glob === "") throw new TypeError("it is empty, so it matches nothing");
  const characters = [...glob];
  let pattern = "";
  for (let at = 0; at < characters.length; at += 1) {
    const character = characters[at] as string;
    if (character === "*") pattern += ".*";
    else if (character === "?") pattern += ".";
    else if (character === "[") [pattern, at] = appendClass(pattern, characters, at);
    else pattern += literal(character);
  }
  return new RegExp(`^${pattern}$`, "su");
}

/** Appends the class that begins at `start`, and returns where its `]` is. */
function appendClass(pattern: string, characters: readonly string[], start: number): [string, number] {
  const isNegated = characters[start + 1] === "!" || characters[start + 1] === "^";
  const first = start + (isNegated ? 2 : 1);
  // A `]` in the first place stands for itself.
  const end = characters.indexOf("]", first + 1);
  if (end < 0) throw new TypeError("it has a `[` without its `]`; a literal `[` is written `[[]`");
  let members = "";
  for (let at = first; at < end; at += 1) {
    const from = characters[at] as string;
    members += literal(from);
    // A `-` is a range only between two characters.
    if (characters[at + 1] !== "-" || at + 2 >= end) continue;
    const to = characters[at + 2] as string;
    if ((to.codePointAt(0) as number) < (from.codePointAt(0) as number))
      throw new TypeError(`it has the range \`${from}-${to}\`, which is the wrong way round`);
    members += `-${literal(to)}`;
    at += 2;
  }
  return [`${pattern}[${isNegated ? "^" : ""}${members}]`, end];
}

function literal(character: string): string {
  return /[A-Za-z0-9_]/.test(character) ? character : `\\u{${(character.codePointAt(0) as number).toString(16)}}`;
}
