// recordControl: writes an accepted Update as a record before the Update is answered (R21). If the Update's id is already recorded, nothing
// is written.
import type { ControlChange, ControlRecord, ControlState } from '../../spec/records/control-records.js';
import { controlFolder } from '../../store/record-keys.js';
import { checkOwner } from '../../store/runs/owners.js';
import { foldedControl, readControl } from '../../store/runs/control-records.js';
import { appendSequence } from '../../store/records/records.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';

export async function recordControl(
  deps: OrchestratorDeps,
  input: { run: string; owner: number; updateId: string; change: ControlChange },
): Promise<ControlState> {
  const { store } = deps;
  await checkOwner(store, input.run, input.owner);
  // `make` sees records that another attempt wrote in the meantime, so two attempts for one Update write one record.
  let already = false;
  const make = (next: number, existing: readonly ControlRecord[]): ControlRecord => {
    const found = existing.find((record) => record.update_id === input.updateId);
    already = found !== undefined;
    return (
      found ?? {
        schema: 'longhaul.control/3',
        n: next,
        update_id: input.updateId,
        change: input.change,
        observed: { at: new Date().toISOString() },
      }
    );
  };
  const known = await readControl(store, input.run);
  const { n } = await appendSequence(store, controlFolder(input.run), 'control', make, known);
  if (!already) deps.log(`${input.run}: control ${n} ${JSON.stringify(input.change)}`);
  return foldedControl(store, input.run);
}
