// `longhaul nodes` shows the nodes, the runs that hold them, and the runs that wait.
import { describe, expect, it } from 'vitest';
import { describePool } from '../../../src/cli/inspect/nodes-command.js';
import type { PoolView } from '../../../src/workflows/messages.js';
import { longhaul as commandLine } from '../../support/command-line.js';
import { startTemporal } from '../../support/servers/temporal-server.js';
import { PoolStage } from '../../workflows/pool/pool-stage.js';
import { gate, uniqueScript, until, useTemporal } from '../../workflows/scripted-run.js';

const now = Date.UTC(2026, 0, 1);
const ago = (seconds: number): number => now - 1000 * seconds;

const view: PoolView = {
  nodes: [
    {
      ...{ id: 'gpu-1', instance: 'a', host: 'rack-2', numerics: { backend: 'cpu', version: 1 } },
      gpu: { name: 'H200', memory_bytes: 141 * 2 ** 30 },
      ...{ memory_bytes: 128 * 2 ** 30, places: 2, lastSeen: ago(3), state: 'up' },
    },
    {
      ...{ id: 'old', instance: 'b', host: 'rack-1', gpu: null, memory_bytes: 4 * 2 ** 30, places: 1 },
      ...{ lastSeen: ago(4000), state: 'lost' },
    },
  ],
  leases: [
    { lease: 'first/1', run: 'first', project: 'p', node: 'gpu-1', since: ago(90) },
    { lease: 'second/1', run: 'second', project: 'p', node: 'gpu-1', since: ago(5) },
    { lease: 'third/1', run: 'third', project: 'p', node: 'gpu-9', since: ago(1) },
  ],
  queue: [
    {
      ...{ lease: 'fourth/1', run: 'fourth', project: 'p', priority: 2, since: ago(61) },
      why: 'node gpu-1 is held by train/first, train/second',
    },
  ],
};

describe('longhaul nodes', () => {
  it('shows what each node offers, which run holds it, and the queue in its order', () => {
    expect(describePool(view, now)).toBe(
      [
        'NODE   STATE  HEARD      NUMERICS  GPU            MEMORY   HOST    PLACES  HELD BY',
        'gpu-1  up     3 s        cpu/1     H200, 141 GiB  128 GiB  rack-2  2       first (1 min 30 s), second (5 s)',
        'old    lost   1 h 7 min                           4.0 GiB  rack-1  1',
        'third holds gpu-9, which has not reported yet',
        '',
        'Waiting, in order of the queue:',
        'fourth (p, priority 2) has waited for 1 min 1 s: node gpu-1 is held by train/first, train/second',
      ].join('\n'),
    );
  });

  describe('for a live pool', () => {
    const temporal = useTemporal(startTemporal);

    async function longhaul(...args: string[]): Promise<string> {
      const { output, errors } = await commandLine([...args, '--temporal-address', temporal.address]);
      return output + errors;
    }

    it('says how to start a node if there is none; with a node, says which run holds it and which run waits', async () => {
      expect(await longhaul('nodes')).toMatch(/No node has reported.*longhaul up/);
      const stage = await PoolStage.open(temporal);
      await stage.node('local');
      const held = gate();
      const [holder, waiter] = [uniqueScript('a'), uniqueScript('b')];
      holder.before = (call) => (call === 'update 1' ? held.wait() : undefined);
      const first = await stage.run(holder);
      await held.reached;
      const second = await stage.run(waiter);
      await until(second, ({ phase }) => phase === 'placing');
      const why = `node local is held by train/${holder.outline.run}`;
      const { leases, queue } = JSON.parse(await longhaul('nodes', '--json')) as PoolView;
      expect(leases).toMatchObject([{ run: holder.outline.run, node: 'local', project: 'tests' }]);
      expect(queue).toMatchObject([{ run: waiter.outline.run, priority: 0, why }]);
      expect(await longhaul('nodes')).toMatch(new RegExp(`local +up .*${holder.outline.run} \\(`));
      expect(await longhaul('status', waiter.outline.run)).toContain(`waits for a node: ${why}`);
      await Promise.all([first.terminate(), second.terminate()]);
      held.release();
      await stage.close();
    });

    it('doctor counts the nodes that are up, and fails if the only one is lost', async () => {
      const nodes = async (): Promise<unknown> => {
        const checks = JSON.parse(await longhaul('doctor', '--json')) as { check: string }[];
        return checks.find(({ check }) => check === 'nodes');
      };
      const detail = (text: string): string => expect.stringContaining(text) as string;
      const stage = await PoolStage.open(temporal);
      const local = await stage.node('only');
      await stage.until(({ nodes: known }) => known.every(({ id }) => id === 'only'));
      expect(await nodes()).toMatchObject({ ok: true, detail: '1 up' });
      await local.vanish();
      await stage.until(({ nodes: [node] }) => node?.state === 'lost');
      expect(await nodes()).toMatchObject({ ok: false, detail: detail('only is lost') });
      await stage.close();
    });
  });
});
