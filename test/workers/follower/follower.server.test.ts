// The loop for one run and one tracker: it lags, fails, waits and catches up, and delays nobody.
import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { follow, type FollowerOptions, type FollowerTimes } from '../../../src/workers/follower/follower.js';
import { type DroppedNotice, notesPath, readNotes } from '../../../src/workers/follower/follower-notes.js';
import {
  Delivered,
  type MetricPoint,
  type PointSink,
  SinkRefused,
  stepOfId,
} from '../../../src/integrations/tracking/metric-point.js';
import { until } from '../../support/until.js';
import { memoryStore } from './memory-store.js';
import { recordsOf, writeAll } from './written-run.js';
import { scratchFolder } from '../../support/scratch-folder.js';

const scratch = scratchFolder();
let folders = 0;
const newFolder = (): string => join(scratch, String(++folders));
const never = (): Promise<never> => new Promise(() => undefined);

const quick: FollowerTimes = {
  pollMs: [2, 10],
  retryMs: [2, 10],
  refusedMs: 30,
  // Long, because even short work may take long on a busy machine.
  readMs: 60_000,
  openMs: 60_000,
  writeMs: 60_000,
  closeMs: 60_000,
  lastTryMs: 60_000,
};
/** For trackers that hang, or refuse points to the end. */
const impatient: FollowerTimes = {
  ...quick,
  ...{ openMs: 60, writeMs: 60, closeMs: 60, lastTryMs: 3_000 },
};

interface KeptSink extends PointSink {
  points: MetricPoint[];
}

/** A tracker that stores the points it receives, and answers which points it holds. */
function kept(name: string, overrides: Partial<PointSink> = {}): KeptSink {
  const points: MetricPoint[] = [];
  const held = (): Delivered => {
    const delivered = new Delivered();
    for (const { id } of points) delivered.add(id);
    return delivered;
  };
  return {
    name,
    points,
    open: async () => held(),
    write: async (more) => void points.push(...more),
    close: async () => undefined,
    ...overrides,
  };
}

const all = recordsOf({ steps: 40, evalInterval: 6 });
const total = 40 + 1 + 6 + 1;

async function options(
  over: boolean,
  extra: Partial<FollowerOptions> = {},
): Promise<Omit<FollowerOptions, 'sink'>> {
  const store = memoryStore();
  if (over) await writeAll(store, all);
  return {
    store,
    run: 'tiny',
    folder: newFolder(),
    isOver: () => over,
    signal: new AbortController().signal,
    times: quick,
    ...extra,
  };
}

const pausesBetween = (times: readonly number[]): number[] =>
  times.slice(1).map((time, index) => time - times[index]!);
const steps = (points: readonly MetricPoint[]): number[] =>
  points.map(({ id }) => stepOfId(id)).filter((step) => step !== null);
const inOrder = Array.from({ length: 40 }, (_, index) => index + 1);

