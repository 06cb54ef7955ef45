// A run trains on a service that answers as Fleet's does, while its node is killed; and a dataset is prepared there.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readSpecFile } from '../../src/spec/spec-input.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { datasetManifestKey } from '../../src/store/record-keys.js';
import { readRecord } from '../../src/store/records/records.js';
import { type FleetTasks, readFleetTasks } from '../environments/fleet/fixture.js';
import { type FleetService, startFleetService } from '../environments/fleet/fleet-service.js';
import { Cluster } from '../support/cluster/cluster.js';
import { pythonWith } from '../support/python/python-environments.js';
import { until } from '../support/until.js';
import { verdictOf } from '../support/verdict.js';
import type { WorkerProcess } from '../support/worker-process.js';

const python = await pythonWith('fleet');

describe.skipIf(!python)('a run on Fleet', () => {
  let service: FleetService;
  let known: FleetTasks;
  let cluster: Cluster;
  beforeAll(async () => {
    service = await startFleetService(python);
    known = readFleetTasks(service.tasks);
    cluster = await Cluster.start({ env: { FLEET_API_KEY: service.key } });
  });
  afterAll(async () => {
    await cluster?.stop();
    await service?.stop();
  });

  const running = async (): Promise<number> =>
    (await service.log()).instances.filter(({ status }) => status !== 'stopped').length;

  /** Shows each task's first call. */
  function demonstrations(folder: string): string {
    const path = join(folder, 'demonstrations.jsonl');
    const shown = known.tasks.slice(0, 20).map(({ task_key, prompt, env_key, env_variables }) => ({
      ...{ kind: 'calls', env_key, task_key, env_variables },
      messages: [
        { role: 'user', content: prompt },
        {
          role: 'assistant',
          content: `<tool_call>${JSON.stringify(known.solutions.get(task_key)?.calls[0] ?? { name: 'get_profile', arguments: {} })}</tool_call>`,
        },
        { role: 'tool', content: '{}' },
        { role: 'assistant', content: '<done>' },
      ],
    }));
    mkdirSync(folder, { recursive: true });
    writeFileSync(path, shown.map((one) => `${JSON.stringify(one)}\n`).join(''));
    return path;
  }

  async function specOf(name: string): Promise<RunSpec> {
    const tiny = await readSpecFile('presets/tiny.yaml');
    const { architecture } = tiny.model as { architecture: object };
    return {
      ...tiny,
      name,
      model: { ...tiny.model, architecture: { ...architecture, max_position_embeddings: 4096 } },
      data: {
        tasks: join(service.tasks, 'tasks.json'),
        demonstrations: demonstrations(join(cluster.folder, 'data')),
        split: { max_env_share: 1 },
        eval_tasks: 4,
        final_eval_tasks: 4,
      },
      environments: [{ env_key: '*', kind: 'fleet', url: service.url }],
      warm_start: [
        {
          ...{ name: 'calls', demonstrations: 'calls', updates: 40, mini_batches_per_step: 40 },
          ...{ mini_batch_size: 8, lr: 1e-2, warmup_updates: 4, decay_share: 0, adam_betas: [0.9, 0.95] },
        },
      ],
      generator: {
        ...tiny.generator,
        ...{ temperature: 1, max_turns: 3, n_samples_per_prompt: 4, tools_format: 'signatures' },
        ...{
          max_input_length: 3500,
          max_sequence_length: 4000,
          max_generate_length: 96,
          max_output_chars: 400,
        },
      },
      trainer: {
        ...tiny.trainer,
        train_batch_size: 4,
        max_training_steps: 6,
        ckpt_interval: 2,
        eval_interval: 3,
      },
    } as RunSpec;
  }

  it('ends with all outcomes graded and no instance left, though its node is killed again and again', async () => {
    const run = await cluster.run(await specOf('fleet'));
    const [node] = cluster.nodes as [WorkerProcess];
    const over = { value: false };
    const result = run.result().finally(() => (over.value = true));
    result.catch(() => undefined);
    let kills = 0;
    while (kills < 6 && !over.value) {
      const before = (await service.log()).creates.length;
      await until(
        async () => over.value || (await service.log()).creates.length > before + 3,
        'episodes',
        120_000,
      );
      if (over.value) break;
      await delay(150 * kills);
      await node.kill();
      node.start();
      kills += 1;
    }
    expect(kills).toBe(6);
    expect(await cluster.ended(run, 300_000)).toMatchObject({ ended: 'completed' });
    await until(async () => (await running()) === 0, 'all instances to be gone');
    const { violations } = await verdictOf(cluster.store, 'fleet');
    expect(violations).toEqual([]);
    const { creates, executions, calls } = await service.log();
    const made = creates.filter(({ duplicate, instance_id }) => !duplicate && instance_id !== null);
    expect(new Set(made.map(({ request_id }) => request_id)).size).toBe(made.length);
    expect(made.every(({ run_id }) => /^(fleet|longhaul)@/.test(run_id ?? ''))).toBe(true);
    expect(executions.length).toBeGreaterThan(6 * 16);
    expect(calls.length).toBeGreaterThan(5);
  });

  it('gates Fleet’s tasks by their solutions', async () => {
    const spec = {
      ...{ name: 'booking', version: 'v1', tasks: join(service.tasks, 'tasks.json') },
      solutions: join(service.tasks, 'solutions.jsonl'),
      ...{ max_tasks: 30, unsolved: 'leave_out', parallel: 6, split: { max_env_share: 1 } },
      environments: [{ env_key: '*', kind: 'fleet', url: service.url }],
    };
    await cluster.temporal.client.workflow.execute('prepareDataset', {
      ...{ taskQueue: 'longhaul', workflowId: 'data/booking@v1', args: [spec] },
      workflowTaskTimeout: '5 seconds',
    });
    const manifest = await readRecord(cluster.store, datasetManifestKey('booking', 'v1'), 'dataset');
    expect(manifest).toMatchObject({ prepared: { excluded: {} } });
    expect((manifest?.train_tasks ?? 0) + (manifest?.held_out_tasks ?? 0)).toBe(30);
    expect(await running()).toBe(0);
  });
});
