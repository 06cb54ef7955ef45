// Small form of `npm run chaos -- --runs 4`: a run that takes seconds, with outages of seconds.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { smallRun } from '../support/small-run.js';
import { until } from '../support/until.js';
import { type CampaignOptions, type CampaignSeeds, runCampaign } from './campaign.js';
import { allFaults } from './faults/catalogue.js';
import { type Fault, nothingToUndo } from './faults/fault.js';
import { planKey } from '../../src/store/record-keys.js';
import { scratchFolder } from '../support/scratch-folder.js';
import { builtScripts } from '../support/repository.js';

const folder = scratchFolder();

async function campaign(steps: number, of: Pick<CampaignOptions, 'faults' | 'strikes'> & CampaignSeeds) {
  const small = (await smallRun(folder)).named('chaos');
  const said: string[] = [];
  const { runs, leftOut } = await runCampaign({
    ...of,
    spec: { ...small, trainer: { ...small.trainer, max_training_steps: steps } },
    longestOutageMs: 2_000,
    keep: false,
    scripts: builtScripts,
    repeat: (seed) => `the seed ${seed} again`,
    log: (message) => said.push(message),
  });
  return { runs, leftOut, said };
}

/** Clients wait 30 s for a request that hangs, so only `npm run chaos` has this fault. */
const tooLong = ['s3-times-out'];

test('runs under 12 faults end with the same bits as an undisturbed run', async () => {
  const { runs, leftOut, said } = await campaign(12, {
    // These seeds include a bucket, two owners, a full disk, an engine that dies while it replies, a lost node, and Updates while a
    // process dies.
    seeds: [2, 9, 11, 13],
    faults: allFaults.filter(({ name }) => !tooLong.includes(name)),
    strikes: 3,
  });
  console.log(said.join('\n'));
  expect(runs.filter(({ problems }) => problems.length > 0)).toEqual([]);
  expect(runs.flatMap(({ disturbances }) => disturbances)).toHaveLength(12);
  expect(leftOut).toEqual([]);
});

test('a run with changed records is found, and its seed is named', async () => {
  const tampering: Fault = {
    name: 'tampering',
    does: 'a plan that was carried out is replaced by another',
    undone: 'never',
    needs: ['directory'],
    lasts: false,
    recoversWithinS: 60,
    strike: async ({ trial: { folder: stack, store, spec, step } }) => {
      // After step 3 no process reads that plan again.
      await until(async () => (await step()) >= 3, 'step 3');
      const other = await store.get(planKey(spec.name, 1));
      writeFileSync(join(stack, 'store', planKey(spec.name, 2)), other!);
      return nothingToUndo;
    },
  };
  const { runs, said } = await campaign(5, { seeds: [7], faults: [tampering], strikes: 1 });
  expect(runs[0]?.problems.join('\n')).toContain(planKey('chaos', 2));
  expect(said.join('\n')).toContain('again: the seed 7 again');
});
