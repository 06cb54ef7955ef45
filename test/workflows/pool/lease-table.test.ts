// The pool's decisions: which run gets which node, in which order, and what happens to leases when nodes come and go.
import { describe, expect, it } from 'vitest';
import type { LeaseRequest } from '../../../src/activities/contracts.js';
import { LeaseTable } from '../../../src/workflows/pool/lease-table.js';
import { nodeLostAfterMs, type NodeReport } from '../../../src/workflows/messages.js';
import { cpu2, node, request } from './pool-inputs.js';

const runOf = ({ workflowId, firstExecutionRunId }: LeaseRequest) => ({ workflowId, firstExecutionRunId });

/** The messages, such as `a granted local` or `b waiting: node local is held by train/a`. */
function told(table: LeaseTable): string[] {
  return table.messages().map(({ to, signal, say }) => {
    const run = to.workflowId.replace('train/', '');
    const about =
      'why' in say
        ? `: ${say.why}`
        : 'node' in say
          ? ` ${say.node}${'reason' in say ? ` ${say.reason}` : ''}`
          : '';
    return `${run} ${signal}${about}`;
  });
}

function tableOf(...nodes: NodeReport[]): LeaseTable {
  const table = new LeaseTable();
  for (const report of nodes) table.up(report, 0);
  return table;
}

