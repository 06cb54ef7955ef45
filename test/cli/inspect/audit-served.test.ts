// `longhaul audit` of a run on a Tinker server: what it proves, and what a replay would cost before anything is spent.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ServedReplay } from '../../../src/activities/reports/replay-served.js';
import { sha256Hex } from '../../../src/base/sha256.js';
import { servedProofs, servedReplayText } from '../../../src/cli/inspect/served-replay.js';
import { baseModelDigest } from '../../../src/policy/base-model.js';
import { packForest } from '../../../src/rl/packing.js';
import type { RunSpec } from '../../../src/spec/run-spec.js';
import { encodeBatchFile } from '../../../src/store/files/batch-file.js';
import type { ChainAudit } from '../../../src/store/audit/chain-audit.js';
import { batchKey, planKey, runKey, updateKey } from '../../../src/store/record-keys.js';
import { openStore } from '../../../src/store/open-store.js';
import { recordDigest } from '../../../src/store/records/canonical.js';
import { encodeRecord } from '../../../src/store/records/record-codec.js';
import { recordSavedState } from '../../../src/store/runs/served-models.js';
import { digestOf, recordsOfAllKinds } from '../../store/fixtures.js';
import { type Answer, longhaul as commandLine } from '../../support/command-line.js';

const folder = mkdtempSync(join(tmpdir(), 'longhaul-audit-served-'));
const address = `dir:${folder}`;
const { run, name, base, plan, batch, update } = recordsOfAllKinds();
const limits = { numbered: true, chunk_sequences: 4, chunk_tokens: 100, logprob_tolerance: 0.1 };
const spec = {
  ...run.spec,
  model: { name: 'small', served: { name: 'm', rank: 8, reduction: 'sum', ...limits } },
} as unknown as RunSpec;
const base_model = baseModelDigest(spec, null);

/** Four steps, of which the third applied nothing, and the fourth begins a training phase. A step's batch has one sequence, which is ten tokens longer than the step's number. */
const lastStep = 4;
const savedSteps = [2, 4];
const stateAfter = (step: number): string => digestOf('abccd'[step]!);

