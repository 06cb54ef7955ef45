// The alerts of a run for `status` and for a run's end, whether a channel is told of them or not.
import { setTimeout as delay } from 'node:timers/promises';
import type { RunStatus } from '../../activities/contracts.js';
import { alertsOf, type AlertStanding, restAside, stalledSince } from '../../rl/alerts.js';
import { readControl } from '../../store/runs/control-records.js';
import { inParallel } from '../../base/in-parallel.js';
import { ownersFolder } from '../../store/objects/layout.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { readSequence } from '../../store/records/records.js';
import { lastCommittedStep, readRun, readUpdate } from '../../store/runs/run-records.js';
import { printable } from '../printable.js';

/** A run of weeks has more steps than a person waits for: alerts are of the newest, and the report has all. */
const newestSteps = 1_000;
const storeWithinMs = 10_000;

/** Nothing, and a line on standard error, where the store cannot be read in time: a status is known without it. `status`: of a run that goes on, else null. */
export async function alertsWithin(
  open: () => Promise<ObjectStore | null>,
  run: string,
  status: Pick<RunStatus, 'phase' | 'blocked'> | null,
): Promise<AlertStanding[]> {
  const read = async (): Promise<AlertStanding[]> => {
    const store = await open();
    return store ? readAlerts(store, run, status) : [];
  };
  const unread = (why: string): AlertStanding[] => {
    console.error(printable(`the alerts of ${run} are not known: ${why}`));
    return [];
  };
  return Promise.race([
    read().catch((error: Error) => unread(error.message)),
    delay(storeWithinMs, null, { ref: false }),
  ]).then((alerts) => alerts ?? unread(`the store did not answer within ${storeWithinMs / 1000} s`));
}

async function readAlerts(
  stored: ObjectStore,
  run: string,
  status: Pick<RunStatus, 'phase' | 'blocked'> | null,
): Promise<AlertStanding[]> {
  const store = await openRunView(stored, run);
  const { lineage, observed } = await readRun(store, run);
  const last = await lastCommittedStep(store, run);
  const first = Math.max((lineage?.step ?? 0) + 1, last - newestSteps + 1);
  const steps = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  const updates = await inParallel(steps, (step) => readUpdate(store, run, step));
  const { alerts, watch } = alertsOf(updates, { startedAt: observed.started_at });
  if (!status || status.phase === 'paused' || status.blocked) return alerts;
  const [control, owners] = await Promise.all([
    readControl(store, run),
    readSequence(store, ownersFolder(run), 'owner'),
  ]);
  const stalled = stalledSince(restAside(watch, control, owners), last, new Date().toISOString());
  return stalled ? [{ ...stalled, steps: [last], holds: true }, ...alerts] : alerts;
}