describe('a request', () => {
  it('is granted a free node; otherwise it waits, with the reason, until the node is released', () => {
    const table = tableOf(node('local'));
    table.request(request('a'), 1);
    expect(table.request(request('b'), 2)).toBe(true);
    expect(told(table)).toEqual(['a granted local', 'b waiting: node local is held by train/a']);
    table.release({ lease: 'a/1' }, 3);
    expect(told(table)).toEqual(['b granted local']);
  });

  it('after a reset, ends only those leases of the run that its new execution does not know', () => {
    const table = tableOf(node('n1'), node('n2'));
    const asker = (execution: string, ...knows: string[]) => ({ asker: { execution, knows } });
    table.request(request('a', asker('before', 'a/1')), 1);
    table.request(request('a', { lease: 'a/2', ...asker('before', 'a/1', 'a/2') }), 2);
    table.request(request('b', asker('other', 'b/1')), 3);
    expect(told(table)).toEqual(['a granted n1', 'a granted n2', expect.stringContaining('b waiting')]);
    // The same request, repeated late: this execution still knows its leases.
    table.request(request('a', asker('before', 'a/1')), 4);
    expect(told(table)).toEqual(['a granted n1']);
    table.request(request('a', { lease: 'a/3', ...asker('reset', 'a/1', 'a/3') }), 5);
    expect(told(table)).toEqual([
      'a revoked n2 released',
      'b granted n2',
      expect.stringContaining('a waiting'),
    ]);
    expect(table.view().leases.map(({ lease }) => lease)).toEqual(['a/1', 'b/1']);
  });

  it('that comes late from the execution before a reset may revoke leases of the new execution, but never without a notice', () => {
    const table = tableOf(node('n1'));
    const asker = (execution: string, ...knows: string[]) => ({ asker: { execution, knows } });
    const [before, after] = [asker('before', 'a/1'), asker('after', 'a/2', 'a/3')];
    table.request(request('a', { lease: 'a/2', ...after }), 1);
    table.request(request('a', { lease: 'a/3', ...after }), 2);
    told(table);
    table.request(request('a', before), 3);
    expect(told(table)).toEqual(['a revoked n1 released', 'a refused', 'a granted n1']);
    // The run does not know this name, so it releases the lease and asks under new names.
    table.release({ lease: 'a/1' }, 4);
    table.request(request('a', { lease: 'a/3', ...after }), 5);
    expect(told(table)).toEqual(['a refused']);
    table.request(request('a', { lease: 'a/4', ...asker('after', 'a/4') }), 6);
    expect(told(table)).toEqual(['a granted n1']);
  });

  it('may arrive before any node', () => {
    const table = new LeaseTable();
    table.request(request('a'), 0);
    expect(told(table)).toEqual(['a waiting: no node is alive']);
    table.up(node('local'), 1);
    expect(told(table)).toEqual(['a granted local']);
  });

  it('shares a node with as many runs as the node has places', () => {
    const table = tableOf(node('local', { places: 2 }));
    for (const run of ['a', 'b', 'c']) table.request(request(run), 1);
    expect(told(table)).toEqual([
      ...['a granted local', 'b granted local'],
      'c waiting: node local is held by train/a, train/b',
    ]);
  });

  it('goes to the node with the most free places, and never twice to one node for the same run', () => {
    const table = tableOf(node('n1', { places: 2 }), node('n2', { places: 2 }));
    table.request(request('a'), 1);
    table.request(request('b'), 2);
    table.request(request('b', { lease: 'b/2' }), 3);
    table.request(request('b', { lease: 'b/3' }), 4);
    expect(told(table)).toEqual([
      ...['a granted n1', 'b granted n2', 'b granted n1'],
      'b waiting: no node except n1, n2 is alive',
    ]);
  });

  it('is served by priority, then by the project with the fewest leases, then by order of arrival', () => {
    const table = tableOf(node('n1'), node('n2'));
    table.request(request('first', { project: 'big' }), 1);
    table.request(request('second', { project: 'big' }), 2);
    table.request(request('third', { project: 'big' }), 3);
    table.request(request('fourth', { project: 'big' }), 4);
    table.request(request('small', { project: 'small' }), 5);
    table.request(request('urgent', { project: 'big', priority: 1 }), 6);
    told(table);
    expect(table.view().queue.map(({ run }) => run)).toEqual(['urgent', 'small', 'third', 'fourth']);
    const granted: string[] = [];
    for (const lease of ['first/1', 'second/1', 'urgent/1', 'small/1']) {
      table.release({ lease }, 7);
      granted.push(...told(table).filter((line) => line.includes('granted')));
    }
    expect(granted).toEqual([
      ...['urgent granted n1', 'small granted n2', 'third granted n1', 'fourth granted n2'],
    ]);
  });

  it('skips nodes with other numerics, and takes a node with unreported numerics last (R18)', () => {
    const { numerics: _, ...silent } = node('silent');
    const table = tableOf(node('other', { numerics: cpu2 }), silent, node('fits', { places: 1 }));
    for (const run of ['a', 'b', 'c']) table.request(request(run), 1);
    table.request(request('fresh', { numerics: null }), 2);
    expect(told(table)).toEqual([
      ...['a granted fits', 'b granted silent'],
      'c waiting: node fits is held by train/a, node silent is held by train/b',
      'fresh granted other',
    ]);
  });

  it('of a new run gets a node with the numerics that it names, else with fp32', () => {
    const half = { backend: 'bf16-sm90', version: 1 } as const;
    const table = tableOf(node('half', { numerics: half }), node('other', { numerics: cpu2 }));
    table.request(request('second', { numerics: null, backend: 'bf16-sm90' }), 1);
    table.request(request('first', { numerics: null }), 1);
    expect(told(table)).toEqual(['second granted half', 'first granted other']);
    // A node that comes back with another engine does not keep them.
    table.up(node('half', { instance: 'again', numerics: cpu2 }), 2);
    expect(told(table)).toContain('second revoked half released');
  });

  it('takes nodes with a GPU first, however busy', () => {
    const gpu = { name: 'a GPU', memory_bytes: 1 };
    const table = tableOf(node('a', { places: 2 }), node('b', { places: 2, gpu }), node('c', { places: 2 }));
    for (const run of ['first', 'second', 'third']) table.request(request(run), 1);
    expect(told(table)).toEqual(['first granted b', 'second granted b', 'third granted a']);
  });

  it('that fits no node’s numerics waits, with the reason, and is granted a fitting node that comes (R18)', () => {
    const table = tableOf(node('other', { numerics: cpu2 }));
    table.request(request('a'), 1);
    expect(table.messages()).toMatchObject([
      {
        signal: 'waiting',
        say: {
          cause: 'unfit',
          why: expect.stringMatching(
            /no living node has numerics cpu\/1, .* a .*other computes with cpu\/2/,
          ) as string,
        },
      },
    ]);
    table.up(node('fits'), 2);
    expect(told(table)).toEqual(['a granted fits']);
  });

  it('that must be granted at once is refused if no other node is free', () => {
    const table = tableOf(node('n1'));
    table.request(request('a'), 1);
    const elsewhere = request('a', { lease: 'a/2', besides: ['n1'], atOnce: true });
    expect(table.request(elsewhere, 2)).toBe(false);
    expect(told(table)).toEqual(['a granted n1', 'a refused']);
    expect(table.view().queue).toEqual([]);
    table.up(node('n2'), 3);
    table.request({ ...elsewhere, lease: 'a/3' }, 4);
    expect(told(table)).toEqual(['a granted n2']);
  });

  it('that arrives after its release is ignored', () => {
    const table = tableOf(node('n1'));
    table.release({ lease: 'a/1' }, 1);
    table.request(request('a'), 2);
    expect(told(table)).toEqual(['a refused']);
    expect(table.view()).toMatchObject({ leases: [], queue: [] });
  });
});

