// A run on a stock Tinker server: the time of its steps in addition to the server's calls, the cost of a kill, and whether 20 kills change its end.
import { setTimeout as delay } from 'node:timers/promises';
import { auditRun } from '../../src/activities/reports/audit-run.js';
import { TinkerClient } from '../../src/engine/tinker/futures.js';
import { TinkerService } from '../../src/engine/tinker/service.js';
import { type Harness, run } from '../../test/activities/fixture.js';
import { seededRandom } from '../../test/chaos/random.js';
import {
  collect,
  commitServedBase,
  DyingClient,
  finalLogprobs,
  furthest,
  loseModels,
  passOne,
  type ServedNode,
  type ServedWorld,
  startServedWorld,
  update,
} from '../../test/policy/served/fixture.js';
import { median } from '../figures/figure.js';

export interface ServedFigures {
  own_ms_p50: number;
  kill_by_numbers_s: number;
  kill_by_reload_s: number;
  kills: number;
  logprob_difference_after_kills: number;
  /** Number of violations in the audit, including episodes that were sampled again after their end. */
  violations: number;
}

const steps = 24;
const calls = ['/asample', '/save_weights_for_sampler', '/forward_backward', '/optim_step', '/save_weights'];

export async function measureServed(): Promise<ServedFigures> {
  const world = await startServedWorld();
  try {
    const timed = new TimedClient({ url: world.server.url });
    const calm = await world.open({}, { max_training_steps: steps });
    const times = await train(calm, world.node(calm, { service: new TinkerService(timed) }), timed);
    const expected = await finalLogprobs(calm, world.server, steps);
    await world.unloadModels();
    // The first steps include compilation.
    const warm = times.slice(4);
    const costs = await killCosts(world, median(warm.map(({ wallMs }) => wallMs)));
    await world.unloadModels();
    return {
      own_ms_p50: median(warm.map(({ ownMs }) => ownMs)),
      ...costs,
      ...(await disturbed(world, expected)),
    };
  } finally {
    await world.close();
  }
}

/** Time in which at least one call is open. */
class TimedClient extends TinkerClient {
  busyMs = 0;
  private open = 0;
  private since = 0;

  override call<T extends object>(...args: Parameters<TinkerClient['call']>): Promise<T> {
    return this.during(() => super.call<T>(...args));
  }

  override wait(...args: Parameters<TinkerClient['wait']>): ReturnType<TinkerClient['wait']> {
    return this.during(() => super.wait(...args));
  }

  private async during<T>(use: () => Promise<T>): Promise<T> {
    if (this.open++ === 0) this.since = performance.now();
    try {
      return await use();
    } finally {
      if (--this.open === 0) this.busyMs += performance.now() - this.since;
    }
  }
}

interface StepTime {
  wallMs: number;
  ownMs: number;
}

async function train(harness: Harness, node: ServedNode, timed: TimedClient): Promise<StepTime[]> {
  const times: StepTime[] = [];
  await commitServedBase(harness, node);
  for (let step = 1; step <= steps; step++) {
    const [began, busy] = [performance.now(), timed.busyMs];
    const planned = await harness.plan(step);
    await collect(harness, node, planned);
    const passing = performance.now();
    await passOne(harness, step);
    const passed = performance.now() - passing;
    await update(harness, node, planned);
    const wallMs = performance.now() - began - passed;
    times.push({ wallMs, ownMs: wallMs - (timed.busyMs - busy) });
  }
  return times;
}

/** `usualMs`: duration of an undisturbed step. */
async function killCosts(
  world: ServedWorld,
  usualMs: number,
): Promise<Pick<ServedFigures, 'kill_by_numbers_s' | 'kill_by_reload_s'>> {
  const harness = await world.open({}, { max_training_steps: steps });
  let node = world.node(harness);
  const [byNumbers, byReload]: [number[], number[]] = [[], []];
  await commitServedBase(harness, node);
  for (let step = 1; step <= 13; step++) {
    const planned = await harness.plan(step);
    const began = performance.now();
    const isReload = step > 3 && step % 2 === 0;
    if (isReload) {
      await loseModels(harness, world.server);
      await collect(harness, node, planned).catch(() => undefined);
    }
    await collect(harness, node, planned, isReload ? 2 : 1);
    await passOne(harness, step);
    const isKilled = step > 3 && !isReload;
    if (isKilled) {
      let seen = 0;
      const client = new DyingClient(
        { url: world.server.url },
        (call) => call === '/optim_step' && ++seen === 1,
      );
      const dying = world.node(harness, { service: new TinkerService(client) });
      await update(harness, dying, planned).catch(() => undefined);
      node = world.node(harness);
    }
    await update(harness, node, planned, isKilled ? 2 : 1);
    const seconds = (performance.now() - began - usualMs) / 1000;
    if (isKilled) byNumbers.push(seconds);
    if (isReload) byReload.push(seconds);
  }
  return { kill_by_numbers_s: median(byNumbers), kill_by_reload_s: median(byReload) };
}

/** Kills the worker behind a random call, or the server, in 20 of the steps. */
async function disturbed(
  world: ServedWorld,
  expected: readonly number[],
): Promise<Pick<ServedFigures, 'kills' | 'logprob_difference_after_kills' | 'violations'>> {
  const random = seededRandom(19);
  const harness = await world.open({}, { max_training_steps: steps });
  let node = world.node(harness);
  let kills = 0;
  await commitServedBase(harness, node);
  for (let step = 1; step <= steps; step++) {
    const planned = await harness.plan(step);
    const isServer = step % 4 === 2;
    if (step > 2 && kills < 20) {
      const call = random.pick(calls);
      let left = 1 + random.below(2);
      const strikes = (path: string): boolean => path === call && --left === 0;
      node = world.node(harness, {
        service: new TinkerService(
          isServer ? new ServerKiller(world, strikes) : new DyingClient({ url: world.server.url }, strikes),
        ),
      });
      kills += 1;
    }
    let attempt = 0;
    const untilDone = async (work: (attempt: number) => Promise<unknown>): Promise<void> => {
      for (;;) {
        try {
          await work(++attempt);
          return;
        } catch (error) {
          if (attempt > 8) throw error;
          if ((error as Error).message === 'killed') node = world.node(harness);
          await delay(200);
        }
      }
    };
    await untilDone((number) => collect(harness, node, planned, number));
    await passOne(harness, step);
    attempt = 0;
    await untilDone((number) => update(harness, node, planned, number));
  }
  const difference = furthest(await finalLogprobs(harness, world.server, steps), expected);
  const { violations } = await auditRun(harness.store, run);
  return { kills, logprob_difference_after_kills: difference, violations: violations.length };
}

class ServerKiller extends TinkerClient {
  constructor(
    private readonly world: ServedWorld,
    private readonly strikes: (path: string) => boolean,
  ) {
    super({ url: world.server.url });
  }

  override async call<T extends object>(...args: Parameters<TinkerClient['call']>): Promise<T> {
    const answer = await super.call<T>(...args);
    if (this.strikes(args[0])) await this.world.server.restart();
    return answer;
  }
}
