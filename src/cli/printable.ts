// What a model or an environment wrote may hold what a terminal obeys: colours at best, the clipboard or another window's title at worst.

/** The text with its control characters, and those that turn the direction of writing, spelled out; line ends and tabs stay. */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
