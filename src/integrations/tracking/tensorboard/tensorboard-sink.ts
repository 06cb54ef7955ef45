// TensorBoard: one event file per run, which is its own cursor. To compare runs, open the folder that contains their folders.
import { join } from 'node:path';
import { AppendFile } from '../append-file.js';
import { createInTurn } from '../in-turn.js';
import { Delivered, type PointSink, SinkRefused } from '../metric-point.js';
import { decodeEvent, encodeFileVersion, encodePoint } from './event.js';
import { RecordFraming } from './record-framing.js';

/** The same name for a run's whole life, so that a reader that has the file open continues to read it. */
export const eventFileName = 'events.out.tfevents.0000000000.longhaul';

/** `startedAt`: start of the run, ISO 8601. */
export function createTensorBoard(folder: string, startedAt: string): PointSink {
  const path = join(folder, eventFileName);
  const inTurn = createInTurn();
  let file: AppendFile | null = null;
  let framing: RecordFraming | null = null;

  async function close(): Promise<void> {
    const closing = file;
    file = null;
    await closing?.close();
  }

  return {
    name: 'tensorboard',
    open: (signal) =>
      inTurn(signal, async () => {
        await close();
        const frames = (framing ??= await RecordFraming.create());
        const delivered = new Delivered();
        file = await AppendFile.open(path, entriesOf(frames, delivered, path));
        // The part that was cut off is written again with the same bytes, so a reader that saw its beginning can read on.
        if (file.size === 0) await file.append(frames.frame(encodeFileVersion(startedAt)));
        return delivered;
      }),
    write: (points, signal) =>
      inTurn(signal, async () => {
        if (!file || !framing) throw new Error(`${path} is not open: call open before write`);
        const frames = framing;
        await file.append(Buffer.concat(points.map((point) => frames.frame(encodePoint(point)))));
      }),
    close: (signal) => inTurn(signal, close),
  };
}

/** A damaged record is cut off together with all data after it: the run's records hold the same figures. */
function entriesOf(framing: RecordFraming, delivered: Delivered, path: string): (bytes: Buffer) => number {
  let first = true;
  let damaged = false;
  return (bytes) => {
    let taken = 0;
    while (!damaged) {
      const record = framing.first(bytes.subarray(taken));
      if (record === null) break;
      if (record === 'damaged') {
        if (first) throw notOurs(path);
        damaged = true;
        break;
      }
      const { version, point } = decodeEvent(record.data);
      if (first && version === null) throw notOurs(path);
      first = false;
      if (point !== null) delivered.add(point);
      taken += record.taken;
    }
    return taken;
  };
}

function notOurs(path: string): SinkRefused {
  return new SinkRefused(
    `${path} does not begin like an event file: move it away, and it is written again from the records`,
  );
}