describe('a follower', () => {
  it('delivers a run that is over, in order, and ends', async () => {
    const sink = kept('good');
    expect(await follow({ ...(await options(true)), sink })).toEqual({
      how: 'delivered',
      step: 40,
      notice: null,
    });
    expect(steps(sink.points)).toEqual(inOrder);
    expect(sink.points).toHaveLength(total);
  });

  it('waits for a run that has not begun, follows it, and ends with it', async () => {
    const given = await options(false);
    const run = { over: false };
    const sink = kept('good');
    const following = follow({ ...given, isOver: () => run.over, sink });
    await delay(30);
    for (const record of all) {
      await record.write(given.store);
      if (record.key.endsWith('update.json')) await delay(1);
    }
    await until(() => sink.points.length === total, 'all points');
    run.over = true;
    expect(await following).toMatchObject({ how: 'delivered', step: 40, notice: null });
    expect(steps(sink.points)).toEqual(inOrder);
  });

  it('whose tracker hangs in any call delays no other follower, and reports what is undelivered, since when and why', async () => {
    const good = [kept('first'), kept('last')];
    const hanging = [
      kept('opens', { open: never }),
      kept('writes', { write: never }),
      kept('closes', { close: never }),
      kept('all', { open: never, write: never, close: never }),
    ];
    const given = await options(true, { times: impatient });
    const began = performance.now();
    const ends = Promise.all([good[0]!, ...hanging, good[1]!].map((sink) => follow({ ...given, sink })));
    await until(() => good.every(({ points }) => points.length === total), 'the good ones to have all');
    const took = performance.now() - began;
    expect(took).toBeLessThan(10_000);
    const ended = await ends;
    expect(ended.map(({ how }) => how)).toEqual([
      'delivered',
      'given_up',
      'given_up',
      'given_up',
      'given_up',
      'delivered',
    ]);
    const names = [...good, ...hanging].map(({ name }) => name);
    const notes = await Promise.all(names.map((name) => readNotes(given.folder, 'tiny', name)));
    const notices = notes.flatMap(({ notice }) => notice ?? []);
    expect(notices.map(({ sink }) => sink)).toEqual(['opens', 'writes', 'closes', 'all']);
    expect(notices[1]).toMatchObject({
      what: 'all points',
      reason: expect.stringContaining('waited 0.06 s for writes to take'),
    });
    expect(Number.isFinite(Date.parse(notices[1]!.since))).toBe(true);
  });

  it('costs little while its tracker hangs: at most 1 % of a processor for all followers', async () => {
    const stop = new AbortController();
    const { times: _, ...given } = await options(false, { signal: stop.signal });
    const hanging = ['metrics.jsonl', 'tensorboard', 'wandb', 'prometheus'].map((name, index) =>
      kept(name, index % 2 === 0 ? { open: never } : { write: never }),
    );
    await writeAll(given.store, all);
    const following = Promise.all(hanging.map((sink) => follow({ ...given, sink })));
    await delay(1_000);
    // The least of several measurements, because other work in this process belongs to the test.
    const shares: number[] = [];
    while (shares.length < 3 && Math.min(1, ...shares) >= 0.01) {
      const [before, began] = [process.cpuUsage(), performance.now()];
      await delay(4_000);
      const { user, system } = process.cpuUsage(before);
      shares.push((user + system) / 1000 / (performance.now() - began));
    }
    const share = Math.min(...shares);
    console.log(`four trackers that hang take ${(100 * share).toFixed(2)} % of a processor`);
    expect(share).toBeLessThan(0.01);
    stop.abort(new Error('enough'));
    for (const { how } of await following) expect(how).toBe('stopped');
  });

  it('asks a failed tracker which points it holds, and repeats none of them', async () => {
    const chance = { calls: 0 };
    const sink = kept('flaky');
    const write = sink.write;
    sink.write = async (points, signal) => {
      chance.calls += 1;
      const arrives = points.slice(0, chance.calls % 3 === 0 ? points.length : chance.calls % 5);
      await write(arrives, signal);
      if (chance.calls % 4 !== 0) throw new Error('connection reset');
      if (arrives.length < points.length) throw new Error('half of it');
    };
    expect(
      await follow({ ...(await options(true, { times: { ...quick, lastTryMs: 10_000 } })), sink }),
    ).toMatchObject({ how: 'delivered' });
    expect(steps(sink.points)).toEqual(inOrder);
    expect(new Set(sink.points.map(({ id }) => id)).size).toBe(total);
  });

  it('delivers again the points that a tracker has lost', async () => {
    const sink = kept('forgetful');
    let lost = false;
    sink.close = async () => {
      if (lost) return;
      lost = true;
      sink.points.splice(20);
      throw new Error('it kept 20 of 48 rows');
    };
    expect(await follow({ ...(await options(true)), sink })).toMatchObject({
      how: 'delivered',
      notice: null,
    });
    expect(steps(sink.points)).toEqual(inOrder);
    // The totals continue from the step that the tracker holds.
    expect(sink.points.at(-2)?.values['cost/tokens']).toBe(40 * 82);
  });

  it('reports only once that its tracker waits for a person, and continues when the tracker is fixed', async () => {
    const told: (string | null)[] = [];
    const opened: number[] = [];
    const sink = kept('keyed', {
      open: async () => {
        opened.push(performance.now());
        if (opened.length <= 3) throw new SinkRefused('the key was refused: set WANDB_API_KEY');
        return new Delivered();
      },
    });
    const onNotice = (notice: DroppedNotice | null): void => void told.push(notice?.reason ?? null);
    const end = await follow({ ...(await options(true)), sink, onNotice });
    expect(end).toMatchObject({ how: 'delivered' });
    // A timer may fire a fraction of a millisecond early, or much later on a busy machine.
    for (const pauseMs of pausesBetween(opened)) expect(pauseMs).toBeGreaterThan(quick.refusedMs - 2);
    expect(opened).toHaveLength(4);
    expect(told).toEqual(['the key was refused: set WANDB_API_KEY', null]);
  });

  it('leaves a tracker open while the store cannot be read', async () => {
    const given = await options(true);
    let opened = 0;
    const sink = kept('good', { open: async () => (opened++, new Delivered()) });
    let away = 5;
    (given.store as ReturnType<typeof memoryStore>).beforeRead = async () => {
      if (away-- > 0) throw new Error('the store does not answer');
    };
    expect(await follow({ ...given, sink })).toMatchObject({ how: 'delivered', notice: null });
    expect(opened).toBe(1);
  });

  it('delivers late evaluations when it starts again, or at the end of the run', async () => {
    const late = all.filter(({ step, group }) => group === 'evaluation' && [6, 12].includes(step));
    const given = await options(false);
    await writeAll(
      given.store,
      all.filter((record) => !late.includes(record)),
    );
    const sink = kept('good');
    const run = { over: false };
    const stop = new AbortController();
    const isOver = (): boolean => run.over;
    const first = follow({ ...given, isOver, signal: stop.signal, sink });
    await until(() => sink.points.length === total - 2, 'all that is there');
    await delay(50);
    stop.abort(new Error('a new version'));
    await first;
    const evaluated = (step: number): boolean => sink.points.some(({ id }) => id.startsWith(`eval.${step}.`));
    await writeAll(
      given.store,
      late.filter(({ step }) => step === 6),
    );
    const second = follow({ ...given, isOver, sink });
    await until(() => evaluated(6), 'what came while nobody followed');
    await delay(50);
    await writeAll(given.store, late);
    run.over = true;
    expect(await second).toMatchObject({ how: 'delivered' });
    expect(evaluated(12)).toBe(true);
    expect(new Set(sink.points.map(({ id }) => id)).size).toBe(total);
    expect(sink.points).toHaveLength(total);
  });

  it('continues if the disk of its notes hangs', async () => {
    const given = await options(true, { times: { ...quick, readMs: 1_000 } });
    const path = notesPath(given.folder, 'tiny', 'good');
    mkdirSync(dirname(path), { recursive: true });
    execFileSync('mkfifo', [path]);
    // A reader of this pipe waits as long as the pipe is open.
    const pipe = openSync(path, 'r+');
    try {
      const sink = kept('good');
      expect(await follow({ ...given, sink })).toMatchObject({ how: 'delivered', step: 40 });
      expect(sink.points).toHaveLength(total);
    } finally {
      closeSync(pipe);
    }
  });

  it('ends at once when its signal aborts, whatever hangs', async () => {
    const stop = new AbortController();
    const given = await options(false, { signal: stop.signal, times: { ...quick, openMs: 60_000 } });
    const following = follow({ ...given, sink: kept('hangs', { open: never }) });
    await delay(20);
    stop.abort(new Error('shutting down'));
    expect(await following).toMatchObject({ how: 'stopped' });
  });

  it('does not depend on its notes: if they are lost or damaged, no point is repeated', async () => {
    const sink = kept('good');
    const given = await options(true);
    await follow({ ...given, sink });
    expect(await readNotes(given.folder, 'tiny', 'good')).toMatchObject({
      step: 40,
      totals: { step: 40, tokens: 40 * 82 },
    });
    for (const text of ['', '{"schema":"longhaul.follower/1"', '{"schema":"longhaul.follower/9"}']) {
      writeFileSync(notesPath(given.folder, 'tiny', 'good'), text);
      await follow({ ...given, sink });
      expect(sink.points).toHaveLength(total);
      expect(JSON.parse(readFileSync(notesPath(given.folder, 'tiny', 'good'), 'utf8'))).toMatchObject({
        step: 40,
      });
    }
  });

  it('does not use the notes of another run or tracker', async () => {
    const sink = kept('good');
    const given = await options(true);
    await follow({ ...given, sink });
    const text = readFileSync(notesPath(given.folder, 'tiny', 'good'), 'utf8');
    const none = { step: null, totals: null, notice: null };
    for (const [run, tracker] of [
      ['tiny~2', 'good'],
      ['tiny', 'other'],
    ] as const) {
      const path = notesPath(given.folder, run, tracker);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, text);
      expect(await readNotes(given.folder, run, tracker)).toEqual({ run, sink: tracker, ...none });
    }
  });

  it('reads the records less often while nothing is new', async () => {
    const given = await options(false, { times: { ...quick, pollMs: [5, 40] } });
    await writeAll(given.store, all);
    const stop = new AbortController();
    const looks: number[] = [];
    const isOver = (): boolean => (looks.push(performance.now()), false);
    const sink = kept('good');
    const following = follow({ ...given, isOver, signal: stop.signal, sink });
    await until(() => sink.points.length === total, 'all points');
    const busy = looks.length;
    await until(() => looks.length > busy + 12, 'looks at nothing new');
    // The pauses begin at 5 ms; each pause is 1.5 times as long as the pause before it.
    for (const pauseMs of pausesBetween(looks.slice(busy + 7))) expect(pauseMs).toBeGreaterThan(40 - 2);
    stop.abort(new Error('enough'));
    await following;
  });
});
