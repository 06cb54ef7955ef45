// Terminal control beyond text. Nothing here has a colour, so NO_COLOR needs no case.

/** Back to the line's beginning, and the line emptied. */
export const clear = '\r\u001b[2K';

/** False for a file, a pipe, and a terminal that only prints (an editor's shell, a serial line): those get whole lines. */
export function changesLines({ isTTY }: Pick<NodeJS.WriteStream, 'isTTY'>): boolean {
  return isTTY && process.env['TERM'] !== 'dumb';
}