beforeAll(async () => {
  const store = await openStore(address);
  const write = async (key: string, bytes: Uint8Array): Promise<void> =>
    void (await store.create(key, bytes));
  for (const one of ['tiny', 'begun']) {
    await write(runKey(one), await encodeRecord('run', { ...run, run: one, name: one, spec, base_model }));
    await write(`names/${one}/1.json`, await encodeRecord('name', { ...name, run: one }));
    const identity = { ...base.identity, run: one, base_model };
    await write(updateKey(one, 0), await encodeRecord('base', { ...base, identity }));
  }
  for (let step = 1; step <= lastStep; step++) {
    const previous_state = stateAfter(step - 1);
    const optimizer = { ...plan.optimizer, reset_moments: step === 4 };
    const planned = { ...plan, step, previous_state, optimizer };
    const sequence = {
      tokens: Array.from({ length: step + 11 }, (_, token) => token),
      targets: [{ index: step + 10, advantage: 1, oldLogprob: -1 }],
    };
    const arrays = packForest([[sequence]]);
    const bytes = encodeBatchFile(arrays, {
      ...batch,
      step,
      previous_state,
      loss_tokens: [1],
      plan: recordDigest(planned),
    });
    const identity = {
      ...{
        ...update.identity,
        step,
        previous_state,
        state: stateAfter(step),
        plan: recordDigest(planned),
        batch: sha256Hex(bytes),
      },
      applied: step === 3 ? { reason: 'no_signal' as const } : (true as const),
    };
    await write(planKey('tiny', step), await encodeRecord('plan', planned));
    await write(batchKey('tiny', step), bytes);
    await write(updateKey('tiny', step), await encodeRecord('update', { ...update, identity }));
  }
  for (const step of savedSteps) {
    const saved = { run: 'tiny', step, state: stateAfter(step), path: `tinker://m/weights/s${step}` };
    await recordSavedState(store, { ...saved, instance: 1, number: 4, by: 'n1' });
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const longhaul = (...args: string[]): Promise<Answer> =>
  commandLine(['audit', ...args, '--store', address], { env: { LONGHAUL_TINKER: undefined } });

describe('an audit of a run on a Tinker server', () => {
  test('says that it has not looked at the weights', async () => {
    const { code, output } = await longhaul('begun');
    expect(output).toMatch(
      /proves +the order of all batches, and that each is in the records once; the weights .* were not checked/,
    );
    expect(code).toBe(0);
    const { output: json } = await longhaul('begun', '--json');
    expect(JSON.parse(json)).toMatchObject({
      proves: { order: true, recordedOnce: true, weights: null, bits: false },
    });
  });

  test('proves no order if a rule is broken', async () => {
    const { code, output } = await longhaul('tiny', '--json');
    expect(code).toBe(1);
    expect(JSON.parse(output)).toMatchObject({
      proves: { order: false, recordedOnce: false, weights: null, bits: false },
    });
    expect((await longhaul('tiny')).output).toMatch(/proves +the weights .* were not checked/);
  });
});

describe('a replay on a Tinker server', () => {
  test.each([
    [
      '1..2',
      'begins with fresh adapters, applies 2 updates of 23 tokens, and computes the log-probs of 59 tokens',
    ],
    [
      '4',
      'begins with the saved state of step 2, applies 1 update of 14 tokens, and computes the log-probs of 56 tokens',
    ],
  ])('of steps %s without --spend is refused with its price', async (steps, price) => {
    const { code, output, errors } = await longhaul('tiny', '--replay', steps);
    expect(errors).toContain(price);
    expect(errors).toMatch(
      /add --spend to allow it, and name the server with --tinker URL or LONGHAUL_TINKER/,
    );
    expect(output).toBe('');
    expect(code).toBe(1);
  });

  test('without a server is refused with its price', async () => {
    const { code, errors } = await longhaul('tiny', '--replay', '4', '--spend');
    expect(errors).toMatch(/1 update of 14 tokens.*: name the server with --tinker URL or LONGHAUL_TINKER/);
    expect(code).toBe(1);
  });

  test.each([
    ['1', 'replay up to step 2, the next one that has one'],
    ['2..3', 'replay up to step 4, the next one that has one'],
  ])('of steps %s is refused, because its last step has no saved state', async (steps, mend) => {
    const { code, errors } = await longhaul('tiny', '--replay', steps, '--spend');
    expect(errors).toContain(`has no saved state to compare with: ${mend}`);
    expect(code).toBe(1);
  });

  test('across the beginning of a training phase is refused, because only a load resets moments', async () => {
    const { code, errors } = await longhaul('tiny', '--replay', '1..4', '--spend');
    expect(errors).toContain('a training phase of tiny begins with step 4');
    expect(code).toBe(1);
  });

  test('of steps that are not committed is refused', async () => {
    expect((await longhaul('tiny', '--replay', '4..5')).errors).toMatch(/step 5 of tiny is not committed/);
    expect((await longhaul('begun', '--replay', '1')).errors).toMatch(/no committed update yet/);
  });

  test('is refused if the URL has a password', async () => {
    const { errors } = await longhaul(
      'tiny',
      '--replay',
      '4',
      '--spend',
      '--tinker',
      'http://me:hidden@host',
    );
    expect(errors).toMatch(/--tinker or LONGHAUL_TINKER is a URL with/);
    expect(errors).not.toContain('hidden');
  });

  const replay: ServedReplay = {
    ...{
      run: 'tiny',
      from: 3,
      to: 4,
      start: 2,
      zeroMoments: false,
      updates: 1,
      trainedTokens: 14,
      comparedTokens: 42,
    },
    ...{ saved: 'tinker://m/weights/s4', places: 9, mean: 0, max: 0, moved: 0.2 },
    ...{ tolerance: 0.1, bound: 'moved', within: true, seconds: 2, checked: 1, toldApart: 1, differs: null },
  };

  test('says in words whether log-probs are within the bound, and whether the bound says anything', () => {
    expect(servedReplayText(replay)).toMatch(/mean \|Δ\| 0, max \|Δ\| 0, at the 9 places[^]*: within\n/);
    expect(servedReplayText(replay)).not.toContain('less than the bound');
    expect(servedReplayText({ ...replay, moved: 0.01 })).toContain(
      'less than the bound: compare the figures',
    );
    expect(servedReplayText({ ...replay, mean: 0.3, max: 1, within: false })).toMatch(/: DIFFERS\n/);
    expect(servedReplayText({ ...replay, within: false, differs: 3 })).toContain('DIFFERS after step 3');
    expect(servedReplayText(replay)).toContain('1 of 1 can be told from the step before');
    expect(servedReplayText(replay)).toContain('≤ 0.100, half of what step 4 moved: within');
    expect(servedReplayText({ ...replay, bound: 'weights_tolerance' })).toContain(
      '≤ 0.100, model.served.weights_tolerance: within',
    );
  });

  test('proves weights only if it could tell each replayed step from the one before', () => {
    const chain = { violations: [] } as unknown as ChainAudit;
    expect(servedProofs(chain, replay).weights).toBe(true);
    expect(servedProofs(chain, { ...replay, updates: 2 }).weights).toBeNull();
    expect(servedProofs(chain, { ...replay, toldApart: 0, checked: 0 }).weights).toBeNull();
    expect(servedProofs(chain, { ...replay, toldApart: 0, within: false }).weights).toBe(false);
    expect(servedProofs(chain, null).weights).toBeNull();
  });
});

test('an export of a run on a Tinker server says where its adapters are', async () => {
  const to = join(folder, 'exported');
  const { code, errors } = await commandLine(['export', 'tiny', '--to', to, '--store', address], {});
  expect(code).toBe(1);
  expect(errors).toContain('trains adapters on a Tinker server');
  expect(errors).toContain('no checkpoint is in the store yet');
});
