// A campaign in several batches, and its record, which `npm run bench` reads.
import { join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { commit } from '../../bench/figures/provenance.js';
import { readResults, writeResults } from '../../bench/figures/results-file.js';
import type { CampaignRun } from './campaign.js';
import { campaignPart, CampaignRecord } from './campaign-record.js';
import { ownFolder } from '../support/scratch-folder.js';

let folder: string;
let path: string;
beforeEach(() => {
  folder = ownFolder();
  path = join(folder, 'results.json');
});

const run = (seed: number, problems: string[] = []): CampaignRun => ({
  ...{ seed, problems, seconds: 2 },
  disturbances: [{ fault: 'kill-node', atMs: 0, lastsMs: 0, step: 1, recoveredAfterMs: 900 }],
});
const values = () => readResults(path).parts[campaignPart]?.values;

test('the results of all batches are added up, and each batch continues with the next seed', () => {
  const first = CampaignRecord.open(null, path);
  expect(first.next).toBe(1);
  for (const seed of [1, 2]) first.add(run(seed));
  const second = CampaignRecord.open(null, path);
  expect(second.next).toBe(3);
  second.add(run(3, ['the final states differ']));
  expect(values()).toMatchObject({
    ...{ first_seed: 1, next_seed: 4, runs: 3, equal: 2 },
    ...{ faults: 3, problems: 1, seconds: 6 },
  });
  expect(readResults(path).parts[campaignPart]?.notes).toEqual(['seed 3: the final states differ']);
  expect(second.summary()).toContain('2 of 3 runs equal');
});

test('a run waits to be recorded until all lower seeds are recorded, so an interrupted batch leaves no gap', () => {
  const record = CampaignRecord.open(null, path);
  record.add(run(2));
  expect(values()).toMatchObject({ next_seed: 1, runs: 0 });
  record.add(run(1));
  expect(values()).toMatchObject({ next_seed: 3, runs: 2 });
});

test('a campaign may continue at another commit, and its record names the first and the last commit', () => {
  CampaignRecord.open(null, path).add(run(1));
  laidAt('c4d2c34');
  CampaignRecord.open(null, path).add(run(2));
  expect(values()).toMatchObject({ runs: 2 });
  expect(readResults(path).parts[campaignPart]?.commit).toBe(`c4d2c34..${commit()}`);
  CampaignRecord.open(null, path).add(run(3));
  expect(readResults(path).parts[campaignPart]?.commit).toBe(`c4d2c34..${commit()}`);
});

test('a new campaign begins with another seed, and names only this commit', () => {
  CampaignRecord.open(null, path).add(run(1));
  laidAt('c4d2c34');
  expect(CampaignRecord.open(2, path).next).toBe(2);
  const record = CampaignRecord.open(7, path);
  expect(record.next).toBe(7);
  record.add(run(7));
  expect(values()).toMatchObject({ first_seed: 7, runs: 1 });
  expect(readResults(path).parts[campaignPart]?.commit).toBe(commit());
});

test('a new campaign does not erase problems that were found at this commit', () => {
  CampaignRecord.open(null, path).add(run(1, ['the final states differ']));
  expect(() => CampaignRecord.open(7, path)).toThrow(/has found 1 problems at this commit/);
  expect(values()).toMatchObject({ problems: 1 });
  expect(CampaignRecord.open(2, path).next).toBe(2);
  laidAt('c4d2c34');
  expect(CampaignRecord.open(7, path).next).toBe(7);
});

function laidAt(earlier: string): void {
  const results = readResults(path);
  results.parts[campaignPart]!.commit = earlier;
  writeResults(path, results);
}
