// metrics.jsonl and TensorBoard's event file: each is its own cursor, even after a kill.
import { readFileSync, statSync, truncateSync, writeFileSync, appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { PointSink } from '../../../src/integrations/tracking/metric-point.js';
import { SinkRefused } from '../../../src/integrations/tracking/metric-point.js';
import { createMetricsJsonl } from '../../../src/integrations/tracking/metrics-jsonl.js';
import {
  createTensorBoard,
  eventFileName,
  RecordFraming,
} from '../../../src/integrations/tracking/tensorboard/tensorboard-sink.js';
import { pointsOf, startedAt } from './points.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const scratch = scratchFolder();
const quiet = new AbortController().signal;
let folders = 0;

interface Kind {
  name: string;
  create: (folder: string) => PointSink;
  path: (folder: string) => string;
}
const kinds: Kind[] = [
  {
    name: 'metrics.jsonl',
    create: (folder) => createMetricsJsonl(join(folder, 'metrics.jsonl')),
    path: (folder) => join(folder, 'metrics.jsonl'),
  },
  {
    name: 'tensorboard',
    create: (folder) => createTensorBoard(folder, startedAt),
    path: (folder) => join(folder, eventFileName),
  },
];

const points = pointsOf(20);
const newFolder = (): string => join(scratch, String(++folders));

/** Delivers the points that the tracker does not hold. */
async function deliver(sink: PointSink, most = Infinity): Promise<number> {
  const delivered = await sink.open(quiet);
  const missing = points.filter(({ id }) => !delivered.has(id)).slice(0, most);
  if (missing.length > 0) await sink.write(missing, quiet);
  await sink.close(quiet);
  return missing.length;
}

describe.each(kinds)('$name', ({ create, path }) => {
  it('shows a new process what it holds', async () => {
    const folder = newFolder();
    expect(await deliver(create(folder), 7)).toBe(7);
    expect(await deliver(create(folder), 7)).toBe(7);
    expect(await deliver(create(folder))).toBe(points.length - 14);
    expect(await deliver(create(folder))).toBe(0);
  });

  it('cut at any byte, has the same bytes again once the rest is delivered', async () => {
    const whole = newFolder();
    await deliver(create(whole));
    const bytes = readFileSync(path(whole));
    const torn = newFolder();
    const sink = create(torn);
    await deliver(sink);
    // Every byte of the last points, and some other ones.
    const cuts = Array.from({ length: 300 }, (_, i) => bytes.length - 1 - i)
      .concat(Array.from({ length: 20 }, (_, i) => i * 37))
      .filter((cut) => cut > 0 && cut < bytes.length);
    for (const cut of cuts) {
      truncateSync(path(torn), cut);
      await deliver(sink);
      expect(readFileSync(path(torn)).equals(bytes), `cut at ${cut}`).toBe(true);
    }
  });

  it('refuses to write after another process has written, and continues from what the file then holds', async () => {
    const folder = newFolder();
    const mine = create(folder);
    const delivered = await mine.open(quiet);
    expect(delivered.step).toBe(null);
    await deliver(create(folder), 5);
    await expect(mine.write(points, quiet)).rejects.toThrow('another process writes it too');
    expect((await mine.open(quiet)).step).toBe(5);
    await mine.close(quiet);
  });

  it('does not touch a file that is not its own', async () => {
    const folder = newFolder();
    await deliver(create(folder), 1);
    writeFileSync(path(folder), 'loss: 0.3, and a line that is no point\n'.repeat(3));
    await expect(create(folder).open(quiet)).rejects.toThrow(SinkRefused);
    await expect(create(folder).open(quiet)).rejects.toThrow('move');
    expect(statSync(path(folder)).size).toBe(117);
  });

  it('larger than one read is read completely', async () => {
    const folder = newFolder();
    const many = Object.fromEntries(Array.from({ length: 2_000 }, (_, n) => [`policy/figure_${n}`, n / 3]));
    const large = points.map((point) => ({ ...point, values: many }));
    const sink = create(folder);
    await sink.open(quiet);
    await sink.write(large, quiet);
    await sink.close(quiet);
    const { size } = statSync(path(folder));
    expect(size).toBeGreaterThan(1 << 20);
    const delivered = await create(folder).open(quiet);
    expect(points.filter(({ id }) => !delivered.has(id))).toEqual([]);
    expect(statSync(path(folder)).size).toBe(size);
  });

  it('is opened again only after an abandoned write has ended', async () => {
    const folder = newFolder();
    const sink = create(folder);
    await sink.open(quiet);
    const writing = sink.write(points.slice(0, 3), quiet);
    expect((await sink.open(quiet)).step).toBe(3);
    await writing;
    await sink.close(quiet);
  });

  it('does not begin work that its caller has given up', async () => {
    const folder = newFolder();
    const sink = create(folder);
    await sink.open(quiet);
    const given = new AbortController();
    const first = sink.write(points.slice(0, 3), quiet);
    const second = sink.write(points.slice(3, 6), given.signal);
    given.abort(new Error('too late'));
    await first;
    await expect(second).rejects.toThrow('too late');
    await sink.close(quiet);
    expect((await sink.open(quiet)).step).toBe(3);
    await sink.close(quiet);
  });
});

describe('metrics.jsonl', () => {
  it('has one line per point, which any program can read', async () => {
    const folder = newFolder();
    await deliver(createMetricsJsonl(join(folder, 'metrics.jsonl')));
    const lines = readFileSync(join(folder, 'metrics.jsonl'), 'utf8').trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(points);
  });
});

describe('an event file', () => {
  it('is framed like TFRecords: length, its masked CRC-32C, data, its masked CRC-32C', async () => {
    const framing = await RecordFraming.create();
    const framed = framing.frame(Buffer.from('123456789'));
    expect(framed.readBigUInt64LE(0)).toBe(9n);
    // crc32c("123456789") = 0xe3069283 is the check value of its specification.
    const rotated = (((0xe3069283 >>> 15) | (0xe3069283 << 17)) >>> 0) + 0xa282ead8;
    expect(framed.readUInt32LE(12 + 9)).toBe(rotated >>> 0);
    expect(framing.first(framed)).toEqual({ data: Buffer.from('123456789'), taken: framed.length });
  });

  it('is written again from the place where it is damaged', async () => {
    const folder = newFolder();
    await deliver(createTensorBoard(folder, startedAt));
    const path = join(folder, eventFileName);
    const bytes = readFileSync(path);
    const damaged = Buffer.from(bytes);
    damaged[Math.floor(bytes.length / 2)]! ^= 0xff;
    writeFileSync(path, damaged);
    appendFileSync(path, 'more');
    await deliver(createTensorBoard(folder, startedAt));
    expect(readFileSync(path).equals(bytes)).toBe(true);
  });
});
