import { describe, expect, it } from 'vitest';
import type { PoolView } from '../../../src/workflows/messages.js';
import { poolDetails } from '../../../src/workflows/pool/pool-details.js';

const at = Date.UTC(2030, 0, 2, 3, 4, 5);
const node = (id: string, changes: Partial<PoolView['nodes'][number]> = {}): PoolView['nodes'][number] => ({
  ...{ id, instance: 'a', host: 'h', gpu: null, memory_bytes: 1, places: 2, lastSeen: at, state: 'up' },
  numerics: { backend: 'cpu', version: 2 },
  ...changes,
});

describe('the live text of the pool', () => {
  it('shows the nodes, the runs that work on them, and the waiting requests with reasons', () => {
    const text = poolDetails({
      nodes: [node('gpu-1'), node('gpu-2', { state: 'draining' })],
      leases: [{ lease: 'l', run: 'crm', project: 'p', node: 'gpu-1', since: at }],
      queue: [
        { lease: 'q', run: 'next', project: 'p', priority: 3, since: at, why: 'node gpu-1 is held by crm' },
      ],
    });
    expect(text).toContain('**1 node** up with 2 places · **1** held · **1** waiting');
    expect(text).toMatch(
      /\| \*\*gpu-1\*\*\s* \| up\s* \| 02 Jan 03:04:05 UTC\s* \| cpu\/2\s* \| crm since 02 Jan 03:04:05 UTC \|/,
    );
    expect(text).toMatch(/\| \*\*gpu-2\*\*\s* \| \*\*draining\*\*\s* \|.*\| – \|/);
    expect(text).toContain('- next (p, priority 3) since 02 Jan 03:04:05 UTC: node gpu-1 is held by crm');
  });

  it('says if there is no node, and stays short if there are many', () => {
    expect(poolDetails({ nodes: [], leases: [], queue: [] })).toContain('**0 nodes** up with 0 places');
    const many = poolDetails({
      nodes: Array.from({ length: 500 }, (_, index) => node(`gpu-${index}`)),
      leases: [],
      queue: [],
    });
    expect(many).toContain('and 470 more');
    expect(Buffer.byteLength(many)).toBeLessThan(5_000);
  });
});
