// A rebase ends a run's workflow. So it is refused for a run that needs no rebase, and for a run that could not continue afterwards.
import { describe, expect, test } from 'vitest';
import { refuseEqualNumerics, refuseNeedlessRebase } from '../../../src/cli/control/fork-command.js';
import type { Numerics } from '../../../src/spec/records/numerics.js';
import type { PoolView } from '../../../src/workflows/messages.js';

const cpu = (version: number): Numerics => ({ backend: 'cpu', version });

function node(
  id: string,
  numerics: Numerics | null,
  state: 'up' | 'draining' | 'lost' = 'up',
): PoolView['nodes'][number] {
  const offer = { host: 'h', instance: id, gpu: null, memory_bytes: 0, places: 1, lastSeen: 0 };
  return { id, state, ...offer, ...(numerics ? { numerics } : {}) };
}

const refusal = (nodes: PoolView['nodes']) => () =>
  refuseNeedlessRebase('live', { nodes }, cpu(1), cpu(2), { folder: '/srv/stack' });

describe('a rebase', () => {
  test('is refused if the run already has the wanted numerics', () => {
    expect(() => refuseEqualNumerics('live', cpu(1), cpu(1))).toThrow('live has numerics cpu/1 already');
    expect(() => refuseEqualNumerics('live', cpu(1), cpu(2))).not.toThrow();
  });

  test('is refused while a living node has the run’s own numerics, and the node is named', () => {
    expect(refusal([node('a', cpu(1)), node('b', cpu(2))])).toThrow(
      /needs no rebase: .*cpu\/1, which a offers \(longhaul nodes --folder \/srv\/stack\)/,
    );
    expect(refusal([node('a', cpu(1)), node('b', cpu(1))])).toThrow(/which a, b offer/);
  });

  test.each([
    { what: 'no node', nodes: [] },
    { what: 'a node that has not reported its numerics', nodes: [node('a', null)] },
    { what: 'the only one is lost', nodes: [node('a', cpu(2), 'lost')] },
    { what: 'the only one is leaving', nodes: [node('a', cpu(2), 'draining')] },
    { what: 'a node with other numerics', nodes: [node('a', cpu(3))] },
  ])('is refused without a living node that has the wanted numerics: $what', ({ nodes }) => {
    expect(refusal(nodes)).toThrow(/no living node has numerics cpu\/2.*live could not continue/);
  });

  test('is allowed if no living node has the run’s numerics and a living node has the wanted numerics', () => {
    expect(refusal([node('old', cpu(1), 'lost'), node('a', cpu(2))])).not.toThrow();
  });
});
