// A run's steps on servers of other kinds than ours: stock ones of two generations, one without tools, one without sockets. Nothing is set but their
// addresses.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { episodesFolder } from '../../../src/store/record-keys.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { pythonWith } from '../../support/python/python-environments.js';
import {
  type OpenEnvFixture,
  startGameServer,
  startOpenEnvFixture,
} from '../../support/servers/openenv-fixture.js';
import { type Harness, run, startEnvironments, startHarness } from '../fixture.js';

const python = await pythonWith('openenv');
const oldPython = await pythonWith('openenv-core');

const game = (kind: 'gym' | 'http') => startGameServer(python, kind, { isGraded: true });

const closers: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function harnessOn({ url, stop }: OpenEnvFixture, prompt: string): Promise<Harness> {
  closers.push(stop);
  const environments = await startEnvironments();
  const harness = await startHarness(environments);
  closers.push(() => environments.close());
  closers.push(() => harness.close());
  const row = (number: number) => ({
    ...{ task_key: `task-${number}`, prompt, env_key: 'other', reset: { highest: 4 } },
    split: number < 8 ? 'train' : 'held_out',
  });
  const tasks = join(harness.folder, 'other.jsonl');
  const rows = Array.from({ length: 12 }, (_, number) => JSON.stringify(row(number)));
  writeFileSync(tasks, `${rows.join('\n')}\n`);
  const { data, generator, trainer } = harness.spec as Record<string, Record<string, unknown>>;
  const { demonstrations: _, ...rest } = data!;
  await harness.open({
    ...harness.spec,
    ...{ warm_start: [], environments: [{ env_key: 'other', url }], data: { ...rest, tasks } },
    generator: { ...generator, max_turns: 2 },
    trainer: { ...trainer, max_training_steps: 2 },
  });
  return harness;
}

describe.skipIf(!python || !oldPython)('a run on', () => {
  test.each<[string, string, () => Promise<OpenEnvFixture>, RegExp]>([
    ['openenv 0.10.0', 'Count.', () => startOpenEnvFixture(python, 8), /user\nCount\.<\|im_end/],
    ['openenv-core 0.2.3', 'Count.', () => startOpenEnvFixture(oldPython, 8), /user\nCount\.<\|im_end/],
    ['a server without tools', '', () => game('gym'), /from 1 to 4\./],
    ['a server without sockets', 'Play.', () => game('http'), /Play\.\n\nI think/],
  ])('%s grades every episode, and commits its steps', async (_, prompt, start, shown) => {
    const harness = await harnessOn(await start(), prompt);
    const { store } = harness;
    await harness.advance(2);
    const { tokenizer } = await harness.node.runs.get(run);
    let episodes = 0;
    for (const step of [1, 2])
      for await (const { key } of store.list(episodesFolder(run, step))) {
        const { outcome, tokens, prompt_length } = await requireRecord(store, key, 'episode');
        expect(outcome).toMatchObject({ status: 'graded' });
        expect(tokenizer.decode(tokens.slice(0, prompt_length))).toMatch(shown);
        episodes += 1;
      }
    expect(episodes).toBe(8);
    expect((await auditRun(store, run)).violations).toEqual([]);
  });
});
