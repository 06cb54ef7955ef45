// Reads the lines of a log file that the present start of a process has written; the file also contains those of earlier starts.
import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';

const tailLines = 5;
/** Of a longer log only the last part is read. */
const mostBytes = 256 * 1024;

export class ProcessLog {
  private readonly begins: number;
  private seen: number;

  /** Create before the process writes. */
  constructor(private readonly path: string) {
    this.begins = sizeOf(path);
    this.seen = this.begins;
  }

  /** The first error and the last lines, indented, as people read them; empty if this start wrote none. */
  tail(): string {
    const { text } = this.from(this.begins);
    const lines = text.split('\n').filter((line) => line.trim() !== '');
    // Node prints an error above its stack trace.
    const error = lines.slice(0, -tailLines).find((line) => /^\w*Error(?: \[\w+\])?: /.test(line));
    return [...(error === undefined ? [] : [error, '…']), ...lines.slice(-tailLines)]
      .map((line) => `  ${readableLine(line)}`)
      .join('\n');
  }

  /** What the process says that it waits for, such as a server that does not answer, if it began to wait after the last call. */
  newWaits(): string[] {
    if (sizeOf(this.path) <= this.seen) return [];
    const { text, end } = this.from(this.seen);
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    this.seen = end - Buffer.byteLength(text.slice(whole.length));
    return whole.split('\n').flatMap((line) => {
      const { waits, message } = parsed(line);
      return waits === true && message !== undefined ? [message] : [];
    });
  }

  private from(offset: number): { text: string; end: number } {
    let file: number;
    try {
      file = openSync(this.path, 'r');
    } catch {
      return { text: '', end: offset };
    }
    try {
      const end = fstatSync(file).size;
      const start = Math.max(offset, end - mostBytes);
      const bytes = Buffer.alloc(Math.max(0, end - start));
      const count = readSync(file, bytes, 0, bytes.length, start);
      return { text: bytes.toString('utf8', 0, count), end: start + count };
    } finally {
      closeSync(file);
    }
  }
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** The message of a JSON log line; other lines unchanged. */
function readableLine(line: string): string {
  const { message, msg } = parsed(line);
  return message ?? msg ?? line;
}

function parsed(line: string): { message?: string; msg?: string; waits?: boolean } {
  try {
    return (JSON.parse(line) ?? {}) as ReturnType<typeof parsed>;
  } catch {
    return {};
  }
}
