// TensorBoard: one event file per run, which is its own cursor. To compare runs, open the folder that contains their folders.
import { join } from 'node:path';
import { AppendFile } from '../append-file.js';
import { createInTurn } from '../in-turn.js';
import { Delivered, type PointSink, SinkRefused } from '../metric-point.js';
import { decodeEvent, encodeFileVersion, encodePoint } from './event.js';
import { createCRC32, type IHasher } from 'hash-wasm';

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

/** CRC-32C (Castagnoli), bit-reversed. */
const polynomial = 0x82f63b78;
const maskDelta = 0xa282ead8;
const headerBytes = 12;
const footerBytes = 4;

export class RecordFraming {
  private constructor(private readonly hasher: IHasher) {}

  static async create(): Promise<RecordFraming> {
    return new RecordFraming(await createCRC32(polynomial));
  }

  frame(data: Uint8Array): Buffer {
    const framed = Buffer.alloc(headerBytes + data.length + footerBytes);
    framed.writeBigUInt64LE(BigInt(data.length), 0);
    framed.writeUInt32LE(this.checksum(framed.subarray(0, 8)), 8);
    framed.set(data, headerBytes);
    framed.writeUInt32LE(this.checksum(data), headerBytes + data.length);
    return framed;
  }

  /**
   * The first record of `bytes`, and its size in bytes. Null if it is incomplete; `damaged` if a checksum is wrong: then no later record
   * can be found either.
   */
  first(bytes: Buffer): { data: Buffer; taken: number } | 'damaged' | null {
    if (bytes.length < headerBytes) return null;
    if (bytes.readUInt32LE(8) !== this.checksum(bytes.subarray(0, 8))) return 'damaged';
    const length = Number(bytes.readBigUInt64LE(0));
    const taken = headerBytes + length + footerBytes;
    if (bytes.length < taken) return null;
    const data = bytes.subarray(headerBytes, headerBytes + length);
    return bytes.readUInt32LE(headerBytes + length) === this.checksum(data) ? { data, taken } : 'damaged';
  }

  private checksum(bytes: Uint8Array): number {
    const crc = Number.parseInt(this.hasher.init().update(bytes).digest('hex'), 16);
    const rotated = ((crc >>> 15) | (crc << 17)) >>> 0;
    return (rotated + maskDelta) >>> 0;
  }
}
