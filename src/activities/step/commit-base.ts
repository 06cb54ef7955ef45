// commitBase: records the base model as state 0, like the state of every other step (R5).
import type { NodeDeps } from '../node-deps.js';
import { currentScope } from '../attempt/scope.js';
import type { BaseRecord } from '../../spec/records/update.js';
import type { Digest } from '../../spec/records/parts.js';
import { updateKey } from '../../store/record-keys.js';
import { checkOwner } from '../../store/runs/owners.js';
import { readRecord, recordFunction } from '../../store/records/records.js';

export async function commitBase(
  deps: NodeDeps,
  input: { run: string; owner: number },
): Promise<{ state: Digest }> {
  const { store, holder } = deps;
  await checkOwner(store, input.run, input.owner);
  const key = updateKey(input.run, 0);
  const existing = await readRecord(store, key, 'base');
  if (existing) return { state: existing.identity.state };
  const { record } = await deps.runs.get(input.run);
  const { state, weights, parameters } = await holder.holdBase(record, currentScope());
  const engine = await holder.engine.info();
  const base: BaseRecord = {
    schema: 'longhaul.base/1',
    identity: {
      run: input.run,
      step: 0,
      base_model: record.base_model,
      state,
      ...(weights ? { weights } : {}),
      numerics: engine.numerics,
    },
    observed: {
      engine: { build: engine.build, incarnation: engine.incarnation },
      committed_at: new Date().toISOString(),
      ...(parameters ? { parameters } : {}),
    },
  };
  await recordFunction(store, key, 'base', base);
  return { state };
}
