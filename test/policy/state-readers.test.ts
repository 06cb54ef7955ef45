// When the keeper of a state is notified that nobody reads it, so that it can end a model that exists only for reading.
import { expect, test } from 'vitest';
import type { PolicyEngine } from '../../src/engine/policy-engine.js';
import { PolicyHolder } from '../../src/policy/policy-holder.js';
import type { CommittedState, StateKeeper } from '../../src/policy/state-keeper.js';
import { numerics } from './served/simulation/script.js';
import { undisturbed } from './served/simulation/undisturbed.js';

test('the last reader that used the state notifies it; a reader that did not use the state does not', async () => {
  const { store } = await undisturbed({}, { trained: false });
  const said: string[] = [];
  let state: string | null = null;
  const keeper: Partial<StateKeeper> = {
    held: () => Promise.resolve(state),
    hold: (wanted: CommittedState) => {
      said.push('hold');
      state = wanted.state;
      return Promise.resolve();
    },
    idle: () => {
      said.push('idle');
      return Promise.resolve();
    },
  };
  const engine = { info: () => Promise.resolve({ numerics, incarnation: 'one' }) };
  const holder = new PolicyHolder({
    ...{ store, engine: engine as unknown as PolicyEngine, keeper: keeper as StateKeeper },
  });
  const read = (name: string, until: Promise<void>) =>
    holder.withState('tiny', 0, 'visitor', async () => {
      await until;
      said.push(name);
    });
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  const both = [read('first', Promise.resolve()), read('second', released)];
  await both[0];
  expect(said).toEqual(['hold', 'first']);
  release();
  await both[1];
  expect(said).toEqual(['hold', 'first', 'second', 'idle']);
});
