// Runs with the same base model on several servers of the Python package, with one store. No evaluation is adopted from a server with other
// tools or another reward rule, and a server that cannot grade blocks the run.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { commitBase } from '../../src/activities/step/commit-base.js';
import type { EvaluatedState } from '../../src/activities/contracts.js';
import { evaluateState } from '../../src/activities/evaluation/evaluate-state.js';
import { readRunEvaluations } from '../../src/store/evaluations/run-evaluations.js';
import { counting, type Harness, startHarness } from '../activities/fixture.js';
import { startOpenEnvFixture, type OpenEnvFixture } from '../support/servers/openenv-fixture.js';
import { pythonWith } from '../support/python/python-environments.js';

const python = await pythonWith('openenv');

describe.skipIf(!python)('runs of one base model on servers of openenv 0.10.0', () => {
  const fixtures: OpenEnvFixture[] = [];
  let harness: Harness;
  let calls: { generate: number };
  let urls: string[];
  beforeAll(async () => {
    for (const env of [{}, { FIXTURE_EXTRA_TOOL: '1' }, { FIXTURE_NO_REWARD: '1' }])
      fixtures.push(await startOpenEnvFixture(python, 8, undefined, env));
    urls = fixtures.map(({ url }) => url);
    harness = await startHarness({ url: urls[0] ?? '' });
    ({ calls } = counting(harness.node));
  });
  afterAll(async () => {
    await harness?.close();
    for (const fixture of fixtures) await fixture.stop();
  });

  async function evaluated(run: string, url: string | undefined): Promise<EvaluatedState> {
    await harness.open({ ...harness.spec, name: run, environments: [{ env_key: 'tracker', url }] });
    await harness.attempt('base', () => commitBase(harness.node, { run, owner: 1 }));
    return harness.attempt('step-000000/evaluate-final', () =>
      evaluateState(harness.node, { run, owner: 1, step: 0, suite: 'final' }),
    );
  }

  it('adopt evaluations only from an equal server', async () => {
    const first = await evaluated('first', urls[0]);
    expect(first).toMatchObject({ graded: 3, unknown: 0 });
    expect(calls.generate).toBe(3);
    expect(await evaluated('same', urls[0])).toEqual(first);
    expect(calls.generate).toBe(3);
    const tools = await evaluated('other-tools', urls[1]);
    expect(tools.state).toBe(first.state);
    expect(tools.suite).not.toBe(first.suite);
    expect(calls.generate).toBe(6);
    const failure = await evaluated('no-rewards', urls[2]).then(
      () => null,
      (error: Error) => error,
    );
    expect(failure?.name).toBe('NothingGraded');
    expect(failure?.message).toMatch(/no outcome was graded .* gave no reward and no grade/);
    // Episodes of the server that cannot grade were played, but no run adopts them.
    const adopted = await Promise.all(
      ['other-tools', 'no-rewards'].map((run) => readRunEvaluations(harness.store, run)),
    );
    const crossed = adopted.flat().filter(({ suite }) => suite === first.suite).length;
    console.log(`evaluations adopted across servers with other tools or another reward rule: ${crossed}`);
    expect(crossed).toBe(0);
    expect(adopted.map((records) => records.length)).toEqual([1, 0]);
  });
});
