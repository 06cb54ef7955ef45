// gateTasks: plays solutions on their environments, one record a task and gate. A gate that has a record is not played again.
import { checkGate, type GateInput } from '../../data/preparation/gates.js';
import { solvedTasks, taskName } from '../../data/preparation/solved-tasks.js';
import type { EnvironmentBackend } from '../../environments/environment.js';
import type { FailureLedger } from '../../episode/failure-ledger.js';
import { parseDatasetSpec } from '../../spec/dataset-spec.js';
import {
  gateNames,
  type GatheredRecord,
  type GateName,
  type GateRecord,
} from '../../spec/records/preparation-records.js';
import type { Digest } from '../../spec/records/parts.js';
import { gatheredKey, gateKey } from '../../store/record-keys.js';
import { recordDigest } from '../../store/records/canonical.js';
import { adoptOrCreate, readRecord, requireRecord } from '../../store/records/records.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { GatedTasks } from '../data-contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';
import { type DataScope, playEach } from './played-environments.js';

type Deps = Pick<OrchestratorDeps, 'store'>;

/** After so many tasks in a row without a grade, the environment is at fault, not the tasks. */
const maxUngraded = 5;

/** An environment that answers has graded nothing. The workflow knows this error's name as one of the fatal failures. */
class NothingGraded extends Error {
  override readonly name = 'NothingGraded';
}

/**
 * Checks the tasks `from`, …, `to` − 1 that have a solution. Throws `EnvironmentsUnavailable`, or `NothingGraded` if an environment gives no
 * grade to 5 tasks in a row; these tasks get no record.
 */
export async function gateTasks(
  { store }: Deps,
  input: { spec: unknown; from: number; to: number },
  scope: DataScope,
): Promise<GatedTasks> {
  const spec = parseDatasetSpec(input.spec);
  const gathered = await requireRecord(store, gatheredKey(spec.name, spec.version), 'gathered');
  const solved = await solvedTasks(store, gathered, input.from, input.to);
  const counts = { passed: 0, failed: 0 };
  const ungraded = new Map<string, Ungraded[]>();
  const record = (one: Ungraded): Promise<GateRecord> => recordGate({ store }, one, scope);
  await playEach({ ...spec, store }, solved, scope, async ({ task, solution }, { backend, ledgerOf }) => {
    const held = ungraded.get(task.env_key) ?? [];
    ungraded.set(task.env_key, held);
    const result = await gatesOf({ store, gathered, backend, ledgerOf, scope, task, solution });
    counts[result.passed ? 'passed' : 'failed'] += 1;
    scope.progress({ ...counts });
    if (result.ungraded) held.push(result.ungraded);
    else for (const one of held.splice(0)) await record(one);
    if (held.length >= maxUngraded) throw nothingGraded(task.env_key, held);
  });
  for (const one of [...ungraded.values()].flat()) await record(one);
  return counts;
}

function nothingGraded(envKey: string, held: readonly Ungraded[]): NothingGraded {
  const reason = held.at(-1)?.record.reason ?? 'no reason is known';
  return new NothingGraded(
    `the environment ${envKey} gave no grade to ${held.length} tasks in a row (${reason}): repair it, then start the preparation again`,
  );
}

/** A gate without a grade. It is recorded only after its environment has graded another task. */
interface Ungraded {
  key: string;
  record: GateRecord;
}

interface TaskGates extends Omit<GateInput, 'ledger'> {
  store: Deps['store'];
  gathered: GatheredRecord;
  backend: EnvironmentBackend;
  ledgerOf: (gate: GateName) => FailureLedger;
  scope: DataScope;
}

/** Checks a task at its gates in order; it stops after the first gate that the task fails. */
async function gatesOf(input: TaskGates): Promise<{ passed: boolean; ungraded?: Ungraded }> {
  const { store, gathered, task } = input;
  const digest = recordDigest(gathered);
  let first: GateInput['first'];
  for (const gate of gateNames) {
    const key = gateKey(gathered.name, gathered.version, taskName(task.task_key), gate);
    let record = await readRecord(store, key, 'gate');
    if (record === null) {
      record = await playedGate({ ...input, ...(first ? { first } : {}) }, gate, digest);
      if (record.value === null) return { passed: false, ungraded: { key, record } };
      record = await recordGate({ store }, { key, record }, input.scope);
    }
    if (!record.passed) return { passed: false };
    first ??= record;
  }
  return { passed: true };
}

async function playedGate(input: TaskGates, gate: GateName, gathered: Digest): Promise<GateRecord> {
  const begun = performance.now();
  const ledger = input.ledgerOf(gate);
  const { repeats } = input.gathered.spec;
  const asked = { ...input, ledger, ...(repeats === undefined ? {} : { repeats }) };
  const { explanation, ...result } = await checkGate(input.backend, gate, asked, input.scope.signal);
  return {
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
}

async function recordGate({ store }: Deps, { key, record }: Ungraded, scope: DataScope): Promise<GateRecord> {
  await stoppingPoint('gate-played');
  const stored = await adoptOrCreate(store, key, 'gate', record);
  scope.recorded();
  return stored.record;
}
