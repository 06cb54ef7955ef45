// The spec of a fork that changes nothing: its parent's, with the settings that were live at the step where it begins.
import { settingsUnder } from './live-settings.js';
import type { ControlState } from '../../spec/records/control-records.js';
import type { ForkSpec, RunSpec } from '../../spec/run-spec.js';
import { foldControl, readControl } from '../../store/runs/control-records.js';
import type { ObjectStore } from '../../store/objects/object-store.js';
import { openRunView } from '../../store/runs/quarantine.js';
import { readPlan, readRun, readUpdateIfAny, timelineOf } from '../../store/runs/run-records.js';

/** Control records are a run's own: without this a fork would begin with the settings of its parent's first step. */
export async function forkSpec(store: ObjectStore, name: string, fork: ForkSpec): Promise<RunSpec> {
  const { spec } = await readRun(store, fork.run);
  const goesOnAfter = { run: fork.run, step: fork.rebase?.to ?? fork.step };
  return { ...spec, ...settingsUnder(spec, await controlAt(store, goesOnAfter)), name, fork };
}

/** The control that the step's plan has folded; none for a step of an ancestor, because the run's own spec holds its settings. */
async function controlAt(store: ObjectStore, { run, step }: ForkSpec): Promise<ControlState> {
  const own = step > 0 && (await timelineOf(store, run, step)) === run;
  const update = own ? await readUpdateIfAny(store, run, step) : null;
  if (!update) return foldControl([]);
  const { record: plan } = await readPlan(await openRunView(store, run), run, step, update.identity.plan);
  const control = await readControl(store, run);
  return foldControl(control.slice(0, plan.control));
}
