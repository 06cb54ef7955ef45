// A step's record counts the tokens of all requests that were sent to a Tinker server for it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { TinkerClient, type TinkerOptions } from '../../../src/engine/tinker/futures.js';
import { InDoubt } from '../../../src/engine/tinker/call-errors.js';
import { TinkerService } from '../../../src/engine/tinker/service.js';
import { spentBy } from '../../../src/rl/spending.js';
import type { ServedTokens } from '../../../src/spec/budget.js';
import { readStepEpisodes } from '../../../src/store/runs/episodes.js';
import { readUpdate } from '../../../src/store/runs/run-records.js';
import { type Harness, run } from '../../activities/fixture.js';
import {
  collect,
  commitServedBase,
  DyingClient,
  passOne,
  type ServedWorld,
  startServedWorld,
  update,
  python,
} from './fixture.js';

describe.skipIf(!python)('a run on a Tinker server', () => {
  let world: ServedWorld;
  beforeAll(async () => {
    world = await startServedWorld();
  });
  afterAll(() => world?.close());

  async function started(client = new LosingClient({ url: world.server.url }, () => false)) {
    const harness = await world.open();
    const node = world.node(harness, { service: new TinkerService(client) });
    await commitServedBase(harness, node);
    return { harness, client, node };
  }

  test('counts what follows from a step’s records where nothing is repeated', async () => {
    const { harness, client, node } = await started();
    const planned = await harness.plan(1);
    await collect(harness, node, planned);
    await passOne(harness, 1);
    const committed = await update(harness, node, planned);
    const { sequences, tokens } = await recordedTokens(harness, 1);
    expect(sequences).toHaveLength(4);
    expect(client.prompts).toBe(tokens.prefill);
    // Saves: for the sampler before the episodes, and of the new state.
    const expected = { ...tokens, saves: 2 };
    expect(await spentIn(harness, 1)).toEqual(expected);
    expect(committed.spent?.served).toEqual(expected);
    // A repeated activity is answered from the record, and the next step counts its own requests alone.
    expect((await update(harness, node, planned, 2)).spent?.served).toEqual(expected);
    const second = await harness.plan(2);
    await collect(harness, node, second);
    await passOne(harness, 2);
    await update(harness, node, second);
    // The check before the step has the sequences of the one before.
    const { tokens: own } = await recordedTokens(harness, 2);
    expect(await spentIn(harness, 2)).toEqual({ ...own, train: own.train + tokens.train / 2, saves: 2 });
  });

  test('counts a request twice whose answer was lost', async () => {
    const lost = ['/asample', '/forward_backward'];
    const client = new LosingClient(
      { url: world.server.url },
      (call) => lost.includes(call) && remove(lost, call),
    );
    const { harness, node } = await started(client);
    const planned = await harness.plan(1);
    await collect(harness, node, planned);
    await passOne(harness, 1);
    await update(harness, node, planned);
    expect(lost).toEqual([]);
    const { sequences, tokens } = await recordedTokens(harness, 1);
    const spent = await spentIn(harness, 1);
    // A chunk has two sequences, and all prompts of a step's first turns are sent once but the lost one.
    expect(spent.train).toBe(tokens.train + sequences[0]! + sequences[1]!);
    expect(spent.prefill).toBe(client.prompts);
    expect(spent.prefill).toBe(tokens.prefill + client.lostPrompt);
    expect(client.lostPrompt).toBeGreaterThan(0);
    // Nobody knows how long the lost sample was.
    expect(spent.sample).toBe(tokens.sample);
  });

  test('counts episodes and an update that a dead worker has left in the records and on the server', async () => {
    const { harness, node } = await started();
    const planned = await harness.plan(1);
    await collect(harness, node, planned);
    await passOne(harness, 1);
    const dying = new DyingClient({ url: world.server.url }, (call) => call === '/save_weights');
    const second = world.node(harness, { service: new TinkerService(dying) });
    await expect(update(harness, second, planned)).rejects.toThrow('killed');
    await update(harness, world.node(harness), planned, 2);
    expect(await spentIn(harness, 1)).toMatchObject((await recordedTokens(harness, 1)).tokens);
  });
});

/** Notes the prompts that are sent, and loses the answers of chosen calls. */
class LosingClient extends TinkerClient {
  /** Tokens. */
  prompts = 0;
  lostPrompt = 0;

  constructor(
    options: TinkerOptions,
    private readonly loses: (call: string) => boolean,
  ) {
    super(options);
  }

  override async call<T extends object>(...args: Parameters<TinkerClient['call']>): Promise<T> {
    const [path, body] = args;
    const tokens = path === '/asample' ? (body as SampleBody).prompt.chunks[0].tokens.length : 0;
    this.prompts += tokens;
    const answer = await super.call<T>(...args);
    if (!this.loses(path)) return answer;
    this.lostPrompt += tokens;
    throw new InDoubt(`${path} was not answered`);
  }
}

interface SampleBody {
  prompt: { chunks: [{ tokens: number[] }] };
}

function remove(list: string[], one: string): true {
  list.splice(list.indexOf(one), 1);
  return true;
}

/** What a step's requests hold if each is sent once: by its episodes and the outcomes that its update counts. */
async function recordedTokens(
  { store }: Harness,
  step: number,
): Promise<{ tokens: Omit<ServedTokens, 'saves'>; sequences: number[] }> {
  const { outcomes } = (await readUpdate(store, run, step)).identity;
  const episodes = await readStepEpisodes(store, run, step);
  // A sequence ends before its last sampled token, which is only predicted; a group of equals teaches nothing.
  const sequences = episodes
    .filter(({ slot }) => new Set(outcomes[slot]).size > 1)
    .map(({ turns }) => turns.at(-1)!.end - 1);
  const turns = episodes.flatMap((episode) => episode.turns);
  const sum = (numbers: number[]): number => numbers.reduce((total, one) => total + one, 0);
  return {
    sequences,
    tokens: {
      // The check after the step has all of its few sequences.
      train: 2 * sum(sequences),
      prefill: sum(turns.map(({ start }) => start)),
      sample: sum(episodes.map(({ logprobs }) => logprobs.length)),
    },
  };
}

async function spentIn({ store }: Harness, step: number): Promise<ServedTokens> {
  return spentBy(await readUpdate(store, run, step)).served!;
}
