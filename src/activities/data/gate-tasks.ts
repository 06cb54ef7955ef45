// gateTasks: plays solutions on their environments, one record a task and gate. A gate that has a record is not played again.
import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff } from '../../base/backoff.js';
import { keepSecret } from '../../base/known-secrets.js';
import { sha256Hex } from '../../base/sha256.js';
import { jsonItems } from '../../data/dataset-writer.js';
import { checkGate, type GateInput } from '../../data/gates.js';
import { readAsset } from '../../data/run-data.js';
import type { Solution } from '../../data/task-file.js';
import { type EnvironmentBackend, EnvironmentError } from '../../environments/environment.js';
import { createOpenEnvBackend } from '../../environments/openenv/openenv-backend.js';
import { serverOptionsOf } from '../../environments/openenv/server-options.js';
import { EnvironmentsUnavailable } from '../../episode/episode-loop.js';
import { type DatasetSpec, parseDatasetSpec } from '../../spec/dataset-spec.js';
import {
  gateNames,
  type GatheredRecord,
  type GateName,
  type GateRecord,
} from '../../spec/records/manifests.js';
import type { Digest } from '../../spec/records/parts.js';
import type { EnvironmentSpec } from '../../spec/run-spec.js';
import type { Task } from '../../spec/records/task.js';
import { gatheredKey, gateKey } from '../../store/objects/layout.js';
import { recordDigest } from '../../store/records/canonical.js';
import { adoptOrCreate, readRecord, requireRecord } from '../../store/records/records.js';
import type { AttemptScope } from '../../policy/attended.js';
import { stoppingPoint } from '../attempt/stopping-point.js';
import type { GatedTasks } from '../data-contracts.js';
import type { OrchestratorDeps } from '../orchestrator-deps.js';

/** How long a server may be away. */
const maxWaitMs = 10 * 60_000;
const callTimeoutMs = 60_000;
const pauses = [100, 2_000] as const;

type Deps = Pick<OrchestratorDeps, 'store'>;
type Scope = Pick<AttemptScope, 'signal' | 'progress' | 'recorded'>;

export async function gateTasks(
  { store }: Deps,
  input: { spec: unknown; from: number; to: number },
  scope: Scope,
): Promise<GatedTasks> {
  const spec = parseDatasetSpec(input.spec);
  const gathered = await requireRecord(store, gatheredKey(spec.name, spec.version), 'gathered');
  const tasks = await solvedTasks({ store }, gathered, input);
  const environments = new Map<string, GateInput[]>();
  for (const one of tasks)
    environments.set(one.task.env_key, [...(environments.get(one.task.env_key) ?? []), one]);
  const counts = { passed: 0, failed: 0 };
  const played = [...environments].map(async ([envKey, inputs]) => {
    const environment = environmentOf(spec, envKey);
    const backend = openBackend(environment, spec.gates.parallel);
    const next = inputs.values();
    const player = async (): Promise<void> => {
      for (const one of next) {
        const passed = await gatesOf({ store, gathered, backend, scope, ...one });
        counts[passed ? 'passed' : 'failed'] += 1;
        scope.progress({ ...counts });
      }
    };
    const players = Array.from({ length: Math.min(spec.gates.parallel, inputs.length) }, player);
    await Promise.all(players).finally(() => backend.close());
  });
  await Promise.all(played);
  return counts;
}

/** The tasks of these solutions, in the order of the file. */
async function solvedTasks(
  { store }: Deps,
  { files }: GatheredRecord,
  { from, to }: { from: number; to: number },
): Promise<GateInput[]> {
  const solutions = jsonItems<Solution>(await readAsset(store, files.solutions)).slice(from, to);
  const wanted = new Map(solutions.map((solution) => [solution.task_key, solution]));
  const tasks = new Map<string, Task>();
  for (const task of jsonItems<Task>(await readAsset(store, files.tasks)))
    if (wanted.has(task.task_key)) tasks.set(task.task_key, task);
  return solutions.flatMap((solution) => {
    const task = tasks.get(solution.task_key);
    return task ? [{ task, solution }] : [];
  });
}

function environmentOf({ environments }: DatasetSpec, envKey: string): EnvironmentSpec & { url: string } {
  const environment = environments.find(({ env_key }) => env_key === envKey);
  const url = environment?.url;
  if (!environment || url === undefined) throw new Error(`the spec has no address of ${envKey}`);
  return { ...environment, url };
}

function openBackend(environment: EnvironmentSpec & { url: string }, parallel: number): EnvironmentBackend {
  const { url, grading_token_env: tokenName, max_sessions: places = Infinity } = environment;
  const gradingToken = tokenName === undefined ? undefined : process.env[tokenName];
  keepSecret(gradingToken);
  return createOpenEnvBackend({
    url,
    ...serverOptionsOf(environment),
    maxSessions: Math.min(parallel, places),
    callTimeoutMs,
    ...(gradingToken ? { gradingToken } : {}),
  });
}

interface TaskGates extends GateInput {
  store: Deps['store'];
  gathered: GatheredRecord;
  backend: EnvironmentBackend;
  scope: Scope;
}

/** True if the task passes all gates. The first gate that it fails is the last that it is checked at. */
async function gatesOf(input: TaskGates): Promise<boolean> {
  const { store, gathered, task } = input;
  const digest = recordDigest(gathered);
  let first: GateInput['first'];
  for (const gate of gateNames) {
    const key = gateKey(gathered.name, gathered.version, sha256Hex(task.task_key), gate);
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
  const { explanation, ...result } = await withPatience(input, () =>
    checkGate(input.backend, gate, input, input.scope.signal),
  );
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

/** Repeats what fails because the server is away; throws `EnvironmentsUnavailable` when it has been away for too long. */
async function withPatience<T>({ task, scope }: TaskGates, work: () => Promise<T>): Promise<T> {
  const backoff = new Backoff(pauses);
  const until = Date.now() + maxWaitMs;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof EnvironmentError)) throw error;
      if (Date.now() > until) {
        const minutes = maxWaitMs / 60_000;
        throw new EnvironmentsUnavailable(
          `the environment of ${task.task_key} was away for ${minutes} minutes: ${error.message}`,
          { cause: error },
        );
      }
      scope.progress({ waits_for: task.env_key });
      await sleep(backoff.next(), undefined, { signal: scope.signal });
    }
  }
}
