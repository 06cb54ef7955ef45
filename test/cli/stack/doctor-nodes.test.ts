// What `longhaul doctor` says about the nodes of the pool.
import { expect, it } from 'vitest';
import { nodesText } from '../../../src/cli/stack/doctor-checks.js';
import type { PoolView } from '../../../src/workflows/messages.js';

const node = (id: string, state: PoolView['nodes'][number]['state']): PoolView['nodes'][number] => ({
  ...{
    id,
    state,
    instance: id,
    host: 'rack-1',
    gpu: null,
    memory_bytes: 4 * 2 ** 30,
    places: 1,
    lastSeen: 0,
  },
});

it('counts the nodes that are up, and names them all if one is not', () => {
  expect(nodesText([node('a', 'up'), node('b', 'up')], 'longhaul up')).toBe('2 up');
  expect(nodesText([node('a', 'up'), node('b', 'lost')], 'longhaul up')).toBe(
    '1 of 2 up: a is up, b is lost',
  );
});

it('fails if the only node is lost, and names the command that starts one', () => {
  expect(() => nodesText([node('a', 'lost')], 'longhaul up')).toThrow(
    /^no node takes work, so every run waits \(a is lost\): start one with `longhaul up`/,
  );
  expect(() => nodesText([node('a', 'draining')], 'longhaul up')).toThrow('a is draining');
});

it('fails if no node has ever reported', () => {
  expect(() => nodesText([], 'longhaul up --folder x')).toThrow(
    /^no node has reported.*`longhaul up --folder x`/,
  );
});
