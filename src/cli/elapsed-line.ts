// What a command does that answers at its end alone: on a terminal one line that changes and is gone at the end, elsewhere a line
// now and then. On standard error, so that the answer stays by itself.
import { timeSpan } from '../report/format.js';

const terminalMs = 1_000;
const logMs = 30_000;
const clear = '\r\u001b[2K';

type Output = Pick<NodeJS.WriteStream, 'write' | 'columns' | 'isTTY'>;

/** `work` is given a function to say where it is. Work of less than a second shows nothing. */
export async function withElapsedLine<T>(
  title: string,
  work: (at: (place: string) => void) => Promise<T>,
  output: Output = process.stderr,
): Promise<T> {
  const begun = Date.now();
  let place: string | null = null;
  const show = (): void => {
    const line = [title, ...(place === null ? [] : [place]), timeSpan((Date.now() - begun) / 1000)].join(
      ' · ',
    );
    output.write(output.isTTY ? `${clear}${line.slice(0, (output.columns ?? 80) - 1)}` : `${line}\n`);
  };
  const timer = setInterval(show, output.isTTY ? terminalMs : logMs);
  try {
    return await work((now) => {
      place = now;
    });
  } finally {
    clearInterval(timer);
    if (output.isTTY) output.write(clear);
  }
}
