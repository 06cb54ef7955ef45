// `longhaul train` of a run that is complete starts nothing, says so, and says how to train on.
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { completedResult } from '../../../src/cli/train/completed-run.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { parseRunSpec, readSpecFile } from '../../../src/spec/spec-input.js';
import { runEvaluationKey } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { memoryStore } from '../../workers/follower/memory-store.js';
import { recordsOf, writeAll } from '../../workers/follower/written-run.js';
import { startRun, uniqueScript, withWorkers } from '../../workflows/scripted-run.js';
import {
  folder,
  longhaul,
  store,
  storeAddress,
  temporal,
  useCommandStage,
} from '../inspect/command-stage.js';

useCommandStage();

const specOf = async (name: string): Promise<RunSpec> => ({
  ...(await readSpecFile(resolve('presets/tiny.yaml'))),
  name,
});

/** The records of a run of `steps` steps; `evaluated`: whether they name the evaluation of its last state. */
async function record(run: string, steps: number, into: ObjectStore, evaluated = true): Promise<void> {
  const written = recordsOf({ run, steps });
  const last = runEvaluationKey(run, steps, 'final');
  await writeAll(into, evaluated ? written : written.filter(({ key }) => key !== last));
}

/** Ends a scripted run of six steps with `spec`, then calls `use`. */
async function ended(
  prefix: string,
  use: (
    spec: RunSpec,
    completed: (changed?: RunSpec, from?: ObjectStore | null) => Promise<unknown>,
  ) => Promise<void>,
  stopAfter: number | null = null,
): Promise<void> {
  const script = uniqueScript(prefix);
  const { name } = script.outline;
  script.control = { ...script.control, stopAfter };
  const spec = await specOf(name);
  await withWorkers(temporal, script, async (queue) => {
    await (await startRun(temporal, queue, name, JSON.parse(JSON.stringify(spec)))).result();
    await use(spec, (changed = spec, from = store) =>
      completedResult(temporal.client, parseRunSpec(changed), () => Promise.resolve(from)),
    );
  });
}

describe('a start of a run that is complete', () => {
  it('starts no workflow, prints the result, and names the fork that trains on', async () => {
    await ended('complete', async (spec) => {
      await record(spec.name, 6, store);
      const file = join(folder, 'complete.json');
      writeFileSync(file, JSON.stringify(spec));
      const handle = temporal.client.workflow.getHandle(`train/${spec.name}`);
      const { runId } = await handle.describe();
      const { code, output } = await longhaul('train', file, '--store', storeAddress);
      expect(code).toBe(0);
      expect(output).toMatch(
        new RegExp(
          `^${spec.name} completed at step 6, held-out pass@1 .*; it is complete, so nothing was started; ` +
            `to train it further: longhaul fork ${spec.name}@6 --name NEW --set max_training_steps=N`,
        ),
      );
      const json = await longhaul('train', file, '--store', storeAddress, '--json');
      expect(JSON.parse(json.output)).toMatchObject({ run: spec.name, ended: 'completed', step: 6 });
      const detached = await longhaul('train', file, '--store', storeAddress, '--json', '--detach');
      expect(JSON.parse(detached.output)).toMatchObject({
        run: spec.name,
        started: false,
        ended: 'completed',
      });
      expect((await handle.describe()).runId).toBe(runId);
    });
  });

  it('begins again if a start has something to do', async () => {
    await ended('again', async (spec, completed) => {
      await record(spec.name, 6, store);
      expect(await completed()).toMatchObject({ ended: 'completed', step: 6 });
      const { trainer } = spec;
      expect(await completed({ ...spec, trainer: { ...trainer, max_training_steps: 99 } })).toBeNull();
      expect(await completed({ ...spec, slack: { channel: '#runs' } })).toBeNull();
      expect(await completed({ ...spec, fork: { run: spec.name, step: 3 } })).toBeNull();
      expect(await completed({ ...spec, name: 'never-started' })).toBeNull();
      // Another store, none, one with fewer steps, and one that lacks the last evaluation, as after a quarantine.
      expect(await completed(spec, memoryStore())).toBeNull();
      expect(await completed(spec, null)).toBeNull();
      const [shorter, unplayed] = [memoryStore(), memoryStore()];
      await record(spec.name, 5, shorter);
      await record(spec.name, 6, unplayed, false);
      expect(await completed(spec, shorter)).toBeNull();
      expect(await completed(spec, unplayed)).toBeNull();
    });
  });

  it('begins again after a stop before the last step', async () => {
    await ended(
      'stopped',
      async (spec, completed) => {
        await record(spec.name, 3, store);
        expect(await completed()).toBeNull();
      },
      3,
    );
  });
});
