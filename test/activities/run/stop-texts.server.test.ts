// The setting `generator.stop`: a turn ends with the token that completes one of its texts.
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { loadTokenizer } from '../../../src/episode/tokenizer.js';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import { readStepEpisodes } from '../../../src/store/runs/episodes.js';
import { readPlan } from '../../../src/store/runs/run-records.js';
import { type Harness, lastSftStep, run, startEnvironments, startHarness } from '../fixture.js';

const tokenizer = loadTokenizer(readFileSync('presets/tokenizers/small/tokenizer.json', 'utf8'));
const step = lastSftStep + 1;
const longestTurn = 24;

let environments: EnvironmentServer;
const harnesses: Harness[] = [];
beforeAll(async () => {
  environments = await startEnvironments();
});
afterAll(async () => {
  await Promise.all(harnesses.map((harness) => harness.close()));
  await environments.close();
});

/** The texts of the turns sampled in a GRPO step, and the step's sampling plan. */
async function sampled(generator: object): Promise<{ turns: string[][]; plan: object }> {
  const harness = await startHarness(environments);
  harnesses.push(harness);
  const settings = {
    ...(harness.spec['generator'] as object),
    max_generate_length: longestTurn,
    ...generator,
  };
  await harness.open({ ...harness.spec, generator: settings });
  await harness.advance(step);
  const episodes = await readStepEpisodes(harness.store, run, step);
  const record = await readPlan(harness.store, { run, step });
  return { turns: episodes.flatMap(turnsOf), plan: record.sampling };
}

/** Each turn, as the list of its tokens' texts. */
function turnsOf({ tokens, turns }: EpisodeRecord): string[][] {
  return turns.map(({ start, end }) => tokens.slice(start, end).map((token) => tokenizer.decode([token])));
}

describe('stop texts of a spec', () => {
  test('end a turn with the token that completes a stop text', async () => {
    const free = await sampled({});
    const lengths = free.turns.map(({ length }) => length);
    expect(Math.max(...lengths)).toBeGreaterThan(4);
    const stop = ['a', 'e', 'i', 'o', 'n', 's', 't', '"', '_'];
    const stopped = await sampled({ stop });
    expect(stopped.plan).toMatchObject({ stop });
    const holdsStop = (texts: string[]): boolean => stop.some((text) => texts.join('').includes(text));
    for (const turn of stopped.turns) expect(holdsStop(turn.slice(0, -1))).toBe(false);
    expect(stopped.turns.filter(holdsStop).length).toBeGreaterThan(0);
    // Up to the stop text, the turns are the same as in a run without stop texts.
    const begins = (whole: string[], start: string[]) => start.every((text, at) => text === whole[at]);
    expect(stopped.turns.every((turn, at) => begins(free.turns[at]!, turn))).toBe(true);
  });
});

describe('a truncated distribution', () => {
  test('is used in training if the spec accepts that', async () => {
    const { turns, plan } = await sampled({ top_k: 1, truncated_sampling: true });
    expect(plan).toMatchObject({ top_k: 1 });
    // All samples of a group are then the same.
    for (let sample = 0; sample < turns.length; sample += 2) expect(turns[sample + 1]).toEqual(turns[sample]);
  });
});
