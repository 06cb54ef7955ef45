// The trajectory files in SkyRL's layout, for one evaluation of a step and for two: a step at which a target ends the run has both suites.
import { beforeAll, expect, it } from 'vitest';
import type { EvaluatedState } from '../../../src/activities/contracts.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { projectTrajectories } from '../../../src/activities/evaluation/trajectories.js';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import { recordDigest } from '../../../src/store/records/canonical.js';
import {
  evaluationEpisodeKey,
  evaluationResultKey,
  evaluationSuiteKey,
  trajectoriesFolder,
} from '../../../src/store/record-keys.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { run } from '../fixture.js';
import { harness, useSharedHarness } from '../own-harness.js';

const step = 1;

useSharedHarness();
beforeAll(async () => {
  await harness.advance(step);
});

const evaluate = (suite: 'interval' | 'final'): Promise<EvaluatedState> =>
  harness.attempt(`step-000001/evaluate-${suite}`, () =>
    evaluateState(harness.node, { run, owner: 1, step, suite }),
  );

async function linesOf(file: string, at = step): Promise<unknown[]> {
  const text = Buffer.from(
    (await harness.store.get(`${trajectoriesFolder(run, at)}${file}`)) ?? [],
  ).toString();
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as unknown]));
}

it('the trajectories of the first suite are in the step’s folder; those of the second suite are complete in a subfolder', async () => {
  const [interval, final] = [await evaluate('interval'), await evaluate('final')];
  expect(await linesOf('tracker.jsonl')).toHaveLength(2);
  expect(await linesOf('aggregated_results.jsonl')).toEqual([
    expect.objectContaining({ 'eval/num_samples': interval.graded }),
  ]);
  expect(await linesOf('final/tracker.jsonl')).toHaveLength(3);
  expect(await linesOf('final/aggregated_results.jsonl')).toEqual([
    expect.objectContaining({ 'eval/num_samples': final.graded, 'eval/all/pass_at_1': final.pass_at_1 }),
  ]);
});

it('each suite of a sweep has its own folder, even if several suites are played in parallel', async () => {
  const { data, suite, result, episodes } = await played('final');
  const suites = [0.5, 0.7, 0.9].map((temperature) => ({
    ...suite,
    name: 'sweep',
    sampling: { ...suite.sampling, temperature },
  }));
  const { store } = harness;
  await Promise.all(suites.map((one) => projectTrajectories(store, data, step, one, episodes, result)));
  for (const one of suites) {
    const folder = `sweep-${recordDigest(one).slice(0, 12)}`;
    expect(await linesOf(`${folder}/tracker.jsonl`)).toHaveLength(3);
    expect(await linesOf(`${folder}/aggregated_results.jsonl`)).toHaveLength(1);
  }
});

it('the trajectories of both suites of a run are complete, even if the suites end at the same time', async () => {
  const [interval, final] = [await played('interval'), await played('final')];
  const later = 7;
  await Promise.all(
    [interval, final].map(({ data, suite, episodes, result }) =>
      projectTrajectories(harness.store, data, later, suite, episodes, result),
    ),
  );
  const names = await harness.store.listFolder(trajectoriesFolder(run, later));
  const below = names.find((name) => name.endsWith('/'));
  expect(['interval/', 'final/']).toContain(below);
  const [first, second] = below === 'final/' ? [interval, final] : [final, interval];
  for (const [folder, { suite, result }] of [
    ['', first],
    [below, second],
  ] as const) {
    expect(await linesOf(`${folder}tracker.jsonl`, later)).toHaveLength(suite.tasks.length);
    const [figures] = await linesOf(`${folder}aggregated_results.jsonl`, later);
    expect(figures).toMatchObject({ 'eval/num_samples': result.graded });
  }
});

it('trajectories are written once: a retry of the first suite finds its own files', async () => {
  const { data, suite, episodes, result } = await played('interval');
  await projectTrajectories(harness.store, data, step, suite, episodes, result);
  expect(await harness.store.listFolder(trajectoriesFolder(run, step))).not.toContain('interval/');
});

it('a score is a list with the reward at the last sampled token; it is null for an unknown outcome', async () => {
  const { data, suite, episodes, result } = await played('final');
  const [graded, observed, unknown] = episodes.map((episode, slot): EpisodeRecord => {
    const { tokens, turns } = episode;
    if (slot === 0) return { ...episode, outcome: { status: 'graded', value: 0.5 } };
    // The environment's last answer follows the last turn.
    if (slot === 1) return { ...episode, tokens: [...tokens, 5, 6], outcome: { status: 'graded', value: 1 } };
    return { ...episode, turns, outcome: { status: 'unknown', reason: 'open', failures: 3 } };
  }) as [EpisodeRecord, EpisodeRecord, EpisodeRecord];
  const at = 9;
  await projectTrajectories(harness.store, data, at, suite, [graded, observed, unknown], result);
  const lines = (await linesOf('tracker.jsonl', at)) as { score: number[] | null }[];
  const zeros = ({ turns, prompt_length }: EpisodeRecord): number[] =>
    new Array<number>(turns.at(-1)!.end - prompt_length - 1).fill(0);
  expect(lines.map(({ score }) => score)).toEqual([
    [...zeros(graded), 0.5, ...new Array<number>(graded.tokens.length - graded.turns.at(-1)!.end).fill(0)],
    [
      ...zeros(observed),
      1,
      ...new Array<number>(observed.tokens.length - observed.turns.at(-1)!.end).fill(0),
    ],
    null,
  ]);
  expect(lines[1]?.score).toHaveLength(observed.tokens.length - observed.prompt_length);
});

async function played(name: 'interval' | 'final') {
  const { state, suite: digest } = await evaluate(name);
  const { store } = harness;
  const [suite, result] = await Promise.all([
    requireRecord(store, evaluationSuiteKey(state, digest), 'suite'),
    requireRecord(store, evaluationResultKey(state, digest), 'evaluation'),
  ]);
  const episodes = await Promise.all(
    suite.tasks.map((_, slot) =>
      requireRecord(store, evaluationEpisodeKey(state, digest, slot, 0), 'episode'),
    ),
  );
  return { suite, result, episodes, data: await harness.node.runs.get(run) };
}
