// An evaluation belongs to the environments that it was played on. No result is adopted from a server with other tools, another version or
// another reward rule. The tests use real servers, and runs in one store whose base models are the same state.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { commitBase } from '../../../src/activities/step/commit-base.js';
import type { EvaluatedState } from '../../../src/activities/contracts.js';
import { comparisonOf } from '../../../src/activities/evaluation/compare-sweep.js';
import { evaluatePair } from '../../../src/activities/evaluation/evaluate-pair.js';
import { pairsToDo, planSweep } from '../../../src/activities/evaluation/plan-sweep.js';
import { readSweep } from '../../../src/store/evaluations/sweeps.js';
import { evaluateState } from '../../../src/activities/evaluation/evaluate-state.js';
import { MetricPoints } from '../../../src/workers/follower/metric-points.js';
import { Delivered } from '../../../src/integrations/tracking/metric-point.js';
import { readHistory } from '../../../src/report/history/run-history.js';
import {
  evaluationEpisodeKey,
  evaluationResultKey,
  runEvaluationKey,
  trajectoriesFolder,
} from '../../../src/store/record-keys.js';
import { canonicalBytes } from '../../../src/store/records/canonical.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readUpdate } from '../../../src/store/runs/run-records.js';
import { readUnfinishedEvaluation } from '../../../src/store/evaluations/run-evaluations.js';
import { unfinishedText } from '../../../src/report/history/evaluations.js';
import {
  type ForeignFacts,
  type ForeignServer,
  startForeignServer,
} from '../../environments/foreign-server.js';
import { counting, lastSftStep, tamper } from '../fixture.js';
import { harness, useHarness } from '../own-harness.js';
import { keysOf } from '../../store/overlaid-store.js';

const tokenName = 'LONGHAUL_TEST_GRADING_TOKEN';
useHarness();
let generated: { generate: number };
const servers: ForeignServer[] = [];
beforeAll(() => {
  process.env[tokenName] = 'a-token-of-this-test';
});
afterAll(() => Reflect.deleteProperty(process.env, tokenName));
beforeEach(() => {
  generated = counting(harness.node).calls;
});
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

async function server(facts: ForeignFacts = {}, rewardOf: (episode: string) => string = () => '1') {
  const started = await startForeignServer(rewardOf, () => true, facts);
  servers.push(started);
  return started;
}

/** True for an episode that was opened only to ask the server for its facts. */
const isQuestion = (episode: string): boolean => episode.startsWith('facts/');

async function begin(name: string, url: string, more: object = {}): Promise<void> {
  await harness.open({ ...harness.spec, name, environments: [{ env_key: 'tracker', url, ...more }] });
  await harness.attempt('base', () => commitBase(harness.node, { run: name, owner: 1 }));
}

const evaluate = (run: string, attempt = 1, deps = harness.node): Promise<EvaluatedState> =>
  harness.attempt(
    'step-000000/evaluate-final',
    () => evaluateState(deps, { run, owner: 1, step: 0, suite: 'final' }),
    attempt,
  );

/** Numbers of all rounds in the store, ascending. */
async function rounds(): Promise<number[]> {
  const found: number[] = [];
  for await (const { key } of harness.store.list('evals/'))
    if (key.endsWith('/suite.json'))
      found.push((await requireRecord(harness.store, key, 'suite')).round ?? 1);
  return found.sort();
}

