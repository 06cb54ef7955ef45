// Applies sweeps to a real server, as `longhaul sweeps apply` does.
import type { ScheduleClient, ScheduleDescription, ScheduleOptions, ScheduleSpec } from '@temporalio/client';
import { ScheduleNotFoundError } from '@temporalio/client';
import { Cron } from 'croner';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  appliedDigest,
  backfillOf,
  scheduleChange,
  scheduleIdOf,
  sweepOfScheduleId,
  type ScheduleChange,
} from '../../src/sweeps/schedule-options.js';
import { parseSweepSpec } from '../../src/sweeps/sweep-input.js';
import type { SweepSpec } from '../../src/spec/sweep-spec.js';
import { sharedTemporal } from '../support/servers/shared-temporal.js';
import type { ConnectedTemporal } from '../support/servers/temporal-server.js';

type Policies = NonNullable<ScheduleOptions['policies']>;

const target = { workflowType: 'evalSweep', taskQueue: 'nobody-listens' };
const sweep = (more: object = {}): SweepSpec =>
  parseSweepSpec({
    name: 'nightly',
    checkpoints: [{ run: 'a', latest: 1 }],
    suites: [{ name: 'final' }],
    schedule: { cron: '0 3 * * *', time_zone: 'Europe/Berlin', jitter: '5m' },
    ...more,
  });

