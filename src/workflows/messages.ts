// The messages and queries of the workflows. Clients import these definitions; the `temporal` command uses their names.
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type { ControlState, LeaseRequest, RunStatus } from '../activities/contracts.js';
import type { Hyperparameters } from '../spec/records/control-records.js';
import type { Numerics } from '../spec/records/numerics.js';

/** An Update is answered when its change is stored, not when the change takes effect (R21). */
export const pauseUpdate = defineUpdate<ControlState>('pause');
/** Cuts off the episodes in flight instead of waiting for the end of the step. */
export const pauseNowUpdate = defineUpdate<ControlState>('pauseNow');
export const resumeUpdate = defineUpdate<ControlState>('resume');
export const setHyperparametersUpdate = defineUpdate<ControlState, [Hyperparameters]>('setHyperparameters');
export const stopAfterUpdate = defineUpdate<ControlState, [StopAfter]>('stopAfter');
export const checkpointNowUpdate = defineUpdate<ControlState>('checkpointNow');
export const statusQuery = defineQuery<RunStatus>('status');

export interface StopAfter {
  step: number;
}

/** Time between two reports of a node. */
export const nodeReportIntervalMs = 5_000;
/** A node that has been silent for this long counts as lost: one report may be late, and a death shows within two intervals. */
export const nodeLostAfterMs = 1.8 * nodeReportIntervalMs;

/** Sent by a node worker when it starts to serve, and then every `nodeReportIntervalMs`. */
export interface NodeReport {
  id: string;
  /** Random id of the worker process. */
  instance: string;
  host: string;
  /** Absent until the engine has reported them. */
  numerics?: Numerics;
  gpu: { name: string; memory_bytes: number } | null;
  memory_bytes: number;
  /** Number of leases that the node may hold at once. */
  places: number;
}

/** One worker process of a node: what one instance reports says nothing about a newer instance of the same node. */
export interface NodeInstance {
  id: string;
  instance: string;
}

export interface GrantedLease {
  lease: string;
  node: string;
}

/**
 * `released`: the pool ended the lease for another reason. For example, the node now has other numerics, or a later execution of the run,
 * which did not know this lease, has asked for a node.
 */
export interface RevokedLease extends GrantedLease {
  reason: 'lost' | 'draining' | 'released';
}

/** Why a request is not granted yet. */
export interface WaitingLease {
  lease: string;
  /** `unfit`: nodes are alive, but none of them has the run's numerics (R18). */
  cause: 'none' | 'busy' | 'unfit';
  why: string;
  /** What a node would need to be usable; absent unless `unfit`. */
  remedy?: string;
}

/** The answer of the query `pool`. Nodes and leases are ordered by id, the queue by the order in which it is served. */
export interface PoolView {
  nodes: (NodeReport & {
    /** Milliseconds since the epoch on the Temporal server's clock, like all times here. */
    lastSeen: number;
    state: 'up' | 'draining' | 'lost';
  })[];
  leases: { lease: string; run: string; project: string; node: string; since: number }[];
  queue: { lease: string; run: string; project: string; priority: number; since: number; why: string }[];
}

/** Signals from nodes to the pool. Each may arrive twice and in any order. */
export const nodeUpSignal = defineSignal<[NodeReport]>('nodeUp');
/** The worker will end soon: it gets no new lease, and runs that hold its leases move to other nodes. */
export const nodeDrainingSignal = defineSignal<[NodeInstance]>('nodeDraining');
/** The worker has left. */
export const nodeDownSignal = defineSignal<[NodeInstance]>('nodeDown');
/** Signals from runs to the pool. */
export const requestSignal = defineSignal<[LeaseRequest]>('request');
export const releaseSignal = defineSignal<[{ lease: string }]>('release');
/** The run's work on the node timed out. The pool ends the lease; the run has to ask for another one. */
export const suspectSignal = defineSignal<[GrantedLease]>('suspect');
/** Signals from the pool to a run. */
export const grantedSignal = defineSignal<[GrantedLease]>('granted');
export const revokedSignal = defineSignal<[RevokedLease]>('revoked');
export const waitingSignal = defineSignal<[WaitingLease]>('waiting');
/** The pool refuses a request that asked `atOnce` and would have to wait, or a request under the name of an ended lease. */
export const refusedSignal = defineSignal<[{ lease: string }]>('refused');
export const poolQuery = defineQuery<PoolView>('pool');

export const orchestratorQueue = 'longhaul';

/** Task queue for the work that needs the node's engine. */
export function engineQueue(node: string): string {
  return `longhaul-node.${node}.gpu`;
}

/** Task queue for the node's uploads. It is separate because a `collectRollouts` of an hour must not block them. */
export function transferQueue(node: string): string {
  return `longhaul-node.${node}.io`;
}

export const defaultPoolId = 'nodes/default';
/** Summary of the pool's workflow, which the first message to the pool starts. */
export const poolSummary = 'knows the nodes, and decides which run uses which node';
