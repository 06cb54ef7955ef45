// A campaign in batches: what `npm run bench` says of it.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readResults, writeResults } from '../../bench/results-file.js';
import type { CampaignRun } from './campaign.js';
import { campaignPart, CampaignRecord } from './campaign-record.js';

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'longhaul-campaign-'));
  path = join(folder, 'results.json');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const run = (seed: number, problems: string[] = []): CampaignRun => ({
  ...{ seed, problems, seconds: 2 },
  disturbances: [{ fault: 'kill-node', atMs: 0, lastsMs: 0, step: 1, recoveredAfterMs: 900 }],
});
const values = () => readResults(path).parts[campaignPart]?.values;

test('batches add up, and each goes on with the seed after the last', () => {
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

test('a run that ends before one with a lower seed waits for it: an interrupted batch leaves no gap', () => {
  const record = CampaignRecord.open(null, path);
  record.add(run(2));
  expect(values()).toMatchObject({ next_seed: 1, runs: 0 });
  record.add(run(1));
  expect(values()).toMatchObject({ next_seed: 3, runs: 2 });
});

test('a campaign of other code, and one from another seed, begin anew', () => {
  CampaignRecord.open(null, path).add(run(1));
  expect(CampaignRecord.open(7, path).next).toBe(7);
  expect(CampaignRecord.open(2, path).next).toBe(2);
  const results = readResults(path);
  results.parts[campaignPart]!.code = 'older';
  writeResults(path, results);
  const record = CampaignRecord.open(null, path);
  expect(record.next).toBe(1);
  record.add(run(1));
  expect(values()).toMatchObject({ runs: 1 });
});

test('problems that were found in this code are not wiped out by beginning elsewhere', () => {
  CampaignRecord.open(null, path).add(run(1, ['the final states differ']));
  expect(() => CampaignRecord.open(7, path)).toThrow(/has found 1 problems in this code/);
  expect(values()).toMatchObject({ problems: 1 });
  expect(CampaignRecord.open(2, path).next).toBe(2);
  const results = readResults(path);
  results.parts[campaignPart]!.code = 'older';
  writeResults(path, results);
  expect(CampaignRecord.open(7, path).next).toBe(7);
});