describe('a sweep’s schedule', () => {
  let temporal: ConnectedTemporal;
  let client: ScheduleClient;
  beforeAll(async () => {
    temporal = await sharedTemporal();
    client = temporal.client.schedule;
  });
  afterAll(() => temporal?.stop());

  async function described(spec: SweepSpec): Promise<ScheduleDescription | null> {
    try {
      return await client.getHandle(scheduleIdOf(spec)).describe();
    } catch (error) {
      if (error instanceof ScheduleNotFoundError) return null;
      throw error;
    }
  }

  async function apply(spec: SweepSpec): Promise<ScheduleChange['kind']> {
    const change = scheduleChange(spec, await described(spec), target);
    const handle = client.getHandle(scheduleIdOf(spec));
    if (change.kind === 'create') await client.create(change.options);
    if (change.kind === 'update') await handle.update(change.update);
    if (change.kind === 'delete') await handle.delete();
    return change.kind;
  }

  test('is created once, changes only when the file changes, and is deleted with its entry', async () => {
    expect(await apply(sweep())).toBe('create');
    const made = await described(sweep());
    expect(made).toMatchObject({
      scheduleId: 'sweep/longhaul/nightly',
      spec: { timezone: 'Europe/Berlin', jitter: 300_000 },
      policies: { overlap: 'SKIP', catchupWindow: 600_000, pauseOnFailure: false },
      action: { workflowType: 'evalSweep', taskQueue: 'nobody-listens', workflowId: 'eval/longhaul/nightly' },
      memo: { longhaul: 'sweep' },
    });
    expect(made?.action.args).toEqual([sweep()]);
    expect(made?.info.nextActionTimes[0]?.toISOString()).toMatch(/T0[12]:0[0-5]:/);
    expect(await apply(sweep())).toBe('unchanged');
    expect((await described(sweep()))?.info.lastUpdatedAt).toEqual(made?.info.lastUpdatedAt);

    await client.getHandle(scheduleIdOf(sweep())).pause('moving house');
    const hourly = sweep({ schedule: { every: '1h', catch_up: '1m', overlap: 'buffer_one' } });
    expect(await apply(hourly)).toBe('update');
    const changed = await described(hourly);
    expect(changed).toMatchObject({
      spec: { intervals: [{ every: 3_600_000 }] },
      policies: { overlap: 'BUFFER_ONE', catchupWindow: 60_000 },
      state: { paused: true, note: 'moving house' },
    });
    expect(changed?.spec.calendars ?? []).toEqual([]);
    expect(changed && appliedDigest(changed)).not.toBe(made && appliedDigest(made));
    expect(await apply(hourly)).toBe('unchanged');

    const { schedule: _, ...unscheduled } = sweep();
    expect(await apply(unscheduled)).toBe('delete');
    expect(await described(unscheduled)).toBeNull();
    expect(await apply(unscheduled)).toBe('unchanged');
  });

  test('reverts changes that were made by hand', async () => {
    await apply(sweep());
    const handle = client.getHandle(scheduleIdOf(sweep()));
    await handle.update((previous) => ({ ...previous, action: { ...previous.action, memo: {} } }));
    expect(await apply(sweep())).toBe('update');
    expect(await apply(sweep())).toBe('unchanged');

    // Like the Temporal UI, this keeps the action with its memo.
    const byHand: ((spec: ScheduleSpec, policies: Policies) => { spec: ScheduleSpec; policies: Policies })[] =
      [
        (_, policies) => ({
          spec: { cronExpressions: ['0 4 * * *'], timezone: 'Europe/Berlin', jitter: '5m' },
          policies,
        }),
        (spec, policies) => ({ spec: { ...spec, timezone: 'UTC' }, policies }),
        (spec, policies) => ({ spec: { ...spec, jitter: '1m' }, policies }),
        (spec, policies) => ({ spec: { ...spec, intervals: [{ every: '1h' }] }, policies }),
        (spec, policies) => ({ spec: { ...spec, endAt: new Date('2031-01-01') }, policies }),
        (spec, policies) => ({ spec, policies: { ...policies, overlap: 'ALLOW_ALL' } }),
        (spec, policies) => ({ spec, policies: { ...policies, catchupWindow: '1y' } }),
      ];
    const made = (await described(sweep()))?.info.nextActionTimes[0];
    for (const change of byHand) {
      await handle.update((previous) => ({ ...previous, ...change(previous.spec, previous.policies) }));
      expect(await apply(sweep()), String(change)).toBe('update');
      expect(await apply(sweep()), String(change)).toBe('unchanged');
    }
    expect((await described(sweep()))?.info.nextActionTimes[0]).toEqual(made);
    await handle.delete();
  });

  test('accepts every cron that the check accepts, and fires at the same times', async () => {
    const crons = [
      '*/15 * * * *',
      '5,35 8-18/2 1-7 JAN-mar,12 mon-FRI',
      '0 0 29 2 *',
      '30 6 13 * 5',
      '0 0 * * 7',
      '@daily',
      '@midnight',
      '@annually',
    ];
    for (const cron of crons) {
      const spec = sweep({ name: 'crons', schedule: { cron } });
      await apply(spec);
      expect(await apply(spec), cron).toBe('unchanged');
      const times = (await described(spec))?.info.nextActionTimes ?? [];
      expect(times.length, cron).toBeGreaterThan(0);
      const asked = new Date((times[0] as Date).getTime() - 1_000);
      // The times that croner computes.
      const expected = new Cron(cron, { mode: '5-part', timezone: 'UTC', domAndDow: true }).nextRuns(
        times.length,
        asked,
      );
      // The server adds jitter of up to a second.
      expect(
        times.map((time) => Math.floor(time.getTime() / 60_000)),
        cron,
      ).toEqual(expected.map((time) => Math.floor(time.getTime() / 60_000)));
    }
    await client.getHandle('sweep/longhaul/crons').delete();
  });

  test('starts a workflow with the sweep as its input', async () => {
    const spec = sweep({ name: 'soon', schedule: { every: '2s' } });
    await apply(spec);
    const deadline = Date.now() + 30_000;
    for (;;) {
      const [fired] = (await described(spec))?.info.recentActions ?? [];
      if (fired) {
        expect(fired.action.workflow.workflowId).toMatch(/^eval\/longhaul\/soon-20/);
        const handle = temporal.client.workflow.getHandle(fired.action.workflow.workflowId);
        const { events } = await handle.fetchHistory();
        const input = events?.[0]?.workflowExecutionStartedEventAttributes?.input?.payloads?.[0]?.data;
        expect(JSON.parse(Buffer.from(input ?? []).toString())).toEqual(JSON.parse(JSON.stringify(spec)));
        break;
      }
      if (Date.now() > deadline) throw new Error('the schedule did not fire within 30 s');
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    await client.getHandle(scheduleIdOf(spec)).delete();
  });
});

test('a schedule’s id contains its sweep’s project and name', () => {
  expect(sweepOfScheduleId(scheduleIdOf({ project: 'p', name: 'n' }))).toEqual({ project: 'p', name: 'n' });
  expect(sweepOfScheduleId('nightly')).toBeNull();
});

test('a backfill runs forward in time, one firing after the other', () => {
  const [start, end] = [new Date('2026-01-01T00:00:00Z'), new Date('2026-01-02T00:00:00Z')];
  expect(backfillOf(start, end)).toEqual({ start, end, overlap: 'BUFFER_ALL' });
  expect(() => backfillOf(end, start)).toThrow('its end must come after its beginning');
  expect(() => backfillOf(new Date('soon'), end)).toThrow('a backfill from an invalid time');
});
