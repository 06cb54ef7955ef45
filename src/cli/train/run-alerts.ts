// The alerts of a run, for `status` and for the end of a run. They need no Slack channel.
import type { RunStatus } from '../../activities/contracts.js';
import { within } from '../../workers/follower/deadlines.js';
import { alertsOf, type AlertStanding, restAside, stalledSince } from '../../rl/alerts.js';
import type { UpdateRecord } from '../../spec/records/update.js';
import { readControl } from '../../store/runs/control-records.js';
import { faultsAfter, noFaults, projectFaults } from '../../store/runs/fault-figures.js';
import { ownersFolder } from '../../store/record-keys.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { readSequence } from '../../store/records/records.js';
import { lastCommittedStep, readRun, readUpdates } from '../../store/runs/run-records.js';
import { printable } from '../output.js';

const storeWithinMs = 10_000;
/** Updates to read before the time limit starts again. A long run may take longer in all, but a store that hangs is noticed. */
const pageSteps = 256;

/**
 * Alerts of a run. Empty, with a line on standard error, if the store does not answer within `withinMs`: the rest of the status does not
 * need them. `status`: null for an ended run.
 */
export async function alertsWithin(
  open: () => Promise<ObjectStore | null>,
  run: string,
  status: Pick<RunStatus, 'phase' | 'blocked'> | null,
  withinMs = storeWithinMs,
): Promise<AlertStanding[]> {
  const forever = new AbortController().signal;
  const answered: Answered = (answer) => within(withinMs, 'the store', () => answer, forever);
  try {
    const store = await answered(open());
    return store ? await readAlerts(store, run, status, answered) : [];
  } catch (error) {
    console.error(printable(`the alerts of ${run} cannot be read: ${(error as Error).message}`));
    return [];
  }
}

/** Throws if the answer comes too late. */
type Answered = <T>(answer: Promise<T>) => Promise<T>;

/** Reads the whole run: the report and Slack judge an alert by all steps before it, and this function must agree with them. */
async function readAlerts(
  stored: ObjectStore,
  run: string,
  status: Pick<RunStatus, 'phase' | 'blocked'> | null,
  answered: Answered,
): Promise<AlertStanding[]> {
  const store = await answered(openRunView(stored, run));
  const record = await answered(readRun(store, run));
  const last = await answered(lastCommittedStep(store, run));
  const [control, owners] = await answered(
    Promise.all([readControl(store, run), readSequence(store, ownersFolder(run), 'owner')]),
  );
  const updates: UpdateRecord[] = [];
  for (let first = (record.lineage?.step ?? 0) + 1; first <= last; first += pageSteps)
    updates.push(...(await answered(readUpdates(store, run, first, Math.min(last, first + pageSteps - 1)))));
  // The alert of a lost node holds for one step only, so the attempts of older steps need not be read.
  const newest = updates.splice(-pageSteps);
  const before = updates.at(-1);
  const totals = before ? faultsAfter(before) : noFaults(record);
  updates.push(...(await answered(projectFaults(store, { record, control, owners }, totals, newest))));
  const { alerts, watch } = alertsOf(updates, { startedAt: record.observed.started_at });
  if (!status || status.phase === 'paused' || status.blocked) return alerts;
  const stalled = stalledSince(restAside(watch, control, owners), last, new Date().toISOString());
  return stalled ? [{ ...stalled, steps: [last], holds: true }, ...alerts] : alerts;
}
