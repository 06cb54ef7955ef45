// A step that is paused in its middle and sampled again (R24), by the command line, with real activities on a real server.
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { auditRun } from '../../../src/activities/reports/audit-run.js';
import { createNodeActivities, createTransferActivities } from '../../../src/activities/node-activities.js';
import { createOrchestratorActivities } from '../../../src/activities/orchestrator-activities.js';
import type { EnvironmentServer } from '../../../examples/apps/server/environment-server.js';
import { readChanges } from '../../../src/report/history/changes.js';
import { readHistory } from '../../../src/report/history/run-history.js';
import { batchKey, episodeKey, episodesFolder } from '../../../src/store/record-keys.js';
import type { ObjectStore } from '../../../src/store/objects/object-store.js';
import { openStore } from '../../../src/store/open-store.js';
import { StoreUnavailable } from '../../../src/store/record-errors.js';
import { requireRecord } from '../../../src/store/records/records.js';
import { readControl } from '../../../src/store/runs/control-records.js';
import { openRunView } from '../../../src/store/runs/quarantine.js';
import { discardSamples } from '../../../src/store/runs/resampling.js';
import { lastCommittedStep, readRun, readState, readUpdate } from '../../../src/store/runs/run-records.js';
import { readStepEpisodes } from '../../../src/store/runs/episodes.js';
import type { EpisodeRecord } from '../../../src/spec/records/episode.js';
import type { FileEngine } from '../../../src/engine/file-engine.js';
import { grantedSignal, pauseNowUpdate } from '../../../src/workflows/messages.js';
import {
  type Harness,
  type NativeNode,
  run,
  startEnvironments,
  startHarness,
} from '../../activities/fixture.js';
import { keysOf, overlaid } from '../../store/overlaid-store.js';
import { longhaul } from '../../support/command-line.js';
import { sharedTemporal } from '../../support/servers/shared-temporal.js';
import type { ConnectedTemporal } from '../../support/servers/temporal-server.js';
import { smallRun } from '../../support/small-run.js';
import { until as untilTrue } from '../../support/until.js';
import { type AllActivities, startRun, until, withWorkers, workflowBundle } from '../scripted-run.js';

/** The first step with rollouts, of two groups of four episodes each. */
const step = 2;
const episodes = [0, 1].flatMap((slot) => [0, 1, 2, 3].map((sample) => episodeKey(run, step, slot, sample)));
const [finished, unfinished] = [episodes.slice(0, 4), episodes.slice(4)];

