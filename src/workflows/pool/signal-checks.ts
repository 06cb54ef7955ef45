// Checks the shape of signals. Anybody may send one (`temporal workflow signal`): an error in a handler would fail the workflow task again
// and again, and a partly read message would corrupt the workflow's state.
import { log, setHandler, type SignalDefinition } from '@temporalio/workflow';
import type { LeaseRequest } from '../../activities/contracts.js';
import type { Numerics } from '../../spec/records/numerics.js';
import type { GrantedLease, NodeInstance, NodeReport, RevokedLease, WaitingLease } from '../messages.js';

type Check = (value: unknown) => boolean;

/** A check of each member; members that are not named here may be anything. */
export type Shape<T> = { readonly [Member in keyof Required<T>]: Check };

const text: Check = (value) => typeof value === 'string';
const number: Check = (value) => typeof value === 'number';
const texts: Check = (value) => Array.isArray(value) && value.every(text);

const optional =
  (check: Check): Check =>
  (value) =>
    value === undefined || check(value);

const nullable =
  (check: Check): Check =>
  (value) =>
    value === null || check(value);

const has =
  <T>(shape: Shape<T>): Check =>
  (value) =>
    unreadable(value, shape) === null;

const numerics = has<Numerics>({
  ...{ backend: text, version: number },
  ...{ service: optional(text), model: optional(text) },
});

export const nodeReport: Shape<NodeReport> = {
  ...{ id: text, instance: text, host: text, memory_bytes: number, places: number },
  ...{ numerics: optional(numerics), gpu: nullable(isObject) },
};

export const nodeInstance: Shape<NodeInstance> = { id: text, instance: text };

export const leaseRequest: Shape<LeaseRequest> = {
  ...{ workflowId: text, firstExecutionRunId: text, lease: text, run: text, project: text },
  ...{ priority: number, numerics: nullable(numerics), served: optional(text), backend: optional(text) },
  ...{ besides: texts, holding: optional(text) },
  atOnce: optional((value) => value === true),
  asker: optional(has<Required<LeaseRequest>['asker']>({ execution: text, knows: texts })),
};

export const leaseName: Shape<{ lease: string }> = { lease: text };
export const grantedLease: Shape<GrantedLease> = { ...leaseName, node: text };
export const revokedLease: Shape<RevokedLease> = { ...grantedLease, reason: text };
export const waitingLease: Shape<WaitingLease> = {
  ...leaseName,
  cause: text,
  why: text,
  remedy: optional(text),
};

/** Handles a signal; one of another shape is logged and changes nothing. */
export function hear<T>(signal: SignalDefinition<[T]>, shape: Shape<T>, heard: (say: T) => void): void {
  setHandler(signal, (say) => {
    const member = unreadable(say, shape);
    if (member === null) return heard(say);
    log.warn('A signal that cannot be read is ignored', { signal: signal.name, member });
  });
}

/** The first member that has the wrong shape; null if all are right. */
function unreadable<T>(say: unknown, shape: Shape<T>): string | null {
  const checks = Object.entries<Check>(shape);
  const wrong = checks.find(([member, check]) => !isObject(say) || !check(Reflect.get(say, member)));
  return wrong?.[0] ?? null;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
