// An engine dies during a collect or an evaluation. The next attempt continues each episode after its last finished turn, and writes the
// same records.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { type Computed, lostWork } from '../../../support/lost-work.js';
import { collectRollouts } from '../../../../src/activities/step/collect-rollouts.js';
import { evaluateState } from '../../../../src/activities/evaluation/evaluate-state.js';
import type { NodeDeps } from '../../../../src/activities/node-deps.js';
import type { EpisodeRecord } from '../../../../src/spec/records/episode.js';
import { episodesFolder } from '../../../../src/store/record-keys.js';
import { requireRecord } from '../../../../src/store/records/records.js';
import { lastSftStep, run, tamper } from '../../fixture.js';
import { harness, useHarness } from '../../own-harness.js';

const step = lastSftStep + 1;
const turnsOfOne = 4;

useHarness();
beforeEach(async () => {
  const generator = {
    ...(harness.spec['generator'] as object),
    ...{ n_samples_per_prompt: 4, max_turns: turnsOfOne },
  };
  await harness.open({ ...harness.spec, generator });
  await harness.advance(lastSftStep);
});

interface Work {
  what: string;
  /** Runs one attempt; returns the folder of its episodes. */
  attempt(number: number): Promise<string>;
}

async function collecting(): Promise<Work> {
  const planned = await harness.plan(step);
  const input = harness.rollouts(planned);
  return {
    what: 'collect',
    attempt: async (number) => {
      await harness.attempt('collect', () => collectRollouts(harness.node, input), number);
      return episodesFolder(run, step);
    },
  };
}

async function evaluating(): Promise<Work> {
  const input = { run, owner: 1, step: lastSftStep, suite: 'final' as const };
  return {
    what: 'evaluation',
    attempt: async (number) => {
      const { state, suite } = await harness.attempt(
        'evaluate',
        () => evaluateState(harness.node, input),
        number,
      );
      await tamper(harness.store, `evals/${state}/${suite}/result.json`, () => null);
      return `evals/${state}/${suite}/episodes/`;
    },
  };
}

async function recordsOf(folder: string): Promise<EpisodeRecord[]> {
  const names = [...(await harness.store.listFolder(folder))].sort();
  return Promise.all(names.map((name) => requireRecord(harness.store, `${folder}${name}`, 'episode')));
}

const journals = (folder: string): string =>
  join(harness.folder, 'node-a', 'journal', encodeURIComponent(folder));
const identity = (records: readonly EpisodeRecord[]) => records.map(({ observed: _, ...record }) => record);

interface Killed {
  asked: Computed[];
  /** Number of tokens that the engine has sampled. */
  answered: number;
}

/** Kills the engine after it has answered `turns` times. */
function killAfter(deps: NodeDeps, turns: number): Killed {
  const { engine } = deps.holder;
  const { generate } = engine;
  const seen: Killed = { asked: [], answered: 0 };
  let left = turns;
  engine.generate = async (request, signal) => {
    const { tokens, key } = request;
    seen.asked.push({ ...key, at: performance.now(), verb: 'generate', tokens: tokens.length });
    const answer = await generate(request, signal);
    seen.answered += answer.tokens.length;
    left -= 1;
    if (left === 0) {
      const pid = harness.engine.pid();
      process.kill(pid ?? NaN, 'SIGKILL');
      // Another engine may be there already.
      await vi.waitFor(() => expect(harness.engine.pid()).not.toBe(pid), 120_000);
    }
    return answer;
  };
  return seen;
}

describe.each([
  ['a collect', collecting, 11],
  ['an evaluation', evaluating, 5],
] as const)('%s whose engine is killed', (_, begin, turns) => {
  it('samples no finished turn again, and gives the same records as without the kill', async () => {
    const work = await begin();
    const folder = await work.attempt(1);
    const undisturbed = await recordsOf(folder);
    for (const name of await harness.store.listFolder(folder))
      await tamper(harness.store, `${folder}${name}`, () => null);

    const seen = killAfter(harness.node, turns);
    await expect(work.attempt(2)).rejects.toMatchObject({ name: 'EngineError' });
    const died = performance.now();
    expect(existsSync(journals(folder))).toBe(true);
    await work.attempt(3);
    const records = await recordsOf(folder);
    expect(identity(records)).toEqual(identity(undisturbed));
    expect(records.every(({ metrics }) => metrics.turns === turnsOfOne)).toBe(true);
    const [lost] = lostWork(seen.asked, [{ at: died }]);
    const tokens = seen.answered - records.reduce((sum, { logprobs }) => sum + logprobs.length, 0);
    console.log(`${work.what}, kill of the engine: ${JSON.stringify({ ...lost, tokens })}`);
    expect(lost?.turns).toBe(1);
    expect(tokens).toBe(0);
    expect(harness.said).toContainEqual(
      expect.stringMatching(/episodes continued from their journals: \d+ turns/),
    );
    expect(existsSync(journals(folder))).toBe(false);
  });
});
