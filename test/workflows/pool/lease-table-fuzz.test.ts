// The pool's decisions if messages come late, twice and in any order.
import { describe, expect, it } from 'vitest';
import type { LeaseRequest } from '../../../src/activities/contracts.js';
import {
  LeaseTable,
  type LeaseTableState,
  type PoolMessage,
} from '../../../src/workflows/pool/lease-table.js';
import type { NodeReport } from '../../../src/workflows/messages.js';
import { seededRandom } from '../../chaos/random.js';
import { node, request } from './pool-inputs.js';

/** Simulates runs, nodes that fail, and messages that come late, twice and in any order. */
class World {
  table = new LeaseTable();
  now = 0;
  readonly held = new Map<string, string>();
  readonly wanted = new Map<string, LeaseRequest>();
  private readonly late: (() => void)[] = [];
  private readonly instances = new Map<string, number>();
  private readonly silent = new Set<string>();
  /** How often each run has continued as new. */
  private readonly executions = new Map<string, number>();
  private names = 0;

  constructor(
    private readonly pick: (below: number) => number,
    private readonly nodes: readonly NodeReport[],
  ) {}

  step(): void {
    this.now += this.pick(3_000);
    const at = this.nodes[this.pick(this.nodes.length)]!;
    const instance = `${at.id}/${this.instances.get(at.id) ?? 0}`;
    const run = `run-${this.pick(5)}`;
    const acts: (() => void)[] = [
      () => this.ask(run),
      () => this.ask(run),
      () => this.giveBack(run),
      () => this.silent.has(at.id) || this.deliver(() => this.table.up({ ...at, instance }, this.now)),
      () => void (this.silent.has(at.id) ? this.silent.delete(at.id) : this.silent.add(at.id)),
      () => {
        this.instances.set(at.id, (this.instances.get(at.id) ?? 0) + 1);
        this.deliver(() => this.table.down({ id: at.id, instance }, this.now));
      },
      () => this.deliver(() => this.table.draining({ id: at.id, instance }, this.now)),
      () => this.late.splice(this.pick(this.late.length + 1), 1).forEach((deliver) => deliver()),
      () => this.continueOnCurrentBuild(),
      () => void this.executions.set(run, (this.executions.get(run) ?? 0) + 1),
    ];
    acts[this.pick(acts.length)]!();
    this.table.passed(this.now);
    this.hear();
  }

  /** If nodes report and runs release, each request that is still wanted is granted in the end. */
  settle(): void {
    for (let round = 0; round < 40 && this.wanted.size > 0; round++) {
      for (const deliver of this.late.splice(0)) deliver();
      this.now += 1_000;
      for (const at of this.nodes) {
        const instance = `${at.id}/after`;
        this.table.up({ ...at, instance }, this.now);
      }
      this.hear();
      const [held] = this.held.keys();
      if (held !== undefined && this.wanted.size > 0) this.end(held);
      this.hear();
    }
  }

  /** Delivers a message on time, late, or both. */
  private deliver(what: () => void): void {
    const how = this.pick(4);
    if (how !== 0) what();
    if (how <= 1) this.late.push(what);
  }

  private ask(run: string): void {
    if ([...this.wanted.values()].some((wanted) => wanted.run === run)) return;
    const asked = this.wants(run, { project: `project-${run.at(-1)}`, priority: this.pick(2) });
    this.deliver(() => void this.table.request(asked, this.now));
  }

  private wants(run: string, changes: Partial<LeaseRequest> = {}): LeaseRequest {
    const lease = `${run}/${++this.names}`;
    const theirs = [...this.held.keys(), ...this.wanted.keys(), lease];
    const knows = theirs.filter((one) => one.startsWith(`${run}/`));
    const asker = { execution: `${run} ${this.executions.get(run) ?? 0}`, knows };
    const asked = request(run, { lease, asker, ...changes });
    this.wanted.set(lease, asked);
    return asked;
  }

  private giveBack(run: string): void {
    const [lease] = [...this.held.keys()].filter((held) => held.startsWith(`${run}/`));
    if (lease !== undefined) this.end(lease);
  }

  private end(lease: string): void {
    this.held.delete(lease);
    this.deliver(() => this.table.release({ lease }, this.now));
  }

  private continueOnCurrentBuild(): void {
    const carried = JSON.parse(JSON.stringify(this.table.state())) as LeaseTableState;
    const next = new LeaseTable(carried);
    expect(next.state()).toEqual(this.table.state());
    expect(next.view()).toEqual(this.table.view());
    this.table = next;
  }

  private hear(): void {
    for (const message of this.table.messages()) this.heard(message);
  }

  private heard({ signal, say }: PoolMessage): void {
    if (signal === 'granted') {
      if (this.wanted.delete(say.lease)) this.held.set(say.lease, say.node);
      else if (!this.held.has(say.lease)) this.end(say.lease);
    }
    const isLost = signal === 'revoked' && this.held.delete(say.lease);
    const isRefused = (signal === 'revoked' || signal === 'refused') && this.wanted.delete(say.lease);
    if (isLost || isRefused) this.table.request(this.wants(say.lease.split('/')[0]!), this.now);
  }
}

describe('with messages that come late, twice and in any order', () => {
  it.each(Array.from({ length: 30 }, (_, seed) => seed))(
    'no node holds too many leases, no request is lost, and the state can be carried over: seed %i',
    (seed) => {
      const { below } = seededRandom(seed);
      const nodes = [node('n1'), node('n2', { places: 2 }), node('n3')];
      const world = new World(below, nodes);
      for (let step = 0; step < 300; step++) {
        world.step();
        const { leases, nodes: known, queue } = world.table.view();
        for (const { id, places } of nodes)
          expect(leases.filter((lease) => lease.node === id).length).toBeLessThanOrEqual(places);
        for (const { id, state } of known)
          if (state !== 'up') expect(leases.filter((lease) => lease.node === id)).toEqual([]);
        const names = [...leases, ...queue].map(({ lease }) => lease);
        expect(new Set(names).size).toBe(names.length);
        // Every lease that a run believes it holds is a lease that the pool has granted to it.
        for (const [lease, at] of world.held)
          expect(leases.find((one) => one.lease === lease)?.node ?? at).toBe(at);
      }
      world.settle();
      expect([...world.wanted.keys()]).toEqual([]);
    },
  );
});
