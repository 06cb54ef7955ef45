// recordControl: an accepted Update becomes a record before it is answered (R21). A known Update id means done.
import type { ControlChange, ControlState } from '../spec/records.js';
import { controlFolder } from '../store/layout.js';
import { appendSequence, readSequence } from '../store/records.js';
import { checkOwner, foldControl } from '../store/run-records.js';
import type { OrchestratorDeps } from './orchestrator-deps.js';

export async function recordControl(
  deps: OrchestratorDeps,
  input: { run: string; owner: number; updateId: string; change: ControlChange },
): Promise<ControlState> {
  const { store } = deps;
  const folder = controlFolder(input.run);
  await checkOwner(store, input.run, input.owner);
  const records = await readSequence(store, folder, 'control');
  if (records.some((record) => record.update_id === input.updateId)) return foldControl(records);
  const written = await appendSequence(store, folder, 'control', (n) => ({
    schema: 'longhaul.control/1',
    n,
    update_id: input.updateId,
    change: input.change,
    observed: { at: new Date().toISOString() },
  }));
  deps.log(`${input.run}: control ${written.n} ${JSON.stringify(input.change)}`);
  return foldControl(await readSequence(store, folder, 'control'));
}
