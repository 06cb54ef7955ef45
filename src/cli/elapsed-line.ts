// Progress of a command that answers only at its end: on a terminal one line that changes and disappears at the end, elsewhere a line now
// and then. On standard error, so that standard output holds the answer alone.
import { timeSpan } from '../report/format.js';
import { changesLines, clear } from './terminal.js';

const terminalMs = 1_000;
const logMs = 30_000;

type Output = Pick<NodeJS.WriteStream, 'write' | 'columns' | 'isTTY'>;

/** `work` receives a function that shows where it is. Work of less than a second shows nothing. */
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