describe('a node', () => {
  it('that is silent for two reports is lost: its runs get a notice, and the node serves again when it returns', () => {
    const table = tableOf(node('local'));
    table.request(request('a'), 0);
    told(table);
    expect(table.deadline).toBe(nodeLostAfterMs);
    table.passed(nodeLostAfterMs - 1);
    expect(told(table)).toEqual([]);
    table.passed(nodeLostAfterMs);
    expect(told(table)).toEqual(['a revoked local lost']);
    expect(table.view().nodes).toMatchObject([{ id: 'local', state: 'lost' }]);
    table.request(request('a', { lease: 'a/2' }), nodeLostAfterMs + 1);
    expect(told(table)).toEqual(['a waiting: no node is alive']);
    table.up(node('local'), nodeLostAfterMs + 2);
    expect(told(table)).toEqual(['a granted local']);
  });

  it('that is silent while the pool receives no reports is not lost', () => {
    const table = tableOf(node('local'));
    const back = 60_000;
    table.away(back);
    table.passed(back);
    expect(table.view().nodes).toMatchObject([{ state: 'up' }]);
    table.passed(back + nodeLostAfterMs);
    expect(table.view().nodes).toMatchObject([{ state: 'lost' }]);
  });

  it('that is draining gets no lease, and its runs move to other nodes', () => {
    const table = tableOf(node('n1'));
    table.request(request('a'), 0);
    table.up(node('n2'), 1);
    told(table);
    table.draining({ id: 'n1', instance: 'n1-1' }, 2);
    expect(told(table)).toEqual(['a revoked n1 draining']);
    table.request(request('a', { lease: 'a/2' }), 3);
    table.request(request('b'), 4);
    expect(told(table)).toEqual(['a granted n2', 'b waiting: node n2 is held by train/a']);
    expect(table.view().nodes.map(({ state }) => state)).toEqual(['draining', 'up']);
    // The process that replaces it is not draining.
    table.up(node('n1', { instance: 'n1-2' }), 5);
    expect(told(table)).toEqual(['b granted n1']);
  });

  it('leaves with its instance: a late report of an older instance changes nothing', () => {
    const table = tableOf(node('n1', { instance: 'old' }));
    table.request(request('a'), 0);
    table.up(node('n1', { instance: 'new' }), 1);
    told(table);
    table.draining({ id: 'n1', instance: 'old' }, 2);
    table.down({ id: 'n1', instance: 'old' }, 3);
    table.up(node('n1', { instance: 'old' }), 4);
    expect(told(table)).toEqual([]);
    expect(table.view().nodes).toMatchObject([{ instance: 'new', lastSeen: 1, state: 'up' }]);
    table.down({ id: 'n1', instance: 'new' }, 5);
    expect(told(table)).toEqual(['a revoked n1 lost']);
    expect(table.view().nodes).toEqual([]);
  });

  it('with a replaced engine loses the runs that no longer fit (R18)', () => {
    const table = tableOf(node('n1', { places: 2 }));
    table.request(request('a'), 0);
    table.request(request('fresh', { numerics: null }), 1);
    told(table);
    table.up(node('n1', { places: 2, instance: 'n1-2', numerics: cpu2 }), 2);
    expect(told(table)).toEqual(['a revoked n1 released']);
  });

  it('on which work timed out gets no lease before its next report', () => {
    const table = tableOf(node('n1'));
    table.request(request('a'), 0);
    told(table);
    table.suspect({ lease: 'a/1', node: 'n1' }, 1);
    table.request(request('a', { lease: 'a/2' }), 2);
    expect(told(table)).toEqual([
      'a revoked n1 lost',
      'a waiting: work on node n1 timed out, and the node has not reported since',
    ]);
    table.up(node('n1'), 3);
    expect(told(table)).toEqual(['a granted n1']);
  });

  it('is not suspected if work timed out under a lease of another node', () => {
    const table = tableOf(node('n1'), node('n2'));
    table.request(request('a'), 0);
    told(table);
    table.suspect({ lease: 'a/1', node: 'n2' }, 1);
    expect(told(table)).toEqual([]);
    table.request(request('b'), 2);
    expect(told(table)).toEqual(['b granted n2']);
    expect(table.view().leases).toMatchObject([{ node: 'n1' }, { node: 'n2' }]);
  });

  it('that has been silent for a day is forgotten', () => {
    const table = tableOf(node('n1'));
    const day = 24 * 3_600_000;
    table.passed(day - 1);
    expect(table.view().nodes).toMatchObject([{ id: 'n1', state: 'lost' }]);
    table.passed(day);
    expect(table.view().nodes).toEqual([]);
  });
});