describe('an evaluation', () => {
  it("is adopted on the same environment, and then counts as the adopting run's own", async () => {
    const { url } = await server();
    await begin('first', url);
    const played = await evaluate('first');
    await begin('second', url);
    const adopted = await evaluate('second');
    expect(adopted).toEqual(played);
    expect(generated.generate).toBe(3);
    for (const run of ['first', 'second']) {
      expect(
        await requireRecord(harness.store, runEvaluationKey(run, 0, 'final'), 'evaluated'),
      ).toMatchObject({
        ...{ run, step: 0, suite: played.suite, state: played.state },
      });
      const projected = await harness.store.listFolder(trajectoriesFolder(run, 0));
      expect(projected).toEqual(['aggregated_results.jsonl', 'tracker.jsonl']);
      expect((await readHistory(harness.store, run)).evaluations).toMatchObject([
        { step: 0, result: { graded: 3, suite_name: 'final' } },
      ]);
      const points = await new MetricPoints(harness.store, run).next(new Delivered());
      expect(points.map(({ id }) => id)).toEqual([expect.stringMatching(/^eval\.0\.final\./)]);
      expect((await auditRun(harness.store, run)).violations).toEqual([]);
    }
  });

  it.each<[string, ForeignFacts, object]>([
    ['other tools', { tool: 'listen' }, {}],
    ['another version', { version: '2' }, {}],
    ['another reward rule', {}, { grading_token_env: tokenName }],
  ])('is not adopted from a server with %s', async (_, facts, more) => {
    const [one, other] = [await server(), await server(facts, () => '0')];
    await begin('first', one.url);
    const good = await evaluate('first');
    await begin('second', other.url, more);
    const own = await evaluate('second');
    expect([good.pass_at_1, own.pass_at_1]).toEqual([1, 0]);
    expect(own.state).toBe(good.state);
    expect(own.suite).not.toBe(good.suite);
    expect(generated.generate).toBe(6);
    for (const [run, { suite }] of [
      ['first', good],
      ['second', own],
    ] as const) {
      const { evaluations } = await readHistory(harness.store, run);
      expect(evaluations.map(({ result }) => result.suite)).toEqual([suite]);
      const points = await new MetricPoints(harness.store, run).next(new Delivered());
      expect(points).toHaveLength(1);
      expect((await auditRun(harness.store, run)).violations).toEqual([]);
    }
  });

  it.each<[string, ForeignFacts, (episode: string) => string]>([
    ['has given no reward yet', {}, (episode) => (isQuestion(episode) ? 'null' : '1')],
    ['opens none of the tasks that it is asked about', { refuses: isQuestion }, () => '1'],
  ])('is not adopted from another address if the server %s', async (_, facts, rewardOf) => {
    const [one, other] = [await server(facts, rewardOf), await server(facts, () => 'null')];
    await begin('first', one.url);
    expect(await evaluate('first')).toMatchObject({ graded: 3, pass_at_1: 1 });
    await begin('second', other.url);
    await expect(evaluate('second')).rejects.toMatchObject({ name: 'NothingGraded' });
    await begin('third', one.url);
    expect(await evaluate('third')).toMatchObject({ graded: 3 });
    expect(generated.generate).toBe(6);
  });

  it('depends on the way in which a server grades, not only on whether a grading token is set', async () => {
    const [one, other] = [await server({ grades: true }), await server({ grades: false })];
    await begin('first', one.url, { grading_token_env: tokenName });
    await begin('second', other.url, { grading_token_env: tokenName });
    expect((await evaluate('second')).suite).not.toBe((await evaluate('first')).suite);
  });

  it("is not adopted if another server took over the address, and is then played with the new server's tools", async () => {
    const facts: ForeignFacts = {};
    const { url } = await server(facts);
    await begin('first', url);
    const before = await evaluate('first');
    facts.tool = 'listen';
    await begin('second', url);
    const after = await evaluate('second');
    expect(after.suite).not.toBe(before.suite);
    const { tokenizer } = await harness.node.runs.get('second');
    const promptOf = async ({ state, suite }: EvaluatedState): Promise<string> => {
      const key = evaluationEpisodeKey(state, suite, 0, 0);
      const { tokens, prompt_length } = await requireRecord(harness.store, key, 'episode');
      return tokenizer.decode(tokens.slice(0, prompt_length));
    };
    expect(await promptOf(before)).toContain('look(');
    expect(await promptOf(after)).toContain('listen(');
  });

  it.each([
    ['of another state', { state: 'a'.repeat(64) }, 2],
    ['of another suite', { suite: 'a'.repeat(64) }, 1],
    ['of another place', { step: 1 }, 1],
    ['of another run', { run: 'other' }, 1],
  ])('named by a run but %s, is found by the audit', async (_, change, found) => {
    const { url } = await server();
    await begin('first', url);
    await evaluate('first');
    const key = runEvaluationKey('first', 0, 'final');
    const record = await requireRecord(harness.store, key, 'evaluated');
    await tamper(harness.store, key, () => Buffer.from(canonicalBytes({ ...record, ...change })));
    const { violations } = await auditRun(harness.store, 'first');
    expect(violations.map(({ rule, key: where }) => [rule, where])).toEqual(
      Array.from({ length: found }, () => ['R13', key]),
    );
  });

  it("is answered from the run's records alone if they exist: no server is needed", async () => {
    const { url } = await server();
    await begin('first', url);
    const played = await evaluate('first');
    await servers.pop()?.close();
    expect(await evaluate('first')).toEqual(played);
  });
});

