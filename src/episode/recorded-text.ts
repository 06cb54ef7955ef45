// Prepares an environment's text for the episode's record, where people read it: short, and without control characters for terminals or
// pages.

const longest = 500;
const unprintable = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}]+/gu;

/** Returns at most 500 printable characters on one line. */
export function recordedText(text: string): string {
  // Cut first, because a server may send megabytes; later characters cannot be among the first 500.
  const characters = [
    ...text
      .slice(0, 20 * longest)
      .replace(unprintable, ' ')
      .replace(/\s+/g, ' ')
      .trim(),
  ];
  return characters.length <= longest ? characters.join('') : `${characters.slice(0, longest - 1).join('')}…`;
}