describe('a lease', () => {
  it('is not ended by an earlier request of the same execution that arrives late', () => {
    const table = tableOf(node('n1'), node('n2'), node('n3'));
    const knows = (...leases: string[]) => ({ asker: { execution: 'only', knows: leases } });
    table.request(request('a', { lease: 'a/2', ...knows('a/1', 'a/2') }), 1);
    table.request(request('a', knows('a/1')), 2);
    expect(told(table)).toEqual(['a granted n1', 'a granted n2']);
    expect(table.view().leases.map(({ lease }) => lease)).toEqual(['a/1', 'a/2']);
  });

  it('on a node that never reports ends in time, even if no other node is watched', () => {
    const table = new LeaseTable();
    table.request(request('a', { holding: 'dead' }), 1);
    expect(table.deadline).toBe(1 + nodeLostAfterMs);
    table.passed(1 + nodeLostAfterMs);
    expect(told(table)).toEqual(['a granted dead', 'a revoked dead lost']);
    expect(table.deadline).toBeNull();
  });

  it('that has ended is remembered as long as late messages may arrive, but not for ever', () => {
    const table = tableOf(node('n1'));
    for (let n = 1; n <= 1_000; n++) {
      table.request(request('a', { lease: `a/${n}` }), n);
      table.release({ lease: `a/${n}` }, n);
    }
    told(table);
    expect(table.state().ended.length).toBeLessThanOrEqual(100);
    table.request(request('a', { lease: 'a/1000' }), 1_001);
    expect(told(table)).toEqual(['a refused']);
  });

  it('of a closed run ends, and so does the run’s waiting request (R30)', () => {
    const table = tableOf(node('n1'));
    for (const run of ['a', 'b', 'c']) table.request(request(run), 0);
    told(table);
    expect(table.runs()).toEqual([request('a'), request('b'), request('c')].map(runOf));
    table.closed(runOf(request('b')), 1);
    // Another run has the workflow id now.
    table.closed({ ...runOf(request('a')), firstExecutionRunId: 'another' }, 1);
    expect(told(table)).toEqual([]);
    table.closed(runOf(request('a')), 1);
    expect(told(table)).toEqual(['c granted n1']);
  });

  it('that a run reports is restored by a pool that lost it, if the node is free or unknown', () => {
    const table = tableOf(node('n1'));
    table.request(request('a', { holding: 'n1' }), 0);
    table.request(request('b', { holding: 'n1' }), 0);
    table.request(request('c', { holding: 'n2' }), 0);
    table.request(request('d', { holding: 'n3' }), 0);
    expect(told(table)).toEqual(['a granted n1', 'b revoked n1 released', 'c granted n2', 'd granted n3']);
    expect(table.view().leases).toMatchObject([{ node: 'n1' }, { node: 'n2' }, { node: 'n3' }]);
    table.up(node('n1'), 5);
    table.up(node('n2'), 5);
    table.passed(nodeLostAfterMs);
    expect(told(table)).toEqual(['d revoked n3 lost']);
  });

  it('that has ended is not restored when a run reports it: the run gets the notice again', () => {
    const table = tableOf(node('n1'));
    table.request(request('a'), 0);
    table.passed(nodeLostAfterMs);
    table.up(node('n1'), nodeLostAfterMs + 1);
    told(table);
    table.request(request('a', { holding: 'n1' }), nodeLostAfterMs + 2);
    expect(told(table)).toEqual(['a revoked n1 lost']);
    expect(table.view().leases).toEqual([]);
  });
});
