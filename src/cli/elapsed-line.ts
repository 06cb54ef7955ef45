// Progress of a command that answers only at its end. A terminal shows one changing line, which disappears at the end; other outputs get a
// line from time to time. It goes to standard error, so that standard output holds only the answer.
import { timeSpan } from '../report/format.js';

const terminalMs = 1_000;
const logMs = 10_000;

type Output = Pick<NodeJS.WriteStream, 'write' | 'columns' | 'isTTY'>;

/** `work` receives a function that shows its current position. Nothing is shown for work that takes less than a second. */
export async function withElapsedLine<T>(
  title: string,
  work: (at: (place: string) => void) => Promise<T>,
  output: Output = process.stderr,
): Promise<T> {
  const begun = Date.now();
  const changes = changesLines(output);
  let place: string | null = null;
  const show = (): void => {
    const line = [title, ...(place === null ? [] : [place]), timeSpan((Date.now() - begun) / 1000)].join(
      ' · ',
    );
    output.write(changes ? `${clear}${line.slice(0, (output.columns ?? 80) - 1)}` : `${line}\n`);
  };
  const timer = setInterval(show, changes ? terminalMs : logMs);
  try {
    return await work((now) => {
      place = now;
    });
  } finally {
    clearInterval(timer);
    if (changes) output.write(clear);
  }
}

/** Moves to the beginning of the line and empties it. */
export const clear = '\r\u001b[2K';

/**
 * Whether a line can be changed after it is printed. False for a file, a pipe, and a simple terminal (an editor's shell, a serial line):
 * these get whole lines.
 */
export function changesLines({ isTTY }: Pick<NodeJS.WriteStream, 'isTTY'>): boolean {
  return isTTY && process.env['TERM'] !== 'dumb';
}