describe('a step that is sampled again', () => {
  let temporal: ConnectedTemporal;
  let environments: EnvironmentServer;
  let harness: Harness;
  let other: Harness;
  beforeAll(async () => {
    [temporal, environments] = await Promise.all([sharedTemporal(), startEnvironments(), workflowBundle()]);
  });
  afterAll(() => Promise.all([temporal.stop(), environments.close()]));
  beforeEach(async () => {
    [harness, other] = await Promise.all([startHarness(environments), startHarness(environments)]);
  });
  afterEach(() => Promise.all([harness.close(), other.close()]));

  /** A node that cannot record the second group while `fault` returns an error. */
  const withFault = (node: NativeNode, fault: () => Error | null): NativeNode => ({
    ...node,
    store: overlaid(node.store, {
      create: async (key, bytes) => {
        const error = unfinished.some((one) => key.startsWith(one)) ? fault() : null;
        if (error) throw error;
        return node.store.create(key, bytes);
      },
    }),
  });

  interface Life {
    result: { state: string | null };
    /** Bytes of the episodes that were finished before the pause. */
    before: Map<string, Buffer>;
    answers: { early: string; resumed: string };
    /** Keys of the step's episodes at the time when its batch was built. */
    keys: string[];
    /** Seed of each turn of the step, before and after it was discarded. */
    seeds: { before: number[]; after: number[] };
  }

  /**
   * Pauses the run in the middle of its step, and samples the step again. `kills`: kills the command between its record and its Update, and later
   * the node while it samples again; another node plays the rest.
   */
  async function live({ store, node, orchestrator, ...of }: Harness, kills: boolean): Promise<Life> {
    const { named } = await smallRun(join(of.folder, 'data'));
    const successor = of.secondNode();
    const seeds: number[] = [];
    for (const { holder } of [node, successor]) noteSeeds(holder.engine, seeds);
    let isHeld = true;
    let refused = 0;
    const held = withFault(node, () => {
      if (isHeld) refused += 1;
      return isHeld ? new StoreUnavailable('held') : null;
    });
    const dying = withFault(node, () => new Error('the node is gone'));
    let collects = 0;
    const collectOn = [held, ...(kills ? [dying, successor] : [held])];
    let keys: string[] = [];
    const nodeActivities = createNodeActivities(node);
    const activities: AllActivities = {
      ...createOrchestratorActivities(orchestrator),
      ...nodeActivities,
      updatePolicy: async (input) => {
        // A collection folds the episodes later.
        if (input.step === step) keys = await keysOf(store, episodesFolder(run, step));
        return nodeActivities.updatePolicy(input);
      },
      ...createTransferActivities(node),
      requestLease: ({ lease, workflowId }) =>
        temporal.client.workflow.getHandle(workflowId).signal(grantedSignal, { lease, node: node.node }),
      collectRollouts: (input) => {
        const chosen = input.step === step ? collectOn[collects++] : undefined;
        return createNodeActivities(chosen ?? node).collectRollouts(input);
      },
    };
    const command = async (...args: string[]): Promise<{ code: number; output: string; errors: string }> =>
      longhaul([...args, run, '--temporal-address', temporal.address]);
    return withWorkers(temporal, { node: node.node, activities }, async (queue) => {
      const workflow = await startRun(temporal, queue, run, named(run));
      const recorded = () => keysOf(store, episodesFolder(run, step));
      await untilTrue(async () => refused >= 4 && (await recorded()).length === 4, 'one group');
      const resume = ['resume', '--resample', '--store', store.address];
      const early = await command(...resume);
      expect(early.code).toBe(1);
      expect((await readControl(store, run)).length).toBe(0);
      await workflow.executeUpdate(pauseNowUpdate);
      await until(workflow, ({ phase }) => phase === 'paused');
      const journals = readdirSync(join(of.folder, 'node-a', 'journal'), { recursive: true });
      expect(journals.filter((name) => String(name).endsWith('.journal'))).toHaveLength(unfinished.length);
      const before = await bytesOf(store, finished);
      const sampled = seeds.length;
      const empty = await openStore(`dir:${join(of.folder, 'empty')}`);
      const elsewhere = await command('resume', '--resample', '--store', empty.address);
      expect(elsewhere).toMatchObject({
        code: 1,
        errors: expect.stringContaining('there is no run') as string,
      });
      isHeld = false;
      if (kills) await discardSamples(store, run);
      const resumed = await command(...resume);
      expect(resumed).toMatchObject({ code: 0 });
      const result = await workflow.result();
      return {
        ...{ result, before, keys, answers: { early: early.errors, resumed: resumed.output } },
        seeds: { before: seeds.slice(0, sampled), after: seeds.slice(sampled) },
      };
    });
  }

  /** Adds the seed of each turn of the step to `seeds`. */
  function noteSeeds(engine: FileEngine, seeds: number[]): void {
    const { generate } = engine;
    engine.generate = (request, ...rest) => {
      if (request.key.domain === 'train' && request.key.step === step) seeds.push(request.key.seed);
      return generate(request, ...rest);
    };
  }

  /** Each step's state, and the episodes in use. */
  async function bitsOf(store: ObjectStore): Promise<object[]> {
    const view = await openRunView(store, run);
    const steps = Array.from({ length: (await lastCommittedStep(view, run)) + 1 }, (_, at) => at);
    return Promise.all(
      steps.map(async (at) => ({
        state: await readState(view, run, at),
        episodes: (await readStepEpisodes(view, run, at)).map(({ tokens, logprobs, outcome }) => ({
          ...{ tokens, logprobs, outcome },
        })),
      })),
    );
  }

  async function bytesOf(store: ObjectStore, keys: readonly string[]): Promise<Map<string, Buffer>> {
    const found = new Map<string, Buffer>();
    for (const key of keys) {
      const bytes = await store.get(key);
      if (bytes) found.set(key, Buffer.from(bytes));
    }
    return found;
  }

  it('has only new episodes in use; the old bytes stay, the audit names them, and a kill after it changes no bit', async () => {
    const { store } = harness;
    const { result, before, answers, keys, seeds } = await live(harness, false);
    expect(before.size).toBe(4);
    expect(answers.early).toContain(`first \`longhaul pause ${run} --now\``);
    expect(answers.resumed).toContain(
      `${run} continues, and samples step ${step} again: its 4 finished episodes are set aside`,
    );

    expect(keys).toEqual([...finished, ...episodes.map((key) => `${key}.r1`)].sort());
    expect(await bytesOf(store, finished)).toEqual(before);
    const view = await openRunView(store, run);
    const old = await Promise.all(finished.map((key) => requireRecord(store, key, 'episode')));
    const used = await readStepEpisodes(view, run, step);
    expect(used).toHaveLength(episodes.length);
    // The policy gives few different answers, so some episodes may be equal to the earlier ones.
    const tokensOf = (some: readonly EpisodeRecord[]) => some.map(({ tokens }) => tokens);
    expect(tokensOf(used.slice(0, finished.length))).not.toEqual(tokensOf(old));

    // Turns of the other group were in journals, and were not continued.
    const { seed } = await readRun(store, run);
    expect(new Set(seeds.before)).toEqual(new Set([seed]));
    expect(new Set(seeds.after).size).toBe(1);
    expect(seeds.after).not.toContain(seed);
    expect(seeds.after.length).toBeGreaterThanOrEqual(episodes.length);
    expect(harness.said.filter((line) => line.includes('continued from their journals'))).toEqual([]);
    expect(await store.head(batchKey(run, step))).toBeNull();

    const audit = await auditRun(store, run);
    expect(audit).toMatchObject({ violations: [], resampled: [{ step, control: 2, episodes: 4 }] });
    const shown = await longhaul(['audit', run, '--store', store.address]);
    expect(shown.output).toContain(`step ${step}: 4 episodes were set aside by control record 2 (resample)`);
    const changes = await readChanges(view, await readHistory(view, run));
    expect(changes.map(({ what }) => what)).toEqual([
      'paused without waiting for the end of the step',
      `step ${step} sampled again`,
      'resumed',
    ]);

    const killed = await live(other, true);
    expect(killed.answers.resumed).toContain(
      `nothing to discard: step ${step} of ${run} has sampled nothing: control record 2 has set aside what it had`,
    );
    expect(killed.result.state).toBe(result.state);
    expect(await bitsOf(other.store)).toEqual(await bitsOf(store));
    expect((await auditRun(other.store, run)).violations).toEqual([]);
    // The step's update changes the state, so that equal states prove equal samples.
    expect((await readUpdate(store, run, step)).identity.applied).toBe(true);
  });
});
