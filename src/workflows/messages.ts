// The messages and queries of the workflows. Clients import these definitions; `temporal` takes the names.
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type { ControlState, LeaseRequest, RunStatus } from '../activities/contracts.js';
import type { Hyperparameters } from '../spec/records/control-records.js';
import type { Numerics } from '../spec/records/numerics.js';

/** Answers are given when the change is stored, not when it takes effect (R21). */
export const pauseUpdate = defineUpdate<ControlState>('pause');
/** Cuts off the episodes in flight in place of waiting for the step's end. */
export const pauseNowUpdate = defineUpdate<ControlState>('pauseNow');
export const resumeUpdate = defineUpdate<ControlState>('resume');
export const setHyperparametersUpdate = defineUpdate<ControlState, [Hyperparameters]>('setHyperparameters');
export const stopAfterUpdate = defineUpdate<ControlState, [StopAfter]>('stopAfter');
export const checkpointNowUpdate = defineUpdate<ControlState>('checkpointNow');
export const statusQuery = defineQuery<RunStatus>('status');

export interface StopAfter {
  step: number;
}

/** Between two reports of a node. */
export const nodeReportIntervalMs = 5_000;
/** A node that has been silent for this long is lost: one report may be missed or late, and a death is known after two intervals. */
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
  /** Leases that the node may hold at once. */
  places: number;
}

/** A report of one instance says nothing about a newer instance with the same id. */
export interface NodeInstance {
  id: string;
  instance: string;
}

export interface GrantedLease {
  lease: string;
  node: string;
}

/**
 * `released`: the pool ended the lease for another reason: the node offers other numerics now, or an execution of the run that did not know
 * of the lease asked for another.
 */
export interface RevokedLease extends GrantedLease {
  reason: 'lost' | 'draining' | 'released';
}

/** Why a request is not granted yet. */
export interface WaitingLease {
  lease: string;
  /** `unfit`: nodes are alive, and none has the run's numerics (R18). */
  cause: 'none' | 'busy' | 'unfit';
  why: string;
}

/** Answer of the query `pool`: all in the order of their ids, the queue in the order in which it is served. */
export interface PoolView {
  nodes: (NodeReport & {
    /** Milliseconds since the epoch, by the Temporal server's clock; so are all times here. */
    lastSeen: number;
    state: 'up' | 'draining' | 'lost';
  })[];
  leases: { lease: string; run: string; project: string; node: string; since: number }[];
  queue: { lease: string; run: string; project: string; priority: number; since: number; why: string }[];
}

/** To the pool, by nodes; all of them may come twice and in any order. */
export const nodeUpSignal = defineSignal<[NodeReport]>('nodeUp');
/** The worker ends soon: it is given no new lease, and those that it holds move. */
export const nodeDrainingSignal = defineSignal<[NodeInstance]>('nodeDraining');
/** The worker has left. */
export const nodeDownSignal = defineSignal<[NodeInstance]>('nodeDown');
/** To the pool, by runs. */
export const requestSignal = defineSignal<[LeaseRequest]>('request');
export const releaseSignal = defineSignal<[{ lease: string }]>('release');
/** A run saw its work time out on the node; the lease ends, another one has to be asked for. */
export const suspectSignal = defineSignal<[GrantedLease]>('suspect');
/** To a run, by the pool. */
export const grantedSignal = defineSignal<[GrantedLease]>('granted');
export const revokedSignal = defineSignal<[RevokedLease]>('revoked');
export const waitingSignal = defineSignal<[WaitingLease]>('waiting');
/** To a run that asked `atOnce`, or by a name that has ended. */
export const refusedSignal = defineSignal<[{ lease: string }]>('refused');
export const poolQuery = defineQuery<PoolView>('pool');

export const orchestratorQueue = 'longhaul';

/** What needs a node's engine. */
export function engineQueue(node: string): string {
  return `longhaul-node.${node}.gpu`;
}

/** Uploads of the same node: an hour's collect must not block them. */
export function transferQueue(node: string): string {
  return `longhaul-node.${node}.io`;
}

export const defaultPoolId = 'nodes/default';
/** The first message to the pool starts it. */
export const poolSummary = 'knows the nodes, and says which run works where';
