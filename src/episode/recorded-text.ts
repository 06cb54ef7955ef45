// An environment's words as an episode's record keeps them for people: short, and without characters that a terminal or a page would obey.

const longest = 500;
const unprintable = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}]+/gu;

/** At most 500 printable characters on one line. */
export function recordedText(text: string): string {
  // The characters behind these cannot be among the first 500; a server may send megabytes.
  const characters = [
    ...text
      .slice(0, 20 * longest)
      .replace(unprintable, ' ')
      .replace(/\s+/g, ' ')
      .trim(),
  ];
  return characters.length <= longest ? characters.join('') : `${characters.slice(0, longest - 1).join('')}…`;
}
