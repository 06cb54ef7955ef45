// gateTasks: plays solutions on their environments, one record a task and gate. A gate that has a record is not played again.
import { checkGate, type GateInput } from '../../data/gates.js';
import { solvedTasks, taskName } from '../../data/solved-tasks.js';
import type { EnvironmentBackend } from '../../environments/environment.js';
import { parseDatasetSpec } from '../../spec/dataset-spec.js';
import {
  gateNames,
  type GatheredRecord,
  type GateName,
  type GateRecord,
} from '../../spec/records/manifests.js';
import type { Digest } from '../../spec/records/parts.js';
import { gatheredKey, gateKey } from '../../store/objects/layout.js';
import { recordDigest } from '../../store/records/canonical.js';
import { adoptOrCreate, readRecord, requireRecord } from '../../store/records/records.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { GatedTasks } from '../data-contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { type DataScope, playEach } from './played-environments.js';

type Deps = Pick<OrchestratorDeps, 'store'>;

export async function gateTasks(
  { store }: Deps,
  input: { spec: unknown; from: number; to: number },
  scope: DataScope,
): Promise<GatedTasks> {
  const spec = parseDatasetSpec(input.spec);
  const gathered = await requireRecord(store, gatheredKey(spec.name, spec.version), 'gathered');
  const solved = await solvedTasks(store, gathered);
  const counts = { passed: 0, failed: 0 };
  await playEach(spec, solved.slice(input.from, input.to), scope, async (one, backend) => {
    const passed = await gatesOf({ store, gathered, backend, scope, ...one });
    counts[passed ? 'passed' : 'failed'] += 1;
    scope.progress({ ...counts });
  });
  return { ...counts, solved: solved.length };
}

interface TaskGates extends GateInput {
  store: Deps['store'];
  gathered: GatheredRecord;
  backend: EnvironmentBackend;
  scope: DataScope;
}

/** True if the task passes all gates. The first gate that it fails is the last that it is checked at. */
async function gatesOf(input: TaskGates): Promise<boolean> {
  const { store, gathered, task } = input;
  const digest = recordDigest(gathered);
  let first: GateInput['first'];
  for (const gate of gateNames) {
    const key = gateKey(gathered.name, gathered.version, taskName(task.task_key), gate);
    const record =
      (await readRecord(store, key, 'gate')) ??
      (await recordGate(key, { ...input, ...(first ? { first } : {}) }, gate, digest));
    if (!record.passed) return false;
    first ??= record;
  }
  return true;
}

async function recordGate(
  key: string,
  input: TaskGates,
  gate: GateName,
  gathered: Digest,
): Promise<GateRecord> {
  const begun = performance.now();
  const { explanation, ...result } = await checkGate(input.backend, gate, input, input.scope.signal);
  const record: GateRecord = {
    schema: 'longhaul.gate/1',
    gathered,
    task_key: input.task.task_key,
    gate,
    ...result,
    observed: {
      at: new Date().toISOString(),
      seconds: Math.round(performance.now() - begun) / 1000,
      ...(explanation === undefined ? {} : { explanation }),
    },
  };
  await stoppingPoint('gate-played');
  const stored = await adoptOrCreate(input.store, key, 'gate', record);
  input.scope.recorded();
  return stored.record;
}