describe('a sweep', () => {
  const planned = async (name: string, more: object = {}): Promise<string> => {
    const sweep = `tests/${name}`;
    const spec = {
      ...{ name: 'nightly', project: 'tests', suites: [{ name: 'final' }] },
      ...{ checkpoints: [{ run: 'first', steps: [0] }], ...more },
    };
    await planSweep(harness.orchestrator, { spec, sweep });
    return sweep;
  };
  const toDo = async (sweep: string) =>
    (await pairsToDo(harness.orchestrator, { sweep, after: -1, limit: 10 })).pairs.length;
  const play = (sweep: string) =>
    harness.attempt('step-000000/evaluate-sweep-0', () => evaluatePair(harness.node)({ sweep, pair: 0 }));

  it('adopts what its runs have evaluated, and plays everything again with `again`', async () => {
    const { url } = await server();
    await begin('first', url);
    await evaluate('first');
    expect(await toDo(await planned('adopts'))).toBe(0);
    const again = await planned('again', { again: true });
    expect(await toDo(again)).toBe(1);
    expect(await play(again)).toMatchObject({ graded: 3, pass_at_1: 1 });
    expect(generated.generate).toBe(6);
    expect(await toDo(again)).toBe(0);
    expect(await toDo(await planned('again', { again: true }))).toBe(0);
    expect(await toDo(await planned('again-later', { again: true }))).toBe(1);
    expect((await readHistory(harness.store, 'first')).evaluations).toHaveLength(1);
    expect((await auditRun(harness.store, 'first')).violations).toEqual([]);
  });

  it('writes the trajectory files of an adopted evaluation for its run, and samples nothing', async () => {
    const { url } = await server();
    await begin('first', url);
    await evaluate('first');
    await begin('second', url);
    const sweep = await planned('of-second', { checkpoints: [{ run: 'second', steps: [0] }] });
    expect(await toDo(sweep)).toBe(1);
    expect(await play(sweep)).toMatchObject({ graded: 3, pass_at_1: 1 });
    expect(generated.generate).toBe(3);
    expect(await toDo(sweep)).toBe(0);
    expect(await harness.store.listFolder(trajectoriesFolder('second', 0))).toEqual(
      await harness.store.listFolder(trajectoriesFolder('first', 0)),
    );
  });

  it('fails a pair if its server has changed since the sweep was planned', async () => {
    const facts: ForeignFacts = {};
    const { url } = await server(facts);
    await begin('first', url);
    const sweep = await planned('late');
    facts.version = '2';
    await expect(play(sweep)).rejects.toThrow(/tracker: the server’s tools, version or reward rule changed/);
    expect(generated.generate).toBe(0);
    expect(await play(await planned('later'))).toMatchObject({ graded: 3 });
  });

  it('fails a pair if nothing can be graded, and plays it again when the sweep is started again', async () => {
    let grades = false;
    const { url } = await server({}, (episode) => (grades || isQuestion(episode) ? '1' : 'null'));
    await begin('first', url);
    const sweep = await planned('ungraded');
    await expect(play(sweep)).rejects.toMatchObject({ name: 'NothingGraded' });
    grades = true;
    expect(await toDo(sweep)).toBe(1);
    expect(await play(sweep)).toMatchObject({ graded: 3, unknown: 0 });
    expect(await toDo(sweep)).toBe(0);
    const { suites } = await comparisonOf(harness.store, await readSweep(harness.store, sweep));
    expect(suites[0]?.states[0]?.all).toMatchObject({ episodes: 3, missing: 0, unknown: 0 });
    // The run adopts the sweep's result as its own, without another round.
    expect(await evaluate('first')).toMatchObject({ graded: 3 });
    expect((await auditRun(harness.store, 'first')).violations).toEqual([]);
  });
});

