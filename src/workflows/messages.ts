// What one may say to a workflow and ask of it. Clients import these definitions; names are what `temporal` takes.
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type { ControlState, RunStatus } from '../activities/contracts.js';
import type { Hyperparameters, Numerics } from '../spec/records.js';

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

/** Sent by a node worker every few seconds. */
export interface NodeReport {
  id: string;
  /** Absent until the engine has told it. */
  numerics?: Numerics;
}

export interface KnownNode extends NodeReport {
  /** Milliseconds since the epoch, by the Temporal server's clock. */
  lastSeen: number;
}

export const nodeUpSignal = defineSignal<[NodeReport]>('nodeUp');
export const nodeDownSignal = defineSignal<[{ id: string }]>('nodeDown');
/** In order of their ids. */
export const nodesQuery = defineQuery<KnownNode[]>('nodes');

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
