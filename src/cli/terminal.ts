// Terminal control. Nothing here uses a colour, so NO_COLOR needs no handling.

/** Moves to the beginning of the line and empties it. */
export const clear = '\r\u001b[2K';

/**
 * Whether a line can be changed after it is printed. False for a file, a pipe, and a simple terminal (an editor's shell, a serial line):
 * these get whole lines.
 */
export function changesLines({ isTTY }: Pick<NodeJS.WriteStream, 'isTTY'>): boolean {
  return isTTY && process.env['TERM'] !== 'dumb';
}
