// The spec of a fork without changes: its parent's spec, with the settings in force at the step where the fork begins.
import { settingsUnder } from './step-settings.js';
import type { ControlState } from '../../spec/records/control-records.js';
import type { ForkSpec, RunSpec } from '../../spec/run-spec.js';
import { foldControl, readControl } from '../../store/runs/control-records.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { readPlan, readRun, readUpdateIfAny, timelineOf } from '../../store/runs/run-records.js';

/**
 * A fork does not inherit control records, so changed settings must enter its spec. Otherwise it would begin with its parent's first
 * settings.
 */
export async function forkSpec(store: ObjectStore, name: string, fork: ForkSpec): Promise<RunSpec> {
  const { spec } = await readRun(store, fork.run);
  const goesOnAfter = { run: fork.run, step: fork.rebase?.to ?? fork.step };
  return { ...spec, ...settingsUnder(spec, await controlAt(store, goesOnAfter)), name, fork };
}

/** The control state at the step's plan. Empty for a step of an ancestor: the run's own spec already holds those settings. */
async function controlAt(store: ObjectStore, { run, step }: ForkSpec): Promise<ControlState> {
  const own = step > 0 && (await timelineOf(store, run, step)) === run;
  const update = own ? await readUpdateIfAny(store, run, step) : null;
  if (!update) return foldControl([]);
  const { record: plan } = await readPlan(await openRunView(store, run), run, step, update.identity.plan);
  const control = await readControl(store, run);
  return foldControl(control.slice(0, plan.control));
}
