// Text of a model or an environment may hold control sequences: colours at best, writes to the clipboard or a window title at worst.

/** The text with its control characters, and those that change the direction of writing, spelled out; line ends and tabs stay. */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
