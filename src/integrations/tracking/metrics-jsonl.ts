// `metrics.jsonl`: one line for each point, appended. The file is its own cursor.
import { AppendFile } from './append-file.js';
import { createInTurn } from './in-turn.js';
import { Delivered, type MetricPoint, type PointSink, SinkRefused } from './metric-point.js';

const newline = 0x0a;

export function createMetricsJsonl(path: string): PointSink {
  const inTurn = createInTurn();
  let file: AppendFile | null = null;

  async function close(): Promise<void> {
    const closing = file;
    file = null;
    await closing?.close();
  }

  return {
    name: 'metrics.jsonl',
    open: (signal) =>
      inTurn(signal, async () => {
        await close();
        const delivered = new Delivered();
        let line = 0;
        file = await AppendFile.open(path, (bytes) => {
          let start = 0;
          for (let end; (end = bytes.indexOf(newline, start)) >= 0; start = end + 1) {
            line += 1;
            delivered.add(idIn(bytes.toString('utf8', start, end), path, line));
          }
          return start;
        });
        return delivered;
      }),
    write: (points, signal) =>
      inTurn(signal, async () => {
        if (!file) throw new Error(`${path} is not open: call open before write`);
        await file.append(Buffer.from(points.map((point) => `${lineOf(point)}\n`).join('')));
      }),
    close: (signal) => inTurn(signal, close),
  };
}

/** Members in a fixed order, and figures sorted by name, so that equal points give equal lines. */
function lineOf({ id, step, at, values }: MetricPoint): string {
  const sorted = Object.fromEntries(Object.entries(values).sort(([a], [b]) => (a < b ? -1 : 1)));
  return JSON.stringify({ id, step, at, values: sorted });
}

/** The id in a complete line. Throws `SinkRefused` if it is not a point: then the line is not ours, so we must not cut it off. */
function idIn(text: string, path: string, line: number): string {
  try {
    const { id } = JSON.parse(text) as { id?: unknown };
    if (typeof id === 'string') return id;
  } catch {
    // Refused below, like any other line that is not a point.
  }
  throw new SinkRefused(
    `line ${line} of ${path} is not a metrics point: move the file away, and it is written again from the records`,
  );
}