describe('an evaluation of a server that cannot grade', () => {
  it("stores no result, shows the server's message, and is played again by a new execution", async () => {
    let grades = false;
    const { url } = await server({}, (episode) => (grades || isQuestion(episode) ? '1' : 'null'));
    await begin('first', url);
    const failure = await evaluate('first').then(
      () => null,
      (error: Error) => error,
    );
    expect(failure?.name).toBe('NothingGraded');
    expect(failure?.message).toContain(
      `no outcome was graded (3 of 3 are unknown). Most often (3 of 3) tracker: grade: ${url} gave no reward and no grade; `,
    );
    expect(failure?.message).toContain('Make the server return a number as reward');
    const unfinished = await readUnfinishedEvaluation(harness.store, 'first');
    expect(unfinished && unfinishedText(unfinished)).toMatch(
      /^evaluation final of step 0 has no result yet: of 3 episodes 3 have an unknown outcome, most often tracker: grade: .* gave no reward/,
    );
    const results = async (): Promise<string[]> =>
      (await keysOf(harness.store, 'evals/')).filter((key) => key.endsWith('result.json'));
    expect(await results()).toEqual([]);
    await expect(evaluate('first')).rejects.toThrow('no outcome was graded');
    grades = true;
    const fixed = await evaluate('first');
    expect(fixed).toMatchObject({ graded: 3, unknown: 0, pass_at_1: 1 });
    expect(await results()).toEqual([evaluationResultKey(fixed.state, fixed.suite)]);
    expect(await readUnfinishedEvaluation(harness.store, 'first')).toBeNull();
    expect((await auditRun(harness.store, 'first')).violations).toEqual([]);
  });

  it('fails again without playing if its failure did not reach the workflow: a retry starts no new round', async () => {
    let grades = false;
    const { url } = await server({}, (episode) => (grades || isQuestion(episode) ? '1' : 'null'));
    await begin('first', url);
    const failures = [
      await evaluate('first').catch((error: Error) => error),
      await evaluate('first', 2).catch((error: Error) => error),
      await evaluate('first', 3, harness.secondNode()).catch((error: Error) => error),
    ];
    expect(failures[0]).toMatchObject({ name: 'NothingGraded' });
    expect(failures.slice(1)).toEqual([failures[0], failures[0]]);
    expect(generated.generate).toBe(3);
    expect(await rounds()).toEqual([1]);
    // After a person's resume, there is a new execution.
    await expect(evaluate('first')).rejects.toThrow('no outcome was graded');
    await expect(evaluate('first', 2)).rejects.toThrow('no outcome was graded');
    expect(await rounds()).toEqual([1, 2]);
    grades = true;
    await expect(evaluate('first', 3)).rejects.toThrow('no outcome was graded');
    expect(await evaluate('first')).toMatchObject({ graded: 3, unknown: 0 });
    expect(await rounds()).toEqual([1, 2, 3]);
    expect((await auditRun(harness.store, 'first')).violations).toEqual([]);
  });

  it('also fails if more than max_unknown_share of its outcomes are unknown', async () => {
    const { url } = await server({}, (episode) => (episode.includes('00000.000') ? '1' : 'null'));
    await begin('first', url);
    await expect(evaluate('first')).rejects.toThrow('2 of 3 outcomes are unknown');
  });
});

describe('unknown outcomes left by another run', () => {
  it('are played again for this run; graded outcomes are adopted, and the other run keeps its result', async () => {
    let grades = false;
    const { url } = await server({}, (episode) => (grades || !episode.includes('00001.000') ? '1' : 'null'));
    await begin('first', url);
    const partly = await evaluate('first');
    expect(partly).toMatchObject({
      ...{ graded: 2, unknown: 1 },
      unknown_reason: expect.stringMatching(/^tracker: grade: .*gave no reward/) as string,
    });
    expect(await evaluate('first')).toEqual(partly);
    expect(generated.generate).toBe(3);
    grades = true;
    await begin('second', url);
    const whole = await evaluate('second');
    expect(whole).toMatchObject({ state: partly.state, graded: 3, unknown: 0 });
    // Only the unknown outcome was played again.
    expect(generated.generate).toBe(4);
    await begin('third', url);
    expect(await evaluate('third')).toEqual(whole);
    expect(generated.generate).toBe(4);
    for (const [run, { graded }] of [
      ['first', partly],
      ['second', whole],
      ['third', whole],
    ] as const) {
      expect((await readHistory(harness.store, run)).evaluations).toMatchObject([{ result: { graded } }]);
      expect((await auditRun(harness.store, run)).violations).toEqual([]);
    }
  });
});

it("a step without a grade shows the server's message", async () => {
  const { url } = await server({}, () => 'null');
  await harness.open({ ...harness.spec, environments: [{ env_key: 'tracker', url }] });
  const supervised = await harness.advance(lastSftStep);
  expect(supervised).not.toHaveProperty('ungraded');
  const committed = await harness.advance(lastSftStep + 1);
  expect(committed?.ungraded).toMatch(/^step 3 of unit: no outcome was graded .*gave no reward and no grade/);
  expect((await readUpdate(harness.store, 'unit', lastSftStep + 1)).identity.applied).toEqual({
    reason: 'no_signal',
  });
});
