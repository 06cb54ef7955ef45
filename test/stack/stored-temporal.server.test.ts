// The embedded Temporal server opens the database of an earlier server version, and a run in it continues with today's code. Server 1.31.2
// wrote the database, `fixtures/temporal-1.31.2.db.gz`.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { pauseUpdate, resumeUpdate, statusQuery } from '../../src/workflows/messages.js';
import type { trainingRun } from '../../src/workflows/run/training-run.js';
import { repository } from '../support/repository.js';
import { startTemporal } from '../support/servers/temporal-server.js';
import { until as eventually } from '../support/until.js';
import {
  gate,
  outlineOf,
  type ScriptedRun,
  scriptRun,
  startRun,
  until,
  withWorkers,
} from '../workflows/scripted-run.js';

const stored = join(repository, 'test/workers/fixtures/temporal-1.31.2.db.gz');
const queue = 'stored';
const scripted = (): ScriptedRun => scriptRun(outlineOf('stored', { ckpt_interval: 100 }), 'node-stored');

describe('a database of Temporal 1.31.2', () => {
  let folder = '';
  let databaseFile = '';
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'longhaul-stored-'));
    databaseFile = join(folder, 'temporal.db');
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  // LONGHAUL_TEMPORAL must name the binary of that version.
  it('is written as a fixture on request', async ({ skip }) => {
    skip(!process.env['LONGHAUL_WRITE_STORED'], 'it is written only with LONGHAUL_WRITE_STORED=1');
    const temporal = await startTemporal({ databaseFile });
    const script = scripted();
    const held = gate();
    script.before = (call) => (call === 'collect 3' ? held.wait() : undefined);
    await withWorkers(
      temporal,
      script,
      async () => {
        const run = await startRun(temporal, queue, 'stored');
        await held.reached;
        await run.executeUpdate(pauseUpdate);
        held.release();
        await until(run, ({ phase }) => phase === 'paused');
      },
      { queue },
    );
    await temporal.stop();
    writeFileSync(stored, gzipSync(readFileSync(databaseFile), { level: 9 }));
  });

  it('opens, lists its runs by search attributes, and a paused run continues to its end', async () => {
    writeFileSync(databaseFile, gunzipSync(readFileSync(stored)));
    const temporal = await startTemporal({ databaseFile });
    try {
      const { workflow } = temporal.client;
      const found = await eventually(async () => {
        for await (const one of workflow.list({ query: 'Phase = "paused" AND Step = 3' })) return one;
        return false;
      }, 'the run to be listed');
      expect(found).toMatchObject({ workflowId: 'train/stored', status: { name: 'RUNNING' } });
      const script = scripted();
      // Records are in the store, which an upgrade of Temporal does not change.
      for (const step of [0, 1, 2, 3]) script.committed.set(step, { control: 0, lr: 0.1 });
      script.control = { ...script.control, n: 1, paused: true };
      const goesOn = async (): Promise<void> => {
        const run = workflow.getHandle<typeof trainingRun>('train/stored');
        expect(await run.query(statusQuery)).toMatchObject({ phase: 'paused', step: 3, control: { n: 1 } });
        await run.executeUpdate(resumeUpdate);
        expect(await run.result()).toMatchObject({ ended: 'completed', step: 6 });
      };
      await withWorkers(temporal, script, goesOn, { queue });
      expect(script.calls.filter((call) => call.startsWith('update'))).toEqual([
        'update 4',
        'update 5',
        'update 6',
      ]);
    } finally {
      await temporal.stop();
    }
  });
});
