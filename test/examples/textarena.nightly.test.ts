// The example in `examples/textarena`: its server, its data and its spec, shortened.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse as parseYaml } from 'yaml';
import { auditRun } from '../../src/activities/reports/audit-run.js';
import { contentText } from '../../src/episode/observation.js';
import type { Environment } from '../../src/environments/environment.js';
import { createOpenEnvBackend } from '../../src/environments/openenv/openenv-backend.js';
import type { Task } from '../../src/spec/records/task.js';
import { parseTasks } from '../../src/data/task-file.js';
import { episodesFolder } from '../../src/store/record-keys.js';
import { requireRecord } from '../../src/store/records/records.js';
import { type Harness, run, startEnvironments, startHarness } from '../activities/fixture.js';
import { longhaul } from '../support/command-line.js';
import { pythonWith } from '../support/python/python-environments.js';
import { type OpenEnvFixture, startPythonServer } from '../support/servers/openenv-fixture.js';

const example = resolve('examples/textarena');
const python = await pythonWith('textarena');

describe.skipIf(!python)('the example textarena', () => {
  let server: OpenEnvFixture;
  let harness: Harness;
  let tasks: Task[];
  const closers: (() => Promise<void>)[] = [];
  beforeAll(async () => {
    const script = join(example, 'server.py');
    server = await startPythonServer(python, (port) => [script, '--port', String(port), '--places', '8']);
    closers.push(() => server.stop());
    const environments = await startEnvironments();
    closers.push(() => environments.close());
    harness = await startHarness(environments);
    closers.push(() => harness.close());
    execFileSync(python, [join(example, 'make_data.py'), '--to', harness.folder, '--demonstrations', '40']);
    const file = join(harness.folder, 'tasks.jsonl');
    tasks = parseTasks(readFileSync(file, 'utf8'), file);
  });
  afterAll(async () => {
    for (const close of closers.splice(0).reverse()) await close();
  });

  test('env check finds a game whose seed chooses it, and which grades', async () => {
    const { code, output } = await longhaul(['env', 'check', server.url, '--json']);
    const found = JSON.parse(output) as { check: string; ok: boolean; detail: string }[];
    const detailOf = (name: string) => found.find(({ check }) => check === name)?.detail;
    expect(found.filter(({ ok }) => !ok)).toEqual([]);
    expect(detailOf('episode')).toMatch(/^act\(move\)\nit begins with: You are Player 0\./);
    expect(detailOf('seed')).toMatch(/begin alike/);
    expect(detailOf('grade')).toMatch(/graded 0/);
    expect(code).toBe(0);
  });

  test('a task is the same game each time, even while others are played, and halving wins it', async () => {
    const backend = createOpenEnvBackend({ url: server.url, maxSessions: 8 });
    const games = tasks.slice(0, 24);
    const play = async (task: Task, seed: number) => {
      const options = { seed, episodeId: `${task.task_key}/${seed}`, tryNumber: 0 };
      const environment = await backend.open(task, options, AbortSignal.timeout(60_000));
      return halve(environment).finally(() => environment.close());
    };
    try {
      const alone = [];
      for (const task of games) alone.push(await play(task, 1));
      const together = await Promise.all(games.map((task) => play(task, 2)));
      expect(together).toEqual(alone);
      expect(new Set(alone.map(({ guess }) => guess)).size).toBeGreaterThan(8);
      expect(alone.map(({ grade }) => grade)).toEqual(games.map(() => 1));
    } finally {
      await backend.close();
    }
  });

  test('its spec trains, and every episode is graded', async () => {
    const spec = parseYaml(readFileSync(join(example, 'textarena.yaml'), 'utf8')) as Spec;
    const { model, data, environments, warm_start, generator, trainer } = spec;
    await harness.open({
      ...{ ...spec, name: run },
      model: {
        ...model,
        tokenizer: resolve(example, String(model.tokenizer)),
        chat_template: resolve(example, String(model.chat_template)),
      },
      data: {
        ...data,
        tasks: join(harness.folder, 'tasks.jsonl'),
        demonstrations: join(harness.folder, 'demonstrations.jsonl'),
      },
      environments: environments.map((environment) => ({ ...environment, url: server.url })),
      warm_start: warm_start.map((phase) => ({ ...phase, updates: 60, mini_batches_per_step: 60 })),
      generator: { ...generator, n_samples_per_prompt: 2 },
      trainer: { ...trainer, train_batch_size: 8, max_training_steps: 2, warmup_steps: 0 },
    });
    const { store } = harness;
    await harness.advance(3);
    const { tokenizer } = await harness.node.runs.get(run);
    const rewards: number[] = [];
    let calls = 0;
    for (const step of [2, 3])
      for await (const { key } of store.list(episodesFolder(run, step))) {
        const { outcome, tokens, prompt_length, turns } = await requireRecord(store, key, 'episode');
        if (outcome.status === 'unknown') throw new Error(`${key} is unknown: ${outcome.reason}`);
        rewards.push(outcome.value);
        calls += turns.filter(({ tool }) => tool === 'act').length;
        expect(tokenizer.decode(tokens.slice(0, prompt_length))).toMatch(/user\nYou are Player 0\./);
      }
    expect(rewards).toHaveLength(32);
    // The warm start has taught the model to play.
    expect(calls).toBeGreaterThan(32);
    expect(rewards.filter((reward) => reward > 0).length).toBeGreaterThan(8);
    expect((await auditRun(store, run)).violations).toEqual([]);
  });
});

type Part = Record<string, unknown>;
type Spec = Record<'model' | 'data' | 'generator' | 'trainer', Part> &
  Record<'environments' | 'warm_start', Part[]>;

/** Guesses the middle of the numbers that the hints still allow. Returns the last guess and the grade. */
async function halve(environment: Environment): Promise<{ guess: number; grade: number | undefined }> {
  let [low, high] = [1, 20];
  for (let turn = 0; ; turn++) {
    const guess = Math.floor((low + high) / 2);
    const call = { name: 'act', arguments: { move: `[${guess}]` } };
    const { content, ends } = await environment.callTool(call, { turn, tryNumber: 0 });
    const text = contentText(content);
    if (ends) {
      const { outcome } = await environment.grade({ finalAnswer: '', tryNumber: 0 });
      return { guess, grade: outcome.value };
    }
    if (text.includes('higher')) low = guess + 1;
    else high = guess - 1;
  }
}
