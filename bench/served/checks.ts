// What the checks of the weights on a Tinker server (R37) add to a step: steps with checks and without them, in turns.
import { TinkerClient } from '../../src/engine/tinker/futures.js';
import { TinkerService } from '../../src/engine/tinker/service.js';
import type { PassRequest, PassResult } from '../../src/engine/tinker/wire.js';
import { run } from '../../test/activities/fixture.js';
import {
  collect,
  commitServedBase,
  passOne,
  type ServedWorld,
  startServedWorld,
  update,
} from '../../test/policy/served/fixture.js';
import { median } from '../figures/figure.js';

export interface CheckFigures {
  /** Share of a step of four episodes, in percent. */
  checks_percent_of_4: number;
  /** The same of a step with as many episodes as a small real run has. */
  checks_percent_of_64: number;
}

interface Size {
  groups: number;
  samples: number;
  steps: number;
}

interface Time {
  checked: boolean;
  updateMs: number;
  stepMs: number;
}

/** The first steps compile. */
const warmUp = 8;

export async function measureChecks(): Promise<CheckFigures> {
  const world = await startServedWorld();
  try {
    return {
      checks_percent_of_4: await percentOf(world, { groups: 2, samples: 2, steps: warmUp + 64 }),
      checks_percent_of_64: await percentOf(world, { groups: 16, samples: 4, steps: warmUp + 32 }),
    };
  } finally {
    await world.close();
  }
}

/** Only the update has checks: what the rest of a step takes would add its noise to the difference. */
async function percentOf(world: ServedWorld, size: Size): Promise<number> {
  const times = (await timesOf(world, size)).slice(warmUp);
  const updateMs = (wanted: boolean): number =>
    median(times.filter(({ checked }) => checked === wanted).map((time) => time.updateMs));
  const stepMs = median(times.filter(({ checked }) => !checked).map((time) => time.stepMs));
  return (100 * (updateMs(true) - updateMs(false))) / stepMs;
}

async function timesOf(world: ServedWorld, { groups, samples, steps }: Size): Promise<Time[]> {
  const served = { chunk_sequences: groups };
  const trainer = { train_batch_size: groups, max_training_steps: steps };
  const harness = await world.open(served, trainer, { samples });
  const service = new CheckedInTurns(new TinkerClient({ url: world.server.url }));
  const node = world.node(harness, { service });
  const times: Time[] = [];
  await commitServedBase(harness, node);
  for (let step = 1; step <= steps; step++) {
    service.checks = step % 4 < 2;
    const planned = await harness.plan(step);
    const began = performance.now();
    await collect(harness, node, planned);
    const collectMs = performance.now() - began;
    await passOne(harness, step, run, groups);
    const sealed = performance.now();
    await update(harness, node, planned);
    const updateMs = performance.now() - sealed;
    times.push({ checked: service.checks, updateMs, stepMs: collectMs + updateMs });
  }
  await world.unloadModels();
  return times;
}

/** A service whose checks can be left out: they are then answered here. */
class CheckedInTurns extends TinkerService {
  checks = true;
  /** By sequences: a step's check must get what was recorded after the step before, be it made up. */
  private readonly answers = new Map<string, PassResult>();

  override async pass(...[request, options]: Parameters<TinkerService['pass']>): Promise<PassResult> {
    // Of a run's passes, the checks alone leave no gradients.
    if (!request.forward_only) return super.pass(request, options);
    const sequences = JSON.stringify(request.data.map(({ tokens }) => tokens));
    const answer = this.checks ? await super.pass(request, options) : madeUp(request);
    const known = this.answers.get(sequences) ?? answer;
    this.answers.set(sequences, known);
    return known;
  }
}

function madeUp({ data }: PassRequest): PassResult {
  return { outputs: data.map(({ tokens }) => ({ logprobs: tokens.map(() => -1) })), metrics: {} };
}
