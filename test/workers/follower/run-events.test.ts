// The events of a run: each occurs once, with the same id for any reader, however often it reads.
import { describe, expect, it } from 'vitest';
import {
  type EventContext,
  newEventCursor,
  type RunEnding,
} from '../../../src/workers/follower/run-events.js';
import type { RunEvent } from '../../../src/integrations/slack/run-event.js';
import { checkpointFileKey, checkpointManifestKey } from '../../../src/store/record-keys.js';
import { recordsOfAllKinds } from '../../store/fixtures.js';
import { memoryStore } from './memory-store.js';
import { alerts, contextAt, ids, readAll, storeOf } from './read-events.js';
import {
  recordsOf,
  timeOf,
  writeAll,
  type Written,
  writeCheckpoint,
  writeControl,
  type WrittenRun,
} from './written-run.js';

describe('the events of a run', () => {
  it('are read from its records, in order of time', async () => {
    const store = await storeOf({ steps: 5, evalInterval: 2 });
    await writeCheckpoint(store, 'tiny', 2);
    await writeControl(store, 'tiny', 1, { kind: 'pause' }, 3);
    await writeControl(store, 'tiny', 2, { kind: 'setHyperparameters', lr: 0.1 }, 3);
    await writeControl(store, 'tiny', 3, { kind: 'resume' }, 100);
    const { events } = await readAll(store);
    expect(ids(events)).toEqual([
      'started',
      'evaluation.0.final',
      'paused.1',
      'evaluation.2.interval',
      'evaluation.4.interval',
      'evaluation.5.final',
      'resumed.3',
      'checkpoint.2',
    ]);
    expect(events[0]).toMatchObject({
      kind: 'started',
      run: 'tiny',
      cluster: '127.0.0.1:7233, namespace default',
      task: 'crm/eu',
      model: 'small',
      modality: 'tool_use',
      steps: 5,
      who: 'test',
      from: null,
    });
    expect(events[2]).toMatchObject({ resumeWith: 'longhaul resume tiny' });
    expect(events[4]).toMatchObject({
      passAt1: 0.29,
      before: { step: 2, passAt1: 0.27 },
      environments: [{ environment: 'crm/eu', passAt1: 0.29, toolErrorRate: 0.4, graded: 10, unknown: 0 }],
    });
    expect(events.at(-1)).toMatchObject({
      step: 2,
      sizeBytes: 10,
      place: expect.stringContaining('global_step_2/'),
    });
  });

  it('begin with its start, even if another run evaluated its states before', async () => {
    const store = await storeOf({ steps: 2, evalInterval: 2, evaluatedBy: 'twin', evaluatedAhead: 3600 });
    const { events } = await readAll(store);
    expect(ids(events)).toEqual(['started', 'evaluation.0.final', 'evaluation.2.final']);
  });

  it('are the same for a reader that reads once at the end and a reader that reads after each record', async () => {
    const metrics = (step: number) => ({
      'environment/crm/eu/tool_error_rate': [0.1, 0.6, 0.45, 0.55, 0.3, 0.7][step % 6]!,
      'reward/signal_ratio': step > 20 && step < 26 ? 0 : 0.5,
      'ft/restarts/node_lost': step < 30 ? 0 : 1,
    });
    const options: Partial<WrittenRun> = {
      steps: 80,
      evalInterval: 7,
      metrics,
      unapplied: new Map([[17, 'non_finite']]),
      budget: { max_tokens: 2_000 },
    };
    const atOnce = (await readAll(await storeOf(options))).events;
    const store = memoryStore();
    const seen: RunEvent[] = [];
    let cursor = newEventCursor;
    for (const { write, key } of recordsOf(options)) {
      await write(store);
      if (key.startsWith('datasets')) continue;
      const next = await readAll(store, cursor);
      cursor = next.cursor;
      seen.push(...next.events);
    }
    expect(new Set(ids(atOnce)).size).toBe(atOnce.length);
    const byId = (events: RunEvent[]): RunEvent[] => [...events].sort((a, b) => (a.id < b.id ? -1 : 1));
    expect(byId(seen)).toEqual(byId(atOnce));
  });

  it('draw an evaluation in a chart with the earlier evaluations of its suite', async () => {
    const drawn: number[][] = [];
    const chart: EventContext['chart'] = async (evaluations) => {
      drawn.push(evaluations.map(({ step }) => step));
      return null;
    };
    await readAll(await storeOf({ steps: 7, evalInterval: 2 }), newEventCursor, { ...contextAt(0), chart });
    expect(drawn).toEqual([[0], [2], [2, 4], [2, 4, 6], [0, 7]]);
  });

  it('have the end last, however long the read takes, and no standstill after it', async () => {
    const ending: RunEnding = {
      firstRunId: 'r1',
      runId: 'r1',
      how: 'cancelled',
      at: timeOf(5),
      reason: null,
    };
    const { events } = await readAll(
      await storeOf({ steps: 80, evalInterval: 7 }),
      newEventCursor,
      contextAt(9e6, ending),
    );
    expect(ids(events).slice(-2)).toEqual(['evaluation.80.final', 'ended.1']);
    expect(alerts(events)).toEqual([]);
  });

  it('compare an evaluation with the previous evaluation of the same suite', async () => {
    const { events } = await readAll(await storeOf({ steps: 6, evalInterval: 2 }));
    const compared = events.flatMap((event) =>
      event.kind === 'evaluation' ? [[event.step, event.before?.step]] : [],
    );
    expect(compared).toEqual([
      [0, undefined],
      [2, undefined],
      [4, 2],
      [6, 0],
    ]);
  });

  it('end with how the run ended, once for each start', async () => {
    const store = await storeOf({ steps: 4, prices: [3600, 3600], secondStart: 3 });
    const ending: RunEnding = {
      firstRunId: 'r2',
      runId: 'r2',
      how: 'failed',
      at: timeOf(60),
      reason: 'the data is gone',
    };
    const { events, cursor } = await readAll(store, newEventCursor, contextAt(100, ending));
    expect(events.at(-1)).toMatchObject({
      kind: 'failed',
      id: expect.stringMatching(/^ended\.2\.[0-9a-f]{8}$/),
      step: 4,
      steps: 4,
      passAt1: '29.0 %',
      seconds: 60,
      spend: '4.94 USD',
      reason: 'the data is gone',
      resumeWith: 'longhaul train --run tiny',
    });
    expect((await readAll(store, cursor, contextAt(200, ending))).events).toEqual([]);
  });

  it('end with the evaluation that reached the target and the final evaluation', async () => {
    const ending: RunEnding = {
      firstRunId: 'r1',
      runId: 'r1',
      how: 'completed',
      at: timeOf(60),
      reason: null,
    };
    const endOf = async (options: Partial<WrittenRun>) => {
      const store = await storeOf({ steps: 4, evalInterval: 9, ...options });
      const longer = recordsOf({ steps: 8, evalInterval: 4, ...options });
      await writeAll(
        store,
        longer.filter(({ group, step }) => group === 'evaluation' && step === 4),
      );
      return (await readAll(store, newEventCursor, contextAt(100, ending))).events.at(-1);
    };
    expect(await endOf({ targetPassAt1: 0.29 })).toMatchObject({
      passAt1: '29.0 %',
      reason: 'ended at step 4: the interval evaluation reached 29 %; final evaluation 29.0 % (10)',
    });
    expect(await endOf({ targetPassAt1: 0.3 })).toMatchObject({ reason: null });
    expect(await endOf({ targetPassAt1: 0.29, gradesNothing: true })).toMatchObject({
      passAt1: '– (no outcome was graded)',
      reason: null,
    });
  });

  it('have each start’s own end, even if the next start drives the run by then', async () => {
    const store = await storeOf({ steps: 4, secondStart: 3 });
    const first: RunEnding = { firstRunId: 'r1', runId: 'r1', how: 'failed', at: timeOf(60), reason: null };
    const { events, cursor } = await readAll(store, newEventCursor, contextAt(100, first));
    expect(events.at(-1)).toMatchObject({ kind: 'failed', id: expect.stringMatching(/^ended\.1\./) });
    const second: RunEnding = {
      firstRunId: 'r2',
      runId: 'r2',
      how: 'completed',
      at: timeOf(90),
      reason: null,
    };
    const later = await readAll(store, cursor, contextAt(200, second));
    expect(later.events).toMatchObject([
      { kind: 'completed', id: expect.stringMatching(/^ended\.2\.[0-9a-f]{8}$/) },
    ]);
    expect((await readAll(store, later.cursor, contextAt(300, first))).events).toEqual([]);
  });

  it('have one end for each execution of a start that is reset', async () => {
    const store = await storeOf({ steps: 4 });
    const first: RunEnding = {
      firstRunId: 'r1',
      runId: 'r1',
      how: 'cancelled',
      at: timeOf(60),
      reason: null,
    };
    const { events, cursor } = await readAll(store, newEventCursor, contextAt(100, first));
    expect(events.at(-1)).toMatchObject({ kind: 'cancelled', id: expect.stringMatching(/^ended\.1\./) });
    const anew: RunEnding = { ...first, runId: 'reset', how: 'completed', at: timeOf(90) };
    const later = await readAll(store, cursor, contextAt(200, anew));
    expect(later.events).toMatchObject([
      { kind: 'completed', id: expect.not.stringMatching(String(events.at(-1)?.id)) },
    ]);
    expect((await readAll(store, later.cursor, contextAt(300, anew))).events).toEqual([]);
  });

  it('count the spend at the price of each step’s own start', async () => {
    // Each step takes 1.2345 s of the GPU: two steps at a dollar a second, and two at two dollars.
    const store = await storeOf({ steps: 4, prices: [3600, 7200], secondStart: 3 });
    const ending: RunEnding = {
      firstRunId: 'r2',
      runId: 'r2',
      how: 'completed',
      at: timeOf(60),
      reason: null,
    };
    const { events } = await readAll(store, newEventCursor, contextAt(100, ending));
    expect(events.at(-1)).toMatchObject({ spend: `${(6 * 1.2345).toFixed(2)} USD` });
  });

  it('include an evaluation that comes after later steps, while the run continues and at its end', async () => {
    const options = { steps: 60, evalInterval: 4 };
    const isLate = ({ step, group }: Written, steps: number[]): boolean =>
      group === 'evaluation' && steps.includes(step);
    const late = [4, 20, 40];
    const store = memoryStore();
    const records = recordsOf(options);
    await writeAll(
      store,
      records.filter((one) => !isLate(one, late)),
    );
    const told = await readAll(store);
    await writeAll(
      store,
      records.filter((one) => isLate(one, [40])),
    );
    const next = await readAll(store, told.cursor);
    expect(ids(next.events)).toEqual(['evaluation.40.interval']);
    expect(next.events[0]).toMatchObject({ before: { step: 36 } });
    expect(next.cursor.evaluations.map(({ step }) => step)).toEqual([
      0, 8, 12, 16, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,
    ]);
    await writeAll(
      store,
      records.filter((one) => isLate(one, [4, 20])),
    );
    const ending: RunEnding = {
      firstRunId: 'r1',
      runId: 'r1',
      how: 'completed',
      at: timeOf(200),
      reason: null,
    };
    const last = await readAll(store, next.cursor, contextAt(300, ending));
    expect(ids(last.events)).toEqual(['evaluation.4.interval', 'evaluation.20.interval', 'ended.1']);
    expect((await readAll(store, last.cursor, contextAt(400, ending))).events).toEqual([]);
  });

  it('do not repeat an evaluation that was delivered long ago', async () => {
    const store = await storeOf({ steps: 460, evalInterval: 2 });
    const ending: RunEnding = {
      firstRunId: 'r1',
      runId: 'r1',
      how: 'completed',
      at: timeOf(2000),
      reason: null,
    };
    const { events, cursor } = await readAll(store);
    const evaluations = events.filter(({ kind }) => kind === 'evaluation');
    expect(evaluations).toHaveLength(1 + 229 + 1);
    expect(ids((await readAll(store, cursor, contextAt(3000, ending))).events)).toEqual(['ended.1']);
  });

  it('include each checkpoint once, even after a checkpoint whose upload was given up or whose manifest is damaged', async () => {
    const store = await storeOf({ steps: 5 });
    const { project, model } = recordsOfAllKinds().run.spec;
    const home = { project, model: model.name, run: 'tiny' };
    await store.create(checkpointFileKey(home, 1, 'state.safetensors'), Buffer.from('half of it'));
    await store.create(checkpointManifestKey(home, 2), Buffer.from('{'));
    const told = await readAll(store);
    expect(ids(told.events)).not.toContain('checkpoint.1');
    await writeCheckpoint(store, 'tiny', 3);
    await store.create(checkpointFileKey(home, 4, 'state.safetensors'), Buffer.from('under way'));
    const next = await readAll(store, told.cursor);
    expect(ids(next.events)).toEqual(['checkpoint.3']);
    await writeCheckpoint(store, 'tiny', 4);
    expect(ids((await readAll(store, next.cursor)).events)).toEqual(['checkpoint.4']);
  });

  it('do not begin before the run has an owner', async () => {
    const store = memoryStore();
    await writeAll(store, recordsOf().slice(0, 2));
    expect(await readAll(store)).toEqual({ events: [], cursor: newEventCursor });
  });
});
