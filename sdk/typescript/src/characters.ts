/**
 * Characters as the contract counts them, which are Unicode code points, beside the UTF-16 units of a string of JavaScript: a character
 * has one or two of them.
 */

/** How many characters a text has. */
export function countCharacters(text: string): number {
  let count = 0;
  for (let at = 0; at < text.length; at += widthAt(text, at)) count += 1;
  return count;
}

/** How many UTF-16 units the first characters of a text have. */
export function countUnits(text: string, characters: number): number {
  let at = 0;
  for (let left = characters; left > 0 && at < text.length; left -= 1) at += widthAt(text, at);
  return at;
}

/** Whether a cut in front of this UTF-16 unit splits a character. */
export function splitsCharacter(text: string, at: number): boolean {
  return at > 0 && widthAt(text, at - 1) === 2;
}

function widthAt(text: string, at: number): 1 | 2 {
  return (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
}
