// docs/records.md is enough to check a run: a checker that was written from this page alone, without any code of ours, accepts every record
// of a real run and finds a changed record.
import { spawnSync } from 'node:child_process';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { collected, Doctored, forgetRun, learned, original, plan, recordRun, run } from './doctored-run.js';
import { sealAgain } from './signed-chain.js';

const script = new URL('outside-checker.py', import.meta.url).pathname;
const checked = (store: string) => spawnSync('python3', [script, store, run], { encoding: 'utf8' });

beforeAll(recordRun, 120_000);
afterAll(forgetRun);

test.each([
  ['a run', original],
  ['a run whose episodes and batches are folded', collected],
])('the checker accepts every record of %s', (_, store) => {
  const { status, stdout, stderr } = checked(store);
  expect(stderr).toBe('');
  expect(stdout).toMatch(/^nothing disagrees: [0-9]+ checks/);
  expect(status).toBe(0);
  console.log(stdout.trim());
});

test('the checker finds a changed learning rate, even if all digests were computed again', async () => {
  const store = await Doctored.copy();
  await sealAgain(store, learned, (record) => {
    record.optimizer.learning_rates = [0.5];
  });
  const { status, stdout } = checked(store.path);
  expect(status).toBe(1);
  expect(stdout.trim()).toBe(`${plan(learned).replace('/plan.json', '')}: plan's rates can be planned again`);
});
